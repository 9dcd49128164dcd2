//! The one loader: captures and runs in, trace and analysis out.
//!
//! - [`load`]: loads the inputs a user names, captures or one run directory;
//! - `ranks`: folders of captures, and several captures as ranks of one job;
//! - [`nsys_report`]: exports nsys reports, which only nsys can read;
//! - [`run`]: loads a run directory with its configuration and record;
//! - [`side`]: loads one side of a comparison;
//! - `accounts`: the program's own accounts, and profiler overhead from them.

pub mod accounts;
pub mod error;
pub mod nsys_report;
pub mod run;
pub mod side;

mod ranks;

use std::path::PathBuf;

use roofgap_analyze::gpu::UserLimits;
use roofgap_analyze::model::{Architecture, Tokens};
use roofgap_analyze::{Analysis, Options, StageError, StageIndex, StageSet, analyze};
use roofgap_report::Context;
use roofgap_trace::{Input, Sniffed, Trace, read_files};

pub use error::LoadError;
pub use nsys_report::Exporter;
pub use side::{LoadedSide, load_side, load_timeline};

pub use crate::run_dir::locate::is_run;
use nsys_report::Export;

/// Captures or a run, read and analysed.
#[derive(Debug)]
pub struct Loaded {
    /// Timeline.
    pub trace: Trace,
    /// Analysis.
    pub analysis: Analysis,
    /// Time spans and operations of each stage.
    pub stages: StageIndex,
    /// Title, environment and phases for a report.
    pub context: Context,
    /// Errors of the files that are not readable.
    pub unreadable: Vec<String>,
}

impl Loaded {
    /// Analyses a trace.
    fn analyze(trace: Trace, options: &Options, title: String) -> Self {
        let analyzed = analyze(&trace, options);
        Loaded {
            trace,
            analysis: analyzed.analysis,
            stages: analyzed.stages,
            context: Context { title, ..Context::default() },
            unreadable: Vec::new(),
        }
    }
}

/// Facts stated by the user beside the inputs. They win over those in the files.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Stages to replace or add, as `NAME=PATTERN`.
    pub stages: Vec<String>,
    /// Model.
    pub model: Option<Architecture>,
    /// Tokens of a run.
    pub tokens: Tokens,
    /// Limits of the device.
    pub limits: UserLimits,
    /// Rank to show, of several.
    pub rank: Option<u32>,
    /// Folders, without links, in which the configuration of a run may name files: it is data. Any where `None`.
    pub folders: Option<Vec<PathBuf>>,
}

impl Overrides {
    /// Adds the stages to a set.
    fn add_stages(&self, set: &mut StageSet) -> Result<(), StageError> {
        self.stages.iter().try_for_each(|stage| set.set(stage))
    }

    /// Builds the options of an analysis from these facts alone.
    fn options(&self) -> Result<Options, StageError> {
        let mut stages = StageSet::default();
        self.add_stages(&mut stages)?;
        Ok(Options {
            stages,
            model: self.model.clone(),
            limits: self.limits,
            tokens: self.tokens.clone(),
            ..Options::default()
        })
    }
}

/// Loads the inputs a user names: captures, joined into one analysis, or one run directory. Writes nothing beside the inputs.
pub fn load(paths: &[PathBuf], overrides: &Overrides, exporter: &Exporter) -> Result<Loaded, LoadError> {
    // Wrong stages are reported before a long read.
    overrides.options()?;
    let Some(run) = paths.iter().find(|path| is_run(path)) else {
        return load_captures(paths, overrides, exporter);
    };
    match paths.iter().find(|path| *path != run) {
        Some(other) => Err(LoadError::NotAlone { path: run.clone(), other: other.clone() }),
        None => Ok(run::Run::open(run)?.load(overrides)),
    }
}

/// Loads captures as one analysis: one timeline with its counters, or several ranks of a job. An unreadable file is an error, except
/// for one of several ranks.
fn load_captures(paths: &[PathBuf], overrides: &Overrides, exporter: &Exporter) -> Result<Loaded, LoadError> {
    let files = ranks::expand(paths)?;
    let division = ranks::divide(&files);
    let together = division.as_ref().map_or(&files, |division| &division.others);
    let input = read(together, exporter)?;
    let options = Options { counters: input.counters, account: input.account, ..overrides.options()? };
    if let Some(division) = division {
        return ranks::load(&division, &options, overrides.rank, |_, files| read(files, exporter));
    }
    if let Some(divided) = ranks::load_divided(&input.trace, &options, overrides.rank) {
        return divided;
    }
    if let Some(rank) = overrides.rank {
        let own = input.trace.distributed.as_ref().and_then(|job| job.rank);
        if own != Some(rank) {
            let given = own.into_iter().collect();
            return Err(LoadError::NoRank { rank, given });
        }
    }
    let title: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    Ok(Loaded::analyze(input.trace, &options, title.join(", ")))
}

/// Reads captures; nsys reports are exported first.
fn read(files: &[Sniffed], exporter: &Exporter) -> Result<Input, LoadError> {
    let exports = files.iter().map(|file| Export::of(file, exporter)).collect::<Result<Vec<_>, _>>()?;
    let exported = |(file, export): (&Sniffed, &Option<Export>)| {
        export.as_ref().map_or_else(|| file.clone(), |export| export.sqlite.clone())
    };
    let mut input = read_files(&files.iter().zip(&exports).map(exported).collect::<Vec<_>>())?;
    for export in exports.iter().flatten() {
        export.restore_name(&mut input.trace);
    }
    Ok(input)
}

/// Reads recordings of a session. An unreadable file is reported in `unreadable` and costs only itself.
pub fn read_each(paths: &[PathBuf], unreadable: &mut Vec<String>) -> Input {
    let files = sniff_each(paths, unreadable);
    read_sniffed(&files, unreadable)
}

/// Detects the formats of recordings. An unreadable file is reported in `unreadable`.
fn sniff_each(paths: &[PathBuf], unreadable: &mut Vec<String>) -> Vec<Sniffed> {
    let sniff = |path: &PathBuf| Sniffed::of(path).map_err(|error| unreadable.push(error.to_string())).ok();
    paths.iter().filter_map(sniff).collect()
}

fn read_sniffed(files: &[Sniffed], unreadable: &mut Vec<String>) -> Input {
    let (input, errors) = roofgap_trace::read_each(files);
    unreadable.extend(errors.iter().map(ToString::to_string));
    input
}
