//! `stakeholder_summary.md`: the conclusions first, then the mandatory tables and recommendations.

use super::sections;
use crate::bundle::Bundle;
use crate::view::findings as findings_view;
use crate::view::kernels::{by_time, markdown_columns, table};
use crate::view::numbers::{count, counted, percent, time};
use crate::view::provenance::{self, missing};
use crate::view::table::{capitalized, escape, escape_line};
use crate::view::{confidence, headline, measured, trial};
use roofgap_analyze::{About, Analysis, Stage, verdict};
use std::fmt::Write;

/// The most operators and kernels listed.
const TOP: usize = 10;

/// The most findings listed.
const RECOMMENDATIONS: usize = 5;

/// The most conclusions listed.
const CONCLUSIONS: usize = 10;

/// Scope of the tables of the whole capture.
const WHOLE: &str = "The whole capture, including loading and warm-up.\n\n";

/// Renders `stakeholder_summary.md`.
pub fn stakeholder_summary(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut out = format!("# Summary: {}\n\n", escape(&bundle.context.title));
    for line in first_lines(bundle) {
        let _ = writeln!(out, "{}\n", escape_line(&line));
    }
    for line in conclusions(bundle).into_iter().take(CONCLUSIONS) {
        let _ = writeln!(out, "- {line}");
    }
    let mut section = |title: &str, body: &str| {
        let _ = write!(out, "\n## {title}\n\n{body}");
    };
    section("Environment", &sections::environment(bundle));
    let aggregates = provenance::aggregates(analysis).markdown();
    section("Aggregates", &format!("{WHOLE}{aggregates}"));
    section("Per-Stage Timings", &sections::stages(analysis, false));
    if !analysis.stages.is_empty() {
        section("Per Run", &headline::rates(analysis).markdown());
    }
    if let Some(body) = sections::stage1(analysis, TOP) {
        section("Stage 1", &body);
    }
    section("MFU", &sections::utilisation(analysis));
    section("Top Operators", &sections::operators(analysis, TOP));
    section("Top Kernels", &kernels(analysis));
    section("Recommendations", &recommendations(bundle));
    out
}

fn kernels(analysis: &Analysis) -> String {
    if analysis.kernels.is_empty() || measured::alone(analysis) {
        return sections::measured_kernels(analysis, TOP);
    }
    let shown = &analysis.kernels[..analysis.kernels.len().min(TOP)];
    let table = table(analysis, shown, analysis.totals.kernel_ns);
    format!("{WHOLE}{}", table.pick(&markdown_columns(shown)).markdown())
}

fn recommendations(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut out = String::new();
    if analysis.findings.len() > 1 {
        let _ = write!(out, "{}\n\n", findings_view::SAVINGS_OVERLAP);
    }
    out.push_str(&sections::findings(bundle, RECOMMENDATIONS, false));
    match analysis.findings.len().saturating_sub(RECOMMENDATIONS) {
        _ if analysis.findings.is_empty() => {}
        0 => out.push_str("\nThe evidence is in `report.md`.\n"),
        more => {
            let more = counted(more as u64, "smaller finding");
            let _ = writeln!(out, "\nThe evidence is in `report.md`, with {more}.");
        }
    }
    out
}

/// Returns the first sentence of a text.
fn first_sentence(text: &str) -> &str {
    let end = text
        .match_indices(". ")
        .map(|(at, _)| at)
        .find(|at| text[at + 2..].starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit()));
    end.map_or(text, |at| &text[..=at])
}

/// Lists the lines for a manager: the headline, the numbers of one run, the environment, the confidence, and what was tried.
fn first_lines(bundle: Bundle<'_>) -> Vec<String> {
    let analysis = bundle.analysis;
    let mut lines: Vec<String> = headline::headline(analysis).into_iter().collect();
    lines.extend(headline::per_run(analysis).map(|line| format!("{}.", capitalized(&line))));
    lines.extend(headline::environment(bundle));
    lines.extend(confidence::line(analysis));
    let tried = bundle.context.trials.as_ref().and_then(trial::headline);
    lines.extend(tried.map(|line| format!("Tried: {line}")));
    lines
}

/// States the time of a stage: the mean of several instances.
fn each_instance(stage: &Stage) -> String {
    let elapsed = stage.elapsed_ns();
    match stage.instances {
        0 | 1 => time(elapsed),
        instances => {
            format!("{} on average of {} instances", time(elapsed / instances as i64), count(instances))
        }
    }
}

/// Lists the conclusions: what to fix first and how, the time of each stage, the top kernels, and what was not measured.
fn conclusions(bundle: Bundle<'_>) -> Vec<String> {
    let analysis = bundle.analysis;
    let mut lines = Vec::new();
    if let Some(first) = analysis.findings.first() {
        lines.push(format!("**Fix first: {}.**", escape_line(&first.title)));
        let saving = findings_view::saving_with_id(analysis, first);
        lines.push(escape_line(&format!("It {saving}.")));
        lines.push(escape_line(&format!("Next step: {}", first_sentence(&first.action))));
    } else if !analysis.stages.is_empty() {
        lines.push(escape_line(&findings_view::none_found(analysis)));
    }
    let all: i64 = analysis.stages.iter().map(Stage::elapsed_ns).sum();
    for stage in &analysis.stages {
        let verdict = verdict(stage);
        lines.push(format!(
            "{} takes {} ({} % of the stages): {}; {}.",
            escape(&stage.name),
            each_instance(stage),
            percent(stage.elapsed_ns(), all),
            verdict.label,
            verdict.why
        ));
    }
    let mut scope = " in the stages";
    if measured::alone(analysis) {
        lines.push(format!("{}.", escape_line(&capitalized(&measured::summary(analysis)))));
        let verdicts = measured::verdicts(analysis, 3);
        lines.extend(verdicts.iter().map(|line| format!("{}.", escape_line(line))));
    }
    if analysis.stages.is_empty() {
        lines.push(escape_line(&missing(analysis, &About::Stages)));
        scope = "";
    }
    let (kernels, whole) = by_time(analysis);
    if !kernels.is_empty() {
        let top = kernels.iter().take(3);
        let top = top.map(|(name, ns)| format!("{} ({} %)", escape(name), percent(*ns, whole)));
        let top: Vec<String> = top.collect();
        lines.push(format!("Most kernel time{scope}: {}.", top.join(", ")));
    }
    let sentences =
        provenance::high_overhead(analysis).into_iter().chain(provenance::incomplete_phases(bundle));
    lines.extend(sentences.map(|line| escape_line(&line)));
    lines
}

#[cfg(test)]
mod tests {
    use super::{each_instance, first_sentence};
    use roofgap_analyze::Stage;

    #[test]
    fn the_time_of_several_instances_is_their_mean() {
        let mut stage = Stage::default();
        (stage.instances, stage.wall_ns) = (3, 9_000_000);
        assert_eq!(each_instance(&stage), "3.00 ms on average of 3 instances");
        stage.instances = 1;
        assert_eq!(each_instance(&stage), "9.00 ms");
        // The steps of an engine go on after its ranges have closed.
        stage.period_ns = Some(12_000_000);
        assert_eq!(each_instance(&stage), "12.0 ms");
    }

    #[test]
    fn a_sentence_ends_where_the_next_begins() {
        assert_eq!(first_sentence("Find it (.item(), .cpu()). Keep it."), "Find it (.item(), .cpu()).");
        assert_eq!(first_sentence("Use 2.5 of them. 3 are left."), "Use 2.5 of them.");
        assert_eq!(first_sentence("Nothing more"), "Nothing more");
    }
}
