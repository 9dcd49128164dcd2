//! Queries to a tool, such as `--version` and `--help`.

use std::path::Path;
use std::time::Duration;

use crate::child::{ChildError, ProbeOutput, probe};
use crate::command::CommandLine;

/// Time limit of a query. nsys unpacks files on its first start.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Failure to use a tool.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The tool cannot be started.
    #[error(transparent)]
    Start(#[from] ChildError),
    /// The tool was killed or timed out.
    #[error("{command} {ended}, {output}")]
    NoAnswer {
        /// Command line.
        command: String,
        /// Description of the end.
        ended: String,
        /// Summary of the output.
        output: String,
    },
    /// The program is not the tool.
    #[error("unexpected answer to --version, not from {tool}: it {ended}, {output}")]
    NotTheTool {
        /// Expected tool.
        tool: &'static str,
        /// Description of the end.
        ended: String,
        /// Summary of the output.
        output: String,
    },
    /// nsys cannot import its recordings.
    #[error("it cannot import its recordings")]
    CannotImport,
    /// ncu lists no metrics for a chip.
    #[error("ncu lists no metrics for the chip {chip}: it {ended}, {output}")]
    NoMetrics {
        /// Name of the chip.
        chip: String,
        /// Description of the end.
        ended: String,
        /// Summary of the output.
        output: String,
    },
}

/// Runs a query. Any exit status is accepted: `nsys stats --help-reports` exits with 1, and wrappers lose statuses.
pub fn query(path: &Path, args: &[&str]) -> Result<ProbeOutput, ToolError> {
    let command = CommandLine::new(path).args(args.iter().copied());
    let output = probe(&command, TIME_LIMIT)?;
    if output.exited {
        Ok(output)
    } else {
        Err(ToolError::NoAnswer {
            command: command.to_string(),
            output: output.summary(),
            ended: output.ended,
        })
    }
}

/// Runs `--version`, which must satisfy `is_tool`; returns its output.
pub fn query_version(
    path: &Path,
    tool: &'static str,
    is_tool: impl FnOnce(&str) -> bool,
) -> Result<String, ToolError> {
    let output = query(path, &["--version"])?;
    let text = output.text();
    if is_tool(&text) {
        Ok(text)
    } else {
        Err(ToolError::NotTheTool { tool, output: output.summary(), ended: output.ended })
    }
}
