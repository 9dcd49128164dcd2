//! Errors of a session.

use std::io;
use std::path::PathBuf;

use roofgap_analyze::StageError;
use roofgap_base::error::Error;
use roofgap_collect::child::Outcome;
use roofgap_collect::program::HydraError;

use roofgap_base::exit::Exit;
use roofgap_runs::open::LoadError;
use roofgap_runs::run_dir::PhaseStatus;

/// Error that prevents a session, or the reports of a run.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The run directory is not writable.
    #[error(transparent)]
    RunDir(#[from] Error),
    /// The run is not readable.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A stage of the configuration is malformed.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The program cannot run.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl SessionError {
    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        Exit::Usage
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        let exit = error.exit();
        Error::of(error).with_exit(exit)
    }
}

/// The workload that runs on any machine, as the end of a message.
pub(crate) const EMBEDDED_INSTEAD: &str =
    ", or profile the embedded model instead: `roofgap profile workload=embedded`";

/// Error that prevents the program from running as configured.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// `workload.cwd` is missing.
    #[error("workload.cwd is {}, which is not a folder", .0.display())]
    Cwd(PathBuf),
    /// A file of the configuration is missing.
    #[error("{key} is {}, which is not a file", path.display())]
    NotAFile { key: &'static str, path: PathBuf },
    /// The executable is missing.
    #[error("the program {0} was not found; check that it is installed and on the PATH")]
    NotFound(String),
    /// The file is not executable.
    #[error("{0} is not executable; run chmod +x on it, or name its interpreter")]
    NotExecutable(String),
    /// The Python interpreter failed.
    #[error("{0}")]
    Python(String),
    /// A Python package is missing.
    #[error(
        "{} lacks {}; install with `{} -m pip install {}`, or set workload.python{alternative}",
        python.display(), packages.join(" and "), python.display(), packages.join(" ")
    )]
    Packages { python: PathBuf, packages: Vec<&'static str>, alternative: &'static str },
    /// A Hugging Face model needs a GPU.
    #[error(
        "workload=hf runs the model on a GPU, and there is none ({why}); run it on the CPU with workload.device=cpu{EMBEDDED_INSTEAD}"
    )]
    NoGpu { why: String },
    /// The embedded model does not read inputs.
    #[error(
        "the embedded model reads no inputs, so {} would not be used; add workload=hf and model=NAME, or remove inputs.manifest",
        path.display()
    )]
    ManifestUnused { path: PathBuf },
    /// A command reads its own arguments.
    #[error(
        "the program after -- does not read {}; give it its inputs as arguments, or remove inputs.manifest",
        path.display()
    )]
    ManifestOfCommand { path: PathBuf },
    /// A Hydra module has no key for the inputs.
    #[error(
        "the module would not use every item of {}: {why}; give it its inputs with workload.overrides, or remove inputs.manifest",
        path.display()
    )]
    ManifestOfModule { path: PathBuf, why: &'static str },
    /// The manifest has more items than a session runs.
    #[error(
        "{} has {items} items, but workload.repeats={repeats} with workload.batch={batch} uses {}; set workload.repeats={needed}",
        path.display(), repeats.saturating_mul(*batch)
    )]
    ManifestTooLong { path: PathBuf, items: usize, repeats: usize, batch: usize, needed: usize },
    /// The manifest is malformed.
    #[error("inputs.manifest: {}: {why}", path.display())]
    Manifest { path: PathBuf, why: String },
    /// `stage1.run_dir` is not usable.
    #[error("stage1.run_dir: {}: {why}", path.display())]
    Stage1 { path: PathBuf, why: String },
    /// A required key is not set.
    #[error("{0}")]
    Unset(&'static str),
    /// `profiling.nsys.nvtx_capture` is malformed.
    #[error("profiling.nsys.nvtx_capture is {0:?}; write it as [domain@]name")]
    Range(String),
    /// A Hydra module refuses its configuration.
    #[error(transparent)]
    Hydra(#[from] HydraError),
    /// The scripts of the program cannot be written.
    #[error("cannot write the scripts to {}: {source}", folder.display())]
    Scripts { folder: PathBuf, source: io::Error },
    /// A file for the program cannot be written.
    #[error(transparent)]
    Write(#[from] Error),
}

/// Failure of an attempt to run a phase: the reason, and the last lines of the log of the failed command.
///
/// It is built from any error by `?`, so it is not an error type itself.
#[derive(Debug)]
pub(crate) struct AttemptError {
    pub(crate) why: String,
    pub(crate) log_tail: Option<String>,
}

impl AttemptError {
    /// Creates a failure without a log.
    pub(crate) fn new(why: impl Into<String>) -> Self {
        AttemptError { why: why.into(), log_tail: None }
    }

    /// Creates a failure with the log of a command.
    pub(crate) fn after(why: impl Into<String>, outcome: &Outcome) -> Self {
        AttemptError { why: why.into(), log_tail: Some(outcome.output_tail().to_owned()) }
    }

    /// Converts the failure to the status of the phase.
    pub(crate) fn status(&self) -> PhaseStatus {
        PhaseStatus::failed(&self.why, self.log_tail.as_deref())
    }
}

impl<E: std::error::Error> From<E> for AttemptError {
    fn from(error: E) -> Self {
        AttemptError::new(error.to_string())
    }
}
