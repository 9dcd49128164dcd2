//! The comparison as a comment on a pull request: what came of it first, tables folded away.

use super::view::{Size, View};
use crate::table::escape;
use roofgap_analyze::compare::{Comparison, GateVerdict};
use std::fmt::Write;

/// The first line of every such comment, by which a later one can find and replace it.
const MARK: &str = "<!-- roofgap compare -->";

/// A comment may be this long; GitHub refuses 65,536 characters.
const LONGEST: usize = 60_000;

/// The whole document.
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
    let _ = writeln!(out, "{MARK}\n## roofgap: {}\n", escape_line(&view.headline));
    if let Some(alarm) = &view.alarm {
        let _ = writeln!(out, "> **{}**\n>", escape_line(alarm));
    }
    for line in view.differences.iter().chain(&view.unchecked) {
        let _ = writeln!(out, "> - {}", escape_line(line));
    }
    let _ = writeln!(
        out,
        "\nBase {}, head {}.",
        escape(&comparison.base.title),
        escape(&comparison.head.title)
    );
    for line in &view.one_sided {
        let _ = writeln!(out, "- {}", escape_line(line));
    }
    if !view.gates.rows.is_empty() {
        let word = match comparison.verdict() {
            GateVerdict::Held => "held",
            GateVerdict::Broken => "broken",
            GateVerdict::NotMeasured => "not all could be judged",
        };
        let _ = writeln!(out, "\n### Gates: {word}\n");
        out.push_str(&view.gates.markdown());
    }
    for stage in &view.stages {
        let _ = writeln!(
            out,
            "\n### {}\n\n{}\n",
            escape(&stage.name),
            escape_line(&stage.sentence)
        );
        out.push_str(&stage.numbers.markdown());
        let _ = writeln!(out, "\n{}.", escape_line(&stage.noise));
        if let Some(why) = &stage.why_no_parts {
            let _ = writeln!(out, "\nNo finer account: {}.", escape_line(why));
        }
        if !stage.parts.rows.is_empty() {
            fold("What the change is made of", &stage.parts.markdown(), &mut out);
        }
        if !stage.kernels.rows.is_empty() {
            let mut inside = stage.kernels.markdown();
            if stage.more_kernels > 0 {
                let _ = writeln!(inside, "\nAnd {} more that changed.", stage.more_kernels);
            }
            for line in &stage.renamed {
                let _ = writeln!(inside, "\n- renamed: {}", escape_line(line));
            }
            fold("Kernels that changed", &inside, &mut out);
        }
    }
    if let Some(kernels) = view.kernels.as_ref().filter(|grid| !grid.rows.is_empty()) {
        fold(
            "Kernels of the whole trace that changed",
            &kernels.markdown(),
            &mut out,
        );
    }
    for line in &view.renamed {
        let _ = writeln!(out, "\n- renamed: {}", escape_line(line));
    }
    out
}

fn fold(title: &str, inside: &str, out: &mut String) {
    let _ = writeln!(
        out,
        "\n<details><summary>{title}</summary>\n\n{inside}\n</details>"
    );
}

/// A sentence of ours, which may carry a name of the user's: escaped piece by piece, as a cell is cut and a sentence is not.
fn escape_line(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let piece = |chunk: &[char]| escape(&chunk.iter().collect::<String>());
    characters.chunks(90).map(piece).collect()
}
