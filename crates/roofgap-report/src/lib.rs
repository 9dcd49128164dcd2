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

pub use document::findings::{Derivation, DerivationRow, derivations, prediction};
pub use document::headline::{headline, main_stage};
pub use document::serving::requests_text;
pub use document::trial::tried_text;
pub use export::ExportError;
pub use render::screen::{Screen, Tone, columns};
pub use render::{markdown, text};
pub use roofgap_base::numbers::{count, size, time, times};

use roofgap_analyze::{About, Analysis, Kernel, Reason, StageIndex, Trial};
use roofgap_base::numbers::counted;
use roofgap_trace::Trace;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

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

/// Accepts or refuses the name of a kernel.
pub type NameFilter = Box<dyn Fn(&str) -> bool>;

/// Order of kernels in a table.
pub type KernelOrder = fn(&Kernel, &Kernel) -> Ordering;

/// The part of an analysis that is shown.
#[derive(Default)]
pub struct Selection {
    /// The only stage; `None` for all.
    pub stage: Option<String>,
    /// Kernels, by their full or short name; `None` for all.
    pub kernel: Option<NameFilter>,
    /// Order of the kernels; `None` for that of the analysis: by total time.
    pub order: Option<KernelOrder>,
}

impl Selection {
    /// Returns the selected part of an analysis. Totals stay those of the whole.
    pub fn of(&self, analysis: &Analysis) -> Analysis {
        let mut part = analysis.clone();
        if let Some(stage) = &self.stage {
            part.stages.retain(|row| row.name == *stage);
            part.findings.retain(|finding| finding.stage.as_ref() == Some(stage));
            part.counters.retain(|row| row.stage.as_ref() == Some(stage));
            part.layers.retain(|row| row.stage == *stage);
            part.reasons.retain(|reason| match &reason.about {
                About::StageMfu(name) | About::StageMbu(name) => name == stage,
                _ => true,
            });
            for rank in &mut part.ranks {
                rank.utilisation.retain(|row| row.stage == *stage);
            }
            if let Some(job) = &mut part.job {
                job.utilisation.retain(|row| row.stage == *stage);
                job.stragglers.retain(|row| row.stage.as_ref() == Some(stage));
                job.experts.retain(|row| row.stage.as_ref() == Some(stage));
            }
        }
        if let Some(matches) = &self.kernel {
            let accepted = |kernel: &Kernel| matches(&kernel.name) || matches(&kernel.short_name);
            part.kernels.retain(accepted);
            part.stages.iter_mut().for_each(|stage| stage.kernels.retain(accepted));
            part.counters.retain(|row| matches(&row.kernel));
            if part.kernels.is_empty() && !analysis.kernels.is_empty() {
                let all = counted(analysis.kernels.len() as u64, "kernel");
                let why = format!("none of the {all} of the input matches the pattern");
                part.reasons.retain(|reason| reason.about != About::Kernels);
                part.reasons.push(Reason::new(About::Kernels, why));
            }
        }
        self.sort(&mut part.kernels);
        part.stages.iter_mut().for_each(|stage| self.sort(&mut stage.kernels));
        part
    }

