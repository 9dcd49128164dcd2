//! Errors from loading inputs.

use std::io;
use std::path::PathBuf;

use roofgap_analyze::StageError;
use roofgap_trace::ReadError;

use crate::config::ConfigError;
use crate::run_dir::LocateError;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;

/// Error from loading captures or a run.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file is not readable.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A stage is malformed.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The record of a run is not readable.
    #[error(transparent)]
    Record(#[from] Error),
    /// The configuration of a run is not readable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No run was found.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// The name of an input is neither a file nor a run.
    #[error("there is no file {wanted}, and {source}")]
    Neither { wanted: String, source: LocateError },
    /// A run directory was given with other inputs.
    #[error(
        "{}: a run directory has its own timeline and counters and cannot be joined with {}; analyse it alone, or compare \
         the two with `roofgap compare`",
        path.display(),
        other.display()
    )]
    NotAlone { path: PathBuf, other: PathBuf },
    /// Several timelines are not ranks of one job.
    #[error(
        "{}: a second timeline beside {}, and {why}; analyse one at a time, compare the two with `roofgap compare`, or name the \
         ranks of a job in their file names (rank0, rank1)",
        path.display(),
        first.display()
    )]
    NotRanks { path: PathBuf, first: PathBuf, why: String },
    /// The rank to show is not among the inputs.
    #[error("--rank {rank}: not among the ranks given ({})", listed(given))]
    NoRank { rank: u32, given: Vec<u32> },
    /// No nsys is available to export a report.
    #[error(
        "{}: a report of nsys {made_by}, which only nsys can export, and {why}; install Nsight Systems, name it with --nsys, or \
         export it elsewhere with `nsys export --type=sqlite` and give the .sqlite",
        path.display()
    )]
    NoNsys { path: PathBuf, made_by: String, why: String },
    /// nsys failed to export a report.
    #[error(
        "{}: a report of nsys {made_by} that {} failed to export: {why}; an older nsys cannot read the report of a newer one",
        path.display(),
        nsys.display()
    )]
    Export { path: PathBuf, made_by: String, nsys: PathBuf, why: String },
    /// The user interrupted an export.
    #[error("interrupted while nsys exported {}", path.display())]
    Interrupted { path: PathBuf },
    /// A temporary copy failed.
    #[error("cannot write a temporary copy of {}: {source}; set TMPDIR to a folder with space", path.display())]
    Temporary { path: PathBuf, source: io::Error },
    /// A run has no analysis.
    #[error("the run in {} has no metrics.json; `roofgap report {}` writes it", path.display(), path.display())]
    NoMetrics { path: PathBuf },
    /// An analysis is not readable.
    #[error("cannot read {}: {source}", path.display())]
    Analysis { path: PathBuf, source: io::Error },
    /// An analysis does not follow the schema.
    #[error("cannot parse {}: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
}

/// Lists ranks for a message.
fn listed(ranks: &[u32]) -> String {
    if ranks.is_empty() {
        return "none tells its rank".to_owned();
    }
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    ranks.join(", ")
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        let exit = match error {
            LoadError::Interrupted { .. } => Exit::Interrupted,
            _ => Exit::Usage,
        };
        Error::of(error).with_exit(exit)
    }
}
