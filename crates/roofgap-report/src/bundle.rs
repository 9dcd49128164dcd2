//! The files of a bundle that are made from an analysis.

use crate::{html, json, markdown};
use roofgap_analyze::{Analysis, StageIndex};
use roofgap_trace::Trace;
use serde::{Deserialize, Serialize};

/// What a report tells beside the analysis: where, with what and how it was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// What is reported on: a run id or the names of the inputs.
    pub title: String,
    /// Environment as name and value, in the order to be shown.
    pub environment: Vec<(String, String)>,
    /// Phases of the session; empty for a capture made elsewhere.
    pub phases: Vec<PhaseLine>,
    /// The command that makes it again.
    pub repeat: Option<String>,
}

/// How a phase ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseLine {
    /// Its name.
    pub name: String,
    /// `ok`, `skipped` or `failed`.
    pub status: String,
    /// Why it was skipped or failed.
    pub why: Option<String>,
    /// How long it took.
    pub seconds: Option<f64>,
}

/// Everything the exporters take.
#[derive(Debug, Clone, Copy)]
pub struct Bundle<'a> {
    /// The numbers.
    pub analysis: &'a Analysis,
    /// Time spans and operations of each stage of the analysis.
    pub stages: &'a StageIndex,
    /// The timeline, where it is at hand.
    pub trace: Option<&'a Trace>,
    /// What goes with it.
    pub context: &'a Context,
}

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFile {
    /// Its name in the bundle.
    pub name: &'static str,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// All reports of a bundle.
pub fn files(bundle: Bundle<'_>) -> Vec<ReportFile> {
    let text = |name: &'static str, text: String| ReportFile {
        name,
        bytes: text.into_bytes(),
    };
    vec![
        text("metrics.json", json::pretty(bundle.analysis)),
        text("kernels.md", markdown::kernels(bundle)),
        text("operators.md", markdown::operators(bundle)),
        text("report.md", markdown::report(bundle)),
        text("stakeholder_summary.md", markdown::stakeholder_summary(bundle)),
        ReportFile {
            name: "report.html",
            bytes: html::html(bundle),
        },
    ]
}
