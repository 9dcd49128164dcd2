//! Opens inputs: captures and runs in, trace and analysis out.
//!
//! - [`open_inputs`]: opens the inputs a user names, captures or one run directory;
//! - `ranks`: folders of captures, and several captures as ranks of one job;
//! - [`nsys_report`]: lets nsys export the reports that are not read here;
//! - [`run_key`], [`run_facts`]: the key of a run and the facts about it, for tables of many runs;
//! - [`run`]: opens a run directory with its configuration and record, the program's own accounts, and profiler overhead from them;
//! - [`open_side`]: opens one side of a comparison.

mod facts;
pub mod nsys_report;
mod ranks;
pub mod run;

pub use crate::run_dir::locate::is_run;
pub use facts::{run_facts, run_key};
pub use nsys_report::Exporter;

use crate::run_dir::folder::read_json;
use crate::run_dir::{Layout, LocateError, RunRef, SessionRecord, locate};
use nsys_report::read_exported;
use roofgap_analyze::compare::{Side, SideFacts};
use roofgap_analyze::{Analysis, Options, SCHEMA, Stage, StageError, StageIndex, analyze};
use roofgap_base::error::Error;
use roofgap_base::numbers::time;
use roofgap_report::{Bundle, Context};
use roofgap_trace::{Input, ReadError, Sniffed, Trace, read_files};
use run::{account_at, stage_times};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Captures or a run, read and analysed.
#[derive(Debug)]
pub struct Opened {
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

impl Opened {
    /// Analyses a trace.
    fn analyze(trace: Trace, options: &Options, title: String) -> Self {
        let analyzed = analyze(&trace, options);
        Self {
            trace,
            analysis: analyzed.analysis,
            stages: analyzed.stages,
            context: Context { title, ..Context::default() },
            unreadable: Vec::new(),
        }
    }

    /// Returns the input of the reports.
    pub fn bundle(&self) -> Bundle<'_> {
        Bundle {
            analysis: &self.analysis,
            stages: &self.stages,
            trace: Some(&self.trace),
            context: &self.context,
        }
    }
}

/// Facts stated by the user beside the inputs. They win over those in the files.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Stages to replace or add, as `NAME=PATTERN`.
    pub stages: Vec<String>,
    /// What else the user sets of an analysis.
    pub given: Options,
    /// Rank to show, of several.
    pub rank: Option<u32>,
    /// Folders, without links, in which the configuration of a run may name files: it is data. Any where `None`.
    pub folders: Option<Vec<PathBuf>>,
}

impl Overrides {
    /// Builds the options of an analysis from these facts alone.
    fn options(&self) -> Result<Options, StageError> {
        let mut options = self.given.clone();
        self.stages.iter().try_for_each(|stage| options.stages.set(stage))?;
        Ok(options)
    }
}

/// Opens the inputs a user names: captures, joined into one analysis, or one run directory. Writes nothing beside the inputs.
pub fn open_inputs(paths: &[PathBuf], overrides: &Overrides, exporter: &Exporter) -> Result<Opened, Error> {
    // Wrong stages are reported before a long read.
    overrides.options().map_err(Error::of)?;
    let Some(run) = paths.iter().find(|path| is_run(path)) else {
        return open_captures(paths, overrides, exporter).and_then(|opened| with_stated(opened, overrides));
    };
    match paths.iter().find(|path| *path != run) {
        Some(other) => Err(Error::new(format!(
            "{}: a run directory has its own timeline and counters and cannot be joined with {}; analyse it alone, or compare \
             the two with `roofgap compare`",
            run.display(),
            other.display()
        ))),
        None => with_stated(run::Run::open(run)?.open_recordings(overrides), overrides),
    }
}

/// Returns what was opened, or why a stated time without the profiler has no effect on it.
fn with_stated(opened: Opened, overrides: &Overrides) -> Result<Opened, Error> {
    let Analysis { stages, overhead, .. } = &opened.analysis;
    for (name, ns) in &overrides.given.unprofiled {
        let stage = stages.iter().find(|stage| stage.name == *name).map(Stage::warm);
        let busy = stage.and_then(|stage| Some(stage.busy_share()? * stage.steady.as_ref()?.time_ns as f64));
        if let Some(busy) = busy.map(|busy| busy as i64).filter(|busy| ns < busy) {
            let why = format!("its GPU work alone takes {}", time(busy));
            return Err(Error::new(format!("--unprofiled {name}: {why}")));
        }
    }
    let is_used = |name: &str| overhead.iter().any(|row| row.stated && row.stage == name);
    let Some((name, _)) = overrides.given.unprofiled.iter().find(|(name, _)| !is_used(name)) else {
        return Ok(opened);
    };
    let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
    let why = match names.as_slice() {
        [] => "the inputs have no stages".to_owned(),
        all if all.contains(&name.as_str()) => "its time under a profiler is not known".to_owned(),
        all => format!("no such stage; the stages are {}", all.join(", ")),
    };
    Err(Error::new(format!("--unprofiled {name}: {why}")))
}

/// Opens captures as one analysis: one timeline with its counters, or several ranks of a job. An unreadable file is an error, except
/// for one of several ranks.
fn open_captures(paths: &[PathBuf], overrides: &Overrides, exporter: &Exporter) -> Result<Opened, Error> {
    let files = ranks::expand(paths)?;
    let division = ranks::divide(&files);
    let together = division.as_ref().map_or(&files, |division| &division.others);
    let input = read(together, exporter)?;
    let options = Options {
        counters: input.counters,
        account: input.account,
        ..overrides.options().map_err(Error::of)?
    };
    if let Some(division) = division {
        return ranks::open_ranks(&division, &options, overrides.rank, |_, files| read(files, exporter));
    }
    if let Some(divided) = ranks::open_divided(&input.trace, &options, overrides.rank) {
        return divided;
    }
    if let Some(rank) = overrides.rank {
        let told = input.trace.distributed.as_ref().and_then(|job| job.rank);
        if told != Some(rank) {
            return Err(no_rank(rank, told.as_slice()));
        }
    }
    let title: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    Ok(Opened::analyze(input.trace, &options, title.join(", ")))
}

