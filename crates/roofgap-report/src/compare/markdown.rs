//! A comparison as a comment on a pull request: the conclusion first, tables folded.

use super::view::{Size, View};
use crate::render::markdown::{escape, escape_long};
use roofgap_analyze::compare::{Comparison, GateVerdict};
use std::fmt::Write;

/// First line of every such comment, by which a later run finds and replaces it.
const MARK: &str = "<!-- roofgap compare -->";

/// The longest comment, in characters; GitHub rejects 65,536.
const LONGEST: usize = 60_000;

/// Renders a comparison as Markdown, with fewer rows if it is too long for a comment.
pub fn markdown(comparison: &Comparison) -> String {
    for (parts, kernels) in [(12, 15), (6, 5), (3, 0)] {
        let text = document(comparison, Size { parts, kernels });
        if text.chars().count() <= LONGEST {
            return text;
        }
    }
    let text = document(comparison, Size { parts: 0, kernels: 0 });
    text.chars().take(LONGEST).collect()
}

fn document(comparison: &Comparison, size: Size) -> String {
    let view = View::of(comparison, size);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{MARK}\n## roofgap: {}\n", escape_long(&view.headline));
    if let Some(alarm) = &view.alarm {
        let _ = writeln!(out, "> **{}**\n>", escape_long(alarm));
    }
    for line in &view.differences {
        let _ = writeln!(out, "> - {}", escape_long(line));
    }
    let (base, head) = (escape(&comparison.base.title), escape(&comparison.head.title));
    let _ = writeln!(out, "\nBase {base}, head {head}.");
    for line in &view.one_sided {
        let _ = writeln!(out, "- {}", escape_long(line));
    }
    if !view.gates.is_empty() {
        let word = match comparison.verdict() {
            GateVerdict::Held => "held",
            GateVerdict::Broken => "broken",
            GateVerdict::NotMeasured => "some not measured",
        };
        let _ = write!(out, "\n### Gates: {word}\n\n{}", view.gates.markdown());
    }
    for stage in &view.stages {
        let (name, sentence) = (escape(&stage.name), escape_long(&stage.sentence));
        let _ = writeln!(out, "\n### {name}\n\n{sentence}\n");
        let _ = writeln!(out, "{}\n{}.", stage.numbers.markdown(), escape_long(&stage.noise));
        if let Some(why) = &stage.why_no_parts {
            let _ = writeln!(out, "\nNo breakdown of the change: {}.", escape_long(why));
        }
        if let Some(why) = &stage.why_no_kernels {
            let _ = writeln!(out, "\nNote: {}.", escape_long(why));
        }
        if !stage.parts.is_empty() {
            fold("Breakdown of the change", &stage.parts.markdown(), &mut out);
        }
        if !stage.kernels.is_empty() {
            let mut inside = stage.kernels.markdown();
            if stage.more_kernels > 0 {
                let _ = writeln!(inside, "\nAnd {} more that changed.", stage.more_kernels);
            }
            for line in &stage.renamed {
                let _ = writeln!(inside, "\n- {}", escape_long(line));
            }
            fold("Kernels that changed", &inside, &mut out);
        }
    }
    if !view.kernels.is_empty() {
        fold("Kernels of the whole trace that changed", &view.kernels.markdown(), &mut out);
    }
    for line in &view.renamed {
        let _ = writeln!(out, "\n- {}", escape_long(line));
    }
    out
}

fn fold(title: &str, inside: &str, out: &mut String) {
    let _ = writeln!(out, "\n<details><summary>{title}</summary>\n\n{inside}\n</details>");
}
