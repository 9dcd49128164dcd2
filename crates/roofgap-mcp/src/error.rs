//! Errors of the server and of its tools.

use std::path::PathBuf;

use rmcp::model::{ContentBlock, IntoContents};
use roofgap_base::error::Error;
use roofgap_base::text::lines_without_controls;
use roofgap_runs::open::LoadError;
use roofgap_runs::run_dir::LocateError;

/// Error of the server or of one of its tools.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// A folder of the command line is not usable.
    #[error("cannot serve the folder {}: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    /// A path is outside of the served folders.
    #[error("{input:?} is outside of the folders that this server may read: {folders}")]
    Outside { input: String, folders: String },
    /// Nothing has this name.
    #[error("no run and no file {input:?} in {folders}; the tool `list` names what there is")]
    NotFound { input: String, folders: String },
    /// A prefix matches several runs.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// The inputs cannot be analysed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The runs cannot be listed.
    #[error(transparent)]
    Runs(#[from] Error),
    /// The analysis has no such stage.
    #[error("no stage {wanted:?}; the stages are: {known}")]
    NoStage { wanted: String, known: String },
    /// The analysis has no such finding.
    #[error("no finding {wanted:?} in this input; the findings are: {known}")]
    NoFinding { wanted: String, known: String },
    /// The input has no operations with times.
    #[error("not measured: {why}")]
    NoTimeline { why: String },
    /// A window ends before it starts.
    #[error("the window from {start_ns} ns to {end_ns} ns is empty; end_ns must be larger than start_ns")]
    EmptyWindow { start_ns: i64, end_ns: i64 },
    /// The runtime of the server cannot start.
    #[error("cannot start the server: {0}")]
    Runtime(std::io::Error),
    /// The client broke the protocol.
    #[error("the connection failed: {0}")]
    Protocol(String),
    /// A tool panicked.
    #[error("the tool failed; this is a bug")]
    Panic,
}

impl IntoContents for McpError {
    fn into_contents(self) -> Vec<ContentBlock> {
        vec![ContentBlock::text(lines_without_controls(&self.to_string()))]
    }
}