/// Reads captures. An nsys report with parts that are not known here is exported by nsys.
fn read(files: &[Sniffed], exporter: &Exporter) -> Result<Input, Error> {
    let (path, unknown) = match read_files(files) {
        Err(ReadError::UnknownReport { path, what }) => (path, what),
        done => return Ok(done?),
    };
    // One timeline is read, so that no other report can be among the files.
    let Some(at) = files.iter().position(|file| file.path == path) else {
        return Err(ReadError::UnknownReport { path, what: unknown }.into());
    };
    read_exported(&files[at], &unknown, exporter, |export| {
        let mut files = files.to_vec();
        files[at] = export;
        Ok(read_files(&files)?)
    })
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

/// Says that the rank to show is not among the inputs.
fn no_rank(rank: u32, given: &[u32]) -> Error {
    let given: Vec<String> = given.iter().map(u32::to_string).collect();
    let given = if given.is_empty() { "none tells its rank".to_owned() } else { given.join(", ") };
    Error::new(format!("--rank {rank}: not among the ranks given ({given})"))
}

/// One side of a comparison.
#[derive(Debug, Clone)]
pub struct OpenedSide {
    /// Analysis.
    pub analysis: Analysis,
    /// Title, mode, workload and baseline times.
    pub facts: SideFacts,
    /// Page of a run.
    pub page: Option<PathBuf>,
}

impl OpenedSide {
    fn new(analysis: Analysis, title: &str) -> Self {
        let facts = SideFacts { title: title.to_owned(), ..SideFacts::default() };
        Self { analysis, facts, page: None }
    }

    /// Returns what a comparison takes.
    pub fn as_side(&self) -> Side<'_> {
        Side { analysis: &self.analysis, facts: &self.facts }
    }
}

/// Opens a run (id, prefix, path, `latest`), a folder or file with an analysis, or a capture, which is analysed.
pub fn open_side(
    base: &Path,
    wanted: &str,
    overrides: &Overrides,
    exporter: &Exporter,
) -> Result<OpenedSide, Error> {
    let path = PathBuf::from(wanted);
    let metrics = path.join("metrics.json");
    if path.is_dir() && !locate::is_run(&path) && metrics.is_file() {
        return Ok(OpenedSide::new(read_analysis(&metrics)?, wanted));
    }
    let sniffed = Sniffed::of(&path);
    if let Err(error @ ReadError::Unsupported { .. }) = sniffed {
        return Err(error.into());
    }
    if path.is_file() || sniffed.is_ok() {
        let analysis = if names_schema(&path) {
            read_analysis(&path)?
        } else {
            open_captures(&[path], overrides, exporter)?.analysis
        };
        return Ok(OpenedSide::new(analysis, wanted));
    }
    let run = locate::resolve(base, wanted).map_err(|source| match source {
        LocateError::Unknown { .. } | LocateError::Empty { .. } if wanted != "latest" => {
            Error::new(format!("there is no file {wanted}, and {source}"))
        }
        source => source.into(),
    })?;
    open_run(&run)
}

/// Opens the analysis of a run as it was written, with the facts of its record.
fn open_run(run: &RunRef) -> Result<OpenedSide, Error> {
    let layout = Layout::of(&run.path);
    if !layout.metrics().is_file() {
        let path = run.path.display();
        let why = format!("the run in {path} has no metrics.json; `roofgap report {path}` writes it");
        return Err(Error::new(why));
    }
    let mut side = OpenedSide::new(read_analysis(&layout.metrics())?, &run.id);
    if let Ok(record) = SessionRecord::read(&run.path) {
        side.facts.mode = Some(record.mode);
        side.facts.workload = Some(record.workload);
    }
    let account = account_at(layout.baseline_account()).unwrap_or_default();
    let times = stage_times(&account).into_iter().map(|(stage, times)| (stage.to_owned(), times));
    side.facts.unwatched = times.collect();
    side.page = Some(layout.page()).filter(|page| page.is_file());
    Ok(side)
}

/// Reads an analysis as it was written.
fn read_analysis(path: &Path) -> Result<Analysis, Error> {
    let analysis: Analysis = read_json(path)?;
    if analysis.schema != SCHEMA {
        let why = format!("schema {:?}, expected {SCHEMA:?}", analysis.schema);
        return Err(Error::io("parse", path)(io::Error::other(why)));
    }
    Ok(analysis)
}

/// Returns true where the first bytes of a file name the schema of an analysis. Read errors are left to the reader.
fn names_schema(path: &Path) -> bool {
    let mut start = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(256).read_to_end(&mut start);
    }
    String::from_utf8_lossy(&start).contains(SCHEMA)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_collect::child::Cancel;
    use roofgap_collect::tool::Search;

    #[test]
    fn an_arrow_export_as_a_side_says_what_to_export() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("StringIds.arrow"), "").unwrap();
        let wanted = folder.path().to_str().unwrap();
        let search = Search { named: None, path: Vec::new(), root: None };
        let exporter = Exporter::new(search, Cancel::new());
        let error = open_side(folder.path(), wanted, &Overrides::default(), &exporter).unwrap_err();
        assert!(error.to_string().contains("nsys export --type sqlite"), "{error}");
    }
}