    fn sort(&self, kernels: &mut [Kernel]) {
        if let Some(order) = self.order {
            kernels.sort_by(order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{Job, LayerRow, RankInfo, Stage, StageUtilisation, Straggler};

    fn kernel(name: &str, calls: u64, mean_ns: i64) -> Kernel {
        Kernel {
            name: format!("void {name}<float>()"),
            short_name: name.to_owned(),
            calls,
            mean_ns,
            total_ns: mean_ns * calls as i64,
            ..Kernel::default()
        }
    }

    fn analysis() -> Analysis {
        let mut analysis = Analysis::default();
        analysis.kernels = vec![kernel("gemm", 2, 500), kernel("copy", 9, 10), kernel("norm", 3, 20)];
        for name in ["prefill", "decode"] {
            let mut stage = Stage::default();
            (stage.name, stage.kernels) = (name.to_owned(), analysis.kernels.clone());
            analysis.stages.push(stage);
        }
        analysis
    }

    fn names(kernels: &[Kernel]) -> Vec<&str> {
        kernels.iter().map(|kernel| kernel.short_name.as_str()).collect()
    }

    #[test]
    fn reasons_of_other_stages_are_left_out() {
        let mut analysis = analysis();
        let reason = |stage: &str| Reason::new(About::StageMfu(stage.to_owned()), "no tokens");
        analysis.reasons = vec![reason("prefill"), reason("decode")];
        let only = Selection { stage: Some("decode".to_owned()), ..Selection::default() };
        assert_eq!(only.of(&analysis).reasons, [reason("decode")]);
    }

    #[test]
    fn a_pattern_without_a_match_is_the_reason_for_no_kernels() {
        let none = Selection { kernel: Some(Box::new(|_| false)), ..Selection::default() };
        let part = none.of(&analysis());
        assert_eq!(
            crate::document::provenance::missing(&part, &About::Kernels),
            "No kernels: none of the 3 kernels of the input matches the pattern."
        );
        assert_eq!(none.of(&Analysis::default()).reasons, []);
    }

    #[test]
    fn a_stage_and_kernels_are_selected_and_sorted() {
        let selection = Selection {
            stage: Some("decode".to_owned()),
            kernel: Some(Box::new(|name| name.contains("o"))),
            order: Some(|a, b| b.calls.cmp(&a.calls)),
        };
        let part = selection.of(&analysis());
        assert_eq!(part.stages.len(), 1);
        // "gemm" matches by its full name, which has "float" and "void".
        assert_eq!(names(&part.stages[0].kernels), ["copy", "norm", "gemm"]);
        let only =
            Selection { kernel: Some(Box::new(|name| name.starts_with("norm"))), ..Selection::default() };
        assert_eq!(names(&only.of(&analysis()).kernels), ["norm"]);
        assert_eq!(only.of(&analysis()).stages.len(), 2);
    }

    #[test]
    fn parts_of_other_stages_are_left_out() {
        let mut all = analysis();
        let stages = ["prefill", "decode"].map(str::to_owned);
        all.layers = stages.clone().map(|stage| LayerRow { stage, ..LayerRow::default() }).into();
        let utilisation =
            stages.clone().map(|stage| StageUtilisation { stage, ..StageUtilisation::default() });
        all.ranks = vec![RankInfo { utilisation: utilisation.clone().into(), ..RankInfo::default() }];
        let stragglers = stages.map(|stage| Straggler { stage: Some(stage), ..Straggler::default() });
        all.job =
            Some(Job { utilisation: utilisation.into(), stragglers: stragglers.into(), ..Job::default() });
        let selection = Selection { stage: Some("decode".to_owned()), ..Selection::default() };
        let part = selection.of(&all);
        let job = part.job.as_ref().unwrap();
        let left = [&part.layers[0].stage, &part.ranks[0].utilisation[0].stage];
        assert_eq!(left, ["decode"; 2]);
        assert_eq!((part.layers.len(), part.ranks[0].utilisation.len()), (1, 1));
        assert_eq!((job.utilisation.len(), job.stragglers.len()), (1, 1));
        assert_eq!(job.stragglers[0].stage.as_deref(), Some("decode"));
    }

    #[test]
    fn kernels_are_sorted_where_asked_for() {
        let sorted = |order| {
            let selection = Selection { order, ..Selection::default() };
            let part = selection.of(&analysis());
            assert_eq!(names(&part.kernels), names(&part.stages[0].kernels));
            names(&part.kernels).join(" ")
        };
        assert_eq!(sorted(None), "gemm copy norm");
        assert_eq!(sorted(Some(|a, b| b.mean_ns.cmp(&a.mean_ns))), "gemm norm copy");
    }
}
