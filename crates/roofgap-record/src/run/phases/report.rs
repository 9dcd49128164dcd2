//! Analyses the recordings of a run and writes its reports.

use std::path::{Path, PathBuf};

use roofgap_analyze::Analysis;
use roofgap_base::error::Error;
use roofgap_base::file::write_atomic;
use roofgap_report::{Bundle, ReportFile, files};

use crate::run::context::PhaseContext;
use crate::run::error::SessionError;
use roofgap_runs::open::run::{Run, context, load, overhead_warnings};
use roofgap_runs::open::{Loaded, Overrides};
use roofgap_runs::run_dir::locate::is_job;
use roofgap_runs::run_dir::{PhaseName, PhaseStatus, SessionRecord};
use roofgap_runs::runs::merge::join_nodes;

/// Reports of a run, written again.
#[derive(Debug)]
pub struct WrittenReports {
    /// Analysis.
    pub analysis: Analysis,
    /// Record of the session.
    pub record: SessionRecord,
    /// Files.
    pub files: Vec<PathBuf>,
    /// Errors of the files that are not readable.
    pub unreadable: Vec<String>,
}

/// Writes the reports of a run again.
pub fn write_reports(run_dir: &Path) -> Result<WrittenReports, SessionError> {
    write_reports_with(run_dir, &[])
}

/// Writes the reports of a run again, with overrides of its configuration. The configuration of the run stays as it is. The run of a
/// job is made of those of its nodes, whatever they have recorded.
pub fn write_reports_with(run_dir: &Path, overrides: &[String]) -> Result<WrittenReports, SessionError> {
    let problems = if is_job(run_dir) { join_nodes(run_dir)?.problems } else { Vec::new() };
    let run = Run::open_with(run_dir, overrides)?;
    let mut loaded = run.load(&Overrides::default());
    loaded.unreadable.extend(problems);
    let mut files = Vec::new();
    for file in render(&loaded) {
        let path = run_dir.join(file.name);
        write_atomic(&path, &file.bytes).map_err(Error::io("write", &path))?;
        files.push(path);
    }
    Ok(WrittenReports { analysis: loaded.analysis, record: run.record, files, unreadable: loaded.unreadable })
}

/// Runs the phases `analyze` and `report` of a session.
pub(crate) fn run(phases: &mut PhaseContext<'_>) {
    let mut loaded = analyze(phases);
    phases.begin(PhaseName::Report);
    loaded.context = context(phases.record.record(), &phases.layout, phases.config);
    let mut errors = Vec::new();
    for file in render(&loaded) {
        match phases.run_dir.write(file.name, &file.bytes) {
            Ok(path) => {
                phases.output(PhaseName::Report, &path);
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    phases.end(PhaseName::Report, ok_or_failed(&errors));
}

fn analyze(phases: &mut PhaseContext<'_>) -> Loaded {
    const PHASE: PhaseName = PhaseName::Analyze;
    phases.begin(PHASE);
    let record = phases.record.record();
    let loaded = load(&phases.layout, phases.config, record, &Overrides::default());
    for why in &loaded.unreadable {
        phases.record.note(PHASE, why.clone());
    }
    for warning in overhead_warnings(&loaded.analysis, phases.config.runner.overhead_limit_pct) {
        phases.warn(PHASE, warning);
    }
    phases.end(PHASE, ok_or_failed(&loaded.unreadable));
    loaded
}

fn ok_or_failed(errors: &[String]) -> PhaseStatus {
    match errors {
        [] => PhaseStatus::Ok,
        errors => PhaseStatus::failed(errors.join("; "), None),
    }
}

fn render(loaded: &Loaded) -> Vec<ReportFile> {
    files(Bundle {
        analysis: &loaded.analysis,
        stages: &loaded.stages,
        trace: Some(&loaded.trace),
        context: &loaded.context,
    })
}
