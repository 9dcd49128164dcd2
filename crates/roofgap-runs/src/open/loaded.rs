//! Loaded inputs.

use roofgap_analyze::{Analysis, StageIndex};
use roofgap_report::Context;
use roofgap_trace::Trace;

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
