//! Writing the reports of a run again, from the files in its directory.

use std::path::{Path, PathBuf};

use roofgap_analyze::Analysis;
use roofgap_collect::rundir::{RunDirError, write_whole};

use super::bundle;
use super::layout::Layout;
use super::props::SessionError;
use crate::config::{ConfigProps, compose};
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

/// Write the reports of a run again.
pub fn report(run_dir: &Path) -> Result<Rendered, SessionError> {
    let layout = Layout::of(run_dir);
    let record = SessionRecord::read(run_dir)?;
    let config = compose(&ConfigProps {
        config: Some(layout.config()),
        ..ConfigProps::default()
    })?
    .config;
    let reading = bundle::read(&layout, &config, &record);
    let mut files = Vec::new();
    for file in bundle::reports(&reading, &record, &layout, &config) {
        let path = run_dir.join(file.name);
        write_whole(&path, &file.bytes).map_err(|source| RunDirError::Write {
            path: path.clone(),
            source,
        })?;
        files.push(path);
    }
    Ok(Rendered {
        analysis: reading.analysis,
        record,
        files,
        unreadable: reading.unreadable,
    })
}
