//! A run read again from the files in its directory: its analysis, and its reports once more.

use std::path::{Path, PathBuf};

use roofgap_analyze::{Analysis, StageIndex};
use roofgap_collect::rundir::{RunDirError, write_whole};
use roofgap_report::Context;
use roofgap_trace::Trace;

use super::bundle;
use super::layout::Layout;
use super::props::SessionError;
use crate::config::{Config, ConfigProps, compose};
use crate::inputs::Given;
use crate::record::SessionRecord;

/// What was rendered.
#[derive(Debug)]
pub struct Rendered {
    /// The analysis.
    pub analysis: Analysis,
    /// The record of the session.
    pub record: SessionRecord,
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// Files of the run that could not be read, and why.
    pub unreadable: Vec<String>,
}

/// What the files of a run say, together.
#[derive(Debug)]
pub struct Loaded {
    /// The timeline.
    pub trace: Trace,
    /// The analysis.
    pub analysis: Analysis,
    /// Time spans and operations of each stage of the analysis.
    pub stages: StageIndex,
    /// What goes with it in a report.
    pub context: Context,
    /// Files of the run that could not be read, and why.
    pub unreadable: Vec<String>,
}

/// Analyse a run from its files, compressed ones too, under what the user states over its configuration.
pub fn load(run_dir: &Path, given: &Given) -> Result<Loaded, SessionError> {
    let run = Run::open(run_dir)?;
    let reading = bundle::read(&run.layout, &run.config, &run.record, given);
    Ok(Loaded {
        trace: reading.input.trace,
        analysis: reading.analysis,
        stages: reading.index,
        context: bundle::context(&run.record, &run.layout, &run.config),
        unreadable: reading.unreadable,
    })
}

/// Write the reports of a run again.
pub fn report(run_dir: &Path) -> Result<Rendered, SessionError> {
    let run = Run::open(run_dir)?;
    let reading = bundle::read(&run.layout, &run.config, &run.record, &Given::default());
    let mut files = Vec::new();
    for file in bundle::reports(&reading, &run.record, &run.layout, &run.config) {
        let path = run_dir.join(file.name);
        write_whole(&path, &file.bytes).map_err(|source| RunDirError::Write {
            path: path.clone(),
            source,
        })?;
        files.push(path);
    }
    Ok(Rendered {
        analysis: reading.analysis,
        record: run.record,
        files,
        unreadable: reading.unreadable,
    })
}

/// A run directory with what its numbers are read under.
struct Run {
    layout: Layout,
    record: SessionRecord,
    config: Config,
}

impl Run {
    fn open(run_dir: &Path) -> Result<Self, SessionError> {
        let layout = Layout::of(run_dir);
        let record = SessionRecord::read(run_dir)?;
        let composed = compose(&ConfigProps {
            config: Some(layout.config()),
            ..ConfigProps::default()
        })?;
        Ok(Run {
            layout,
            record,
            config: composed.config,
        })
    }
}
