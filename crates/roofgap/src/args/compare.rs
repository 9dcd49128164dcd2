//! Arguments of `compare`.

use super::common::{AnalysisOverrides, Base};
use clap::ValueEnum;
use std::path::PathBuf;

/// Output format of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// Tables for people
    Text,
    /// JSON for programs
    Json,
    /// Markdown for a pull request comment
    Markdown,
    /// An HTML page
    Html,
}

#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Before: a run (id, prefix, folder or `latest`), a metrics.json or a capture
    #[arg(value_name = "BASE")]
    pub before: String,
    /// After
    #[arg(value_name = "HEAD")]
    pub after: String,
    /// Exit with status 5 if a number is worse by more than this and by more than its noise: 5%, decode.wall=3%, prefill.busy=2ms
    #[arg(long, value_name = "LIMIT")]
    pub fail_on: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = CompareFormat::Text)]
    pub format: CompareFormat,
    #[command(flatten)]
    pub base: Base,
    #[command(flatten)]
    pub overrides: AnalysisOverrides,
    /// The nsys that exports a .nsys-rep file, if it is not on the PATH
    #[arg(long, value_name = "FILE")]
    pub nsys: Option<PathBuf>,
    /// Number of kernels and parts of a change to list
    #[arg(long, default_value_t = 12, value_name = "N")]
    pub top: usize,
}
