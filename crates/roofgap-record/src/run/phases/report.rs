//! Analyses the recordings of a run and writes its reports.

use std::path::{Path, PathBuf};

use roofgap_analyze::Analysis;
use roofgap_base::error::Error;
use roofgap_base::file::write_atomic;
use roofgap_report::files;
use roofgap_runs::open::Overrides;
use roofgap_runs::open::run::{Run, context, open_recordings, overhead_warnings};
use roofgap_runs::run_dir::locate::is_job;
use roofgap_runs::run_dir::{PhaseName, SessionRecord};
use roofgap_runs::runs::merge::join_nodes;

use super::{Phase, Results};
use crate::run::context::{AttemptError, PhaseContext};

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
pub fn write_reports(run_dir: &Path) -> Result<WrittenReports, Error> {
    write_reports_with(run_dir, &[])
}

/// Writes the reports of a run again, with overrides of its configuration. The configuration of the run stays as it is. The run of
/// several nodes is made of theirs, whatever they have recorded.
pub fn write_reports_with(run_dir: &Path, overrides: &[String]) -> Result<WrittenReports, Error> {
    let problems = if is_job(run_dir) { join_nodes(run_dir)?.problems } else { Vec::new() };
    let run = Run::open_with(run_dir, overrides)?;
    let mut opened = run.open_recordings(&Overrides::default());
    opened.unreadable.extend(problems);
    let mut written = Vec::new();
    for file in files(opened.bundle()) {
        let path = run_dir.join(file.name);
        write_atomic(&path, &file.bytes).map_err(Error::io("write", &path))?;
        written.push(path);
    }
    Ok(WrittenReports {
        analysis: opened.analysis,
        record: run.record,
        files: written,
        unreadable: opened.unreadable,
    })
}

/// The phase that analyses the recordings.
pub(crate) struct Analyze;

impl Phase for Analyze {
    fn name(&self) -> PhaseName {
        PhaseName::Analyze
    }

    fn is_conclusion(&self) -> bool {
        true
    }

    fn run(&self, phases: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), AttemptError> {
        let record = phases.record.record();
        let opened = open_recordings(&phases.layout, phases.config, record, &Overrides::default());
        for why in &opened.unreadable {
            phases.note(why.clone());
        }
        for warning in overhead_warnings(&opened.analysis) {
            phases.warn(warning);
        }
        let result = check(&opened.unreadable);
        found.opened = Some(opened);
        result
    }
}

/// The phase that writes the reports.
pub(crate) struct Report;

impl Phase for Report {
    fn name(&self) -> PhaseName {
        PhaseName::Report
    }

    fn is_conclusion(&self) -> bool {
        true
    }

    fn run(&self, phases: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), AttemptError> {
        let opened = found.opened.as_mut();
        let opened = opened.ok_or_else(|| AttemptError::new("the recordings were not analysed"))?;
        opened.context = context(phases.record.record(), &phases.layout, phases.config);
        let mut errors = Vec::new();
        for file in files(opened.bundle()) {
            match phases.run_dir.write(file.name, &file.bytes) {
                Ok(path) => {
                    phases.output(&path);
                }
                Err(error) => errors.push(error.to_string()),
            }
        }
        check(&errors)
    }
}

fn check(errors: &[String]) -> Result<(), AttemptError> {
    if errors.is_empty() { Ok(()) } else { Err(AttemptError::new(errors.join("; "))) }
}
