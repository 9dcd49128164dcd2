#![doc = include_str!("../README.md")]

pub mod compare;
pub mod export;
pub mod page;

mod document;

/// Results as JSON.
pub mod json {
    use serde::Serialize;

    /// JSON Schema of the analysis.
    pub const SCHEMA: &str = include_str!("../schema/analysis-1.schema.json");

    /// JSON Schema of `try.json`.
    pub const TRY_SCHEMA: &str = include_str!("../schema/try-2.schema.json");

    /// Renders an analysis or a comparison as indented JSON with a final newline.
    pub fn pretty(result: &(impl Serialize + ?Sized)) -> String {
        // Plain data always serializes; a number that is not finite becomes null.
        let mut text = serde_json::to_string_pretty(result).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// Renderers: each walks the sections of a document.
mod render {
    pub mod html;
    pub mod markdown;
    pub mod screen;
    pub mod text;
}

pub use document::findings::{Derivation, DerivationRow, derivations};
pub use document::headline::{headline, main_stage};
pub use document::selection::{KernelOrder, NameFilter, Selection};
pub use document::serving::requests_text;
pub use document::trial::tried_text;
pub use export::ExportError;
pub use render::screen::{Screen, Tone, columns};
pub use render::{markdown, text};
pub use roofgap_base::numbers::{count, size, time, times};

use roofgap_analyze::{Analysis, StageIndex, Trial};
use roofgap_trace::Trace;
use serde::{Deserialize, Serialize};

/// Facts about a run that a report shows beside the analysis.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// Title: a run id or the names of the inputs.
    pub title: String,
    /// Environment as name and value, in display order.
    pub environment: Vec<(String, String)>,
    /// Phases of the session; empty for a capture made elsewhere.
    pub phases: Vec<PhaseLine>,
    /// Command that reproduces the run.
    pub repeat: Option<String>,
    /// Changes of the workload that were tried; `None` where none were.
    pub trial: Option<Trial>,
}

/// Facts about a run beside its analysis, for tables of many runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunFacts {
    /// Key of the run: 32 hexadecimal digits, the same for the same content.
    pub key: String,
    /// Date in UTC, `YYYY-MM-DD`; 1970-01-01 where the input does not tell it.
    pub date: String,
    /// Start (RFC 3339, UTC).
    pub started_at: Option<String>,
    /// Id of the run directory; `None` for captures.
    pub run_id: Option<String>,
    /// Path of the input.
    pub source: String,
    /// Host; `None` where the input tells none or several.
    pub host: Option<String>,
    /// Commit of the profiled program.
    pub commit: Option<String>,
    /// True where that program had uncommitted changes.
    pub dirty: Option<bool>,
    /// First GPU of the machine.
    pub gpu: Option<String>,
    /// Version of the GPU driver.
    pub driver: Option<String>,
    /// Version of the CUDA runtime of the profiled program.
    pub cuda: Option<String>,
    /// Workload kind; `None` for captures.
    pub workload: Option<String>,
    /// Exit status of the session.
    pub exit_status: Option<u8>,
    /// Number of files that could not be read.
    pub unreadable_files: usize,
}

/// The outcome of a phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseLine {
    /// Name of the phase.
    pub name: String,
    /// `ok`, `skipped` or `failed`.
    pub status: String,
    /// Reason for a skipped or failed phase.
    pub why: Option<String>,
    /// Duration, s.
    pub seconds: Option<f64>,
}

/// The input of every exporter.
#[derive(Debug, Clone, Copy)]
pub struct Bundle<'a> {
    /// Analysis to report on.
    pub analysis: &'a Analysis,
    /// Time spans and operations of each stage of the analysis.
    pub stages: &'a StageIndex,
    /// Timeline; `None` if only the analysis was kept.
    pub trace: Option<&'a Trace>,
    /// Facts about the run.
    pub context: &'a Context,
}

/// A report file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportFile {
    /// Name in the run directory.
    pub name: &'static str,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Renders every report file of a run directory.
pub fn files(bundle: Bundle<'_>) -> Vec<ReportFile> {
    let reports = [
        ("metrics.json", json::pretty(bundle.analysis)),
        ("kernels.md", markdown::kernels(bundle)),
        ("operators.md", markdown::operators(bundle)),
        ("report.md", markdown::report(bundle)),
        ("stakeholder_summary.md", markdown::stakeholder_summary(bundle)),
        ("report.html", page::render(bundle)),
    ];
    let file = |(name, text): (&'static str, String)| ReportFile { name, bytes: text.into_bytes() };
    reports.map(file).into()
}
