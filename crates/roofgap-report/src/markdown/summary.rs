//! `stakeholder_summary.md`: what someone who decides needs, first things first.

use super::sections::{self, escape_line, reason};
use super::{kernels, operators};
use crate::bundle::Bundle;
use crate::number::{ms, percent, plural};
use crate::table::escape;
use crate::text::nothing_found;
use roofgap_analyze::{About, verdict};
use std::fmt::Write;

/// How many operators and kernels the summary lists.
const TOP: usize = 10;

/// How many findings it tells.
const RECOMMENDED: usize = 5;

/// Executive summary, the mandatory tables, then the narrative.
pub fn stakeholder_summary(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut out = format!("# Summary: {}\n\n", escape(&bundle.context.title));
    for line in executive(bundle).into_iter().take(10) {
        let _ = writeln!(out, "- {line}");
    }
    let _ = write!(out, "\n## Environment\n\n{}", sections::environment(bundle));
    let _ = write!(
        out,
        "\n## Aggregates\n\nThe whole capture, loading and warm-up included.\n\n{}",
        sections::aggregates(bundle)
    );
    let _ = write!(
        out,
        "\n## Per-Stage Timings\n\n{}",
        sections::stages(bundle, false)
    );
    let _ = write!(out, "\n## MFU\n\n{}", sections::utilisation(bundle));
    out.push_str("\n## Top Operators\n\n");
    if analysis.operators.is_empty() {
        let _ = writeln!(
            out,
            "No operators: {}.",
            reason(analysis, &About::Operators, "none were recorded")
        );
    } else {
        out.push_str(&operators::table(&analysis.operators[..analysis.operators.len().min(TOP)]).markdown());
    }
    out.push_str("\n## Top Kernels\n\n");
    if analysis.kernels.is_empty() {
        let _ = writeln!(
            out,
            "No kernels: {}.",
            reason(analysis, &About::Kernels, "the run recorded no kernels")
        );
    } else {
        out.push_str("The whole capture, loading and warm-up included.\n\n");
        let shown = &analysis.kernels[..analysis.kernels.len().min(TOP)];
        out.push_str(&kernels::table(bundle, shown, analysis.totals.kernel_ns).markdown());
    }
    out.push_str("\n## Recommendations\n\n");
    if analysis.findings.len() > 1 {
        out.push_str("Each saving is a ceiling by itself; they overlap and do not add up.\n\n");
    }
    out.push_str(&sections::findings(bundle, RECOMMENDED, false));
    match analysis.findings.len().saturating_sub(RECOMMENDED) {
        _ if analysis.findings.is_empty() => {}
        0 => out.push_str("\nThe evidence is in `report.md`.\n"),
        more => {
            let more = plural(more as u64, "finding");
            let _ = writeln!(
                out,
                "\nThe evidence is in `report.md`, with {more} of less weight."
            );
        }
    }
    out
}

/// The first sentence of a text.
fn first_sentence(text: &str) -> &str {
    let end = text
        .match_indices(". ")
        .map(|(at, _)| at)
        .find(|at| text[at + 2..].starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit()));
    end.map_or(text, |at| &text[..=at])
}

/// The lines on top: where the time goes, why, and what to do first.
fn executive(bundle: Bundle<'_>) -> Vec<String> {
    let analysis = bundle.analysis;
    let mut lines = Vec::new();
    if let Some(first) = analysis.findings.first() {
        lines.push(format!(
            "**Fix first: {}.** {}",
            escape_line(&first.title),
            escape_line(first_sentence(&first.action))
        ));
        let stage = first
            .stage
            .as_deref()
            .map(|s| format!(" of {}", escape(s)))
            .unwrap_or_default();
        lines.push(format!(
            "It can save at most {} ms, {:.0} % of the time{stage}.",
            ms(first.bound_ns),
            first.bound_pct
        ));
    } else if !analysis.stages.is_empty() {
        lines.push(escape_line(&nothing_found(analysis)));
    }
    let wall: i64 = analysis.stages.iter().map(|s| s.wall_ns).sum();
    for stage in &analysis.stages {
        let verdict = verdict(stage);
        lines.push(format!(
            "{} takes {} ms ({} % of the stages): {}; {}.",
            escape(&stage.name),
            ms(stage.wall_ns),
            percent(stage.wall_ns, wall),
            verdict.label,
            verdict.why
        ));
    }
    if analysis.stages.is_empty() {
        lines.push(format!(
            "No stages: {}.",
            escape_line(reason(analysis, &About::Stages, "none were found"))
        ));
    }
    let (kernels, whole) = stage_kernels(bundle);
    let top: Vec<String> = kernels
        .iter()
        .take(3)
        .map(|(name, ns)| format!("{} ({} %)", escape(name), percent(*ns, whole)))
        .collect();
    if !top.is_empty() {
        let place = if analysis.stages.is_empty() {
            ""
        } else {
            " in the stages"
        };
        lines.push(format!("Most kernel time{place}: {}.", top.join(", ")));
    }
    for o in analysis.overhead.iter().filter(|o| o.ratio > 1.25) {
        lines.push(format!(
            "Watching with {} made {} {:.2} times as long; read its times with care.",
            escape(o.tool.as_str()),
            escape(&o.stage),
            o.ratio
        ));
    }
    for phase in bundle
        .context
        .phases
        .iter()
        .filter(|p| p.status == "skipped" || p.status == "failed")
    {
        let why = phase.why.as_deref().unwrap_or("no reason given");
        lines.push(format!(
            "Not measured: {} {}: {}.",
            escape(&phase.name),
            phase.status,
            escape_line(why)
        ));
    }
    lines
}

/// Kernels of all stages by time, with their sum; of the whole capture where there are no stages.
fn stage_kernels(bundle: Bundle<'_>) -> (Vec<(&str, i64)>, i64) {
    let analysis = bundle.analysis;
    let own: Vec<_> = analysis.stages.iter().flat_map(|s| &s.kernels).collect();
    let rows = if own.is_empty() {
        analysis.kernels.iter().collect()
    } else {
        own
    };
    let mut sums: Vec<(&str, i64)> = Vec::new();
    for kernel in rows {
        match sums.iter_mut().find(|(name, _)| *name == kernel.short_name) {
            Some((_, ns)) => *ns += kernel.total_ns,
            None => sums.push((&kernel.short_name, kernel.total_ns)),
        }
    }
    sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let whole = sums.iter().map(|(_, ns)| ns).sum();
    (sums, whole)
}

#[cfg(test)]
mod tests {
    use super::first_sentence;

    #[test]
    fn a_sentence_ends_where_the_next_begins() {
        assert_eq!(
            first_sentence("Find it (.item(), .cpu()). Keep it."),
            "Find it (.item(), .cpu())."
        );
        assert_eq!(first_sentence("Use 2.5 of them. 3 are left."), "Use 2.5 of them.");
        assert_eq!(first_sentence("Nothing more"), "Nothing more");
    }
}
