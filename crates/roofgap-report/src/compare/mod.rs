//! A comparison for a terminal, as Markdown that fits a pull request, and as one HTML page.
//!
//! - `view`: rows and sentences that all forms render
//! - `html`: the page, with the bars of base and head

mod html;
mod view;

pub use html::html;
pub use view::headline;

use crate::render::markdown::{escape, escape_long};
use crate::text::TextOptions;
use roofgap_analyze::compare::{Comparison, GateVerdict};
use roofgap_base::text::without_controls;
use std::fmt::Write;
use view::{Size, View};

/// Renders a comparison as text.
pub fn text(comparison: &Comparison, options: TextOptions) -> String {
    let size = Size { parts: options.kernels, kernels: options.kernels };
    let view = View::of(comparison, size);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let screen = options.screen();
    let bold = |text: &str| screen.bold(&screen.wrapped(&without_controls(text), 2));
    let line = |text: &str| screen.wrapped(&without_controls(text), 2);
    if let Some(alarm) = &view.alarm {
        let _ = writeln!(out, "{}", bold(alarm));
    }
    let (base, head) = (&comparison.base.title, &comparison.head.title);
    let _ = writeln!(out, "{}", line(&format!("base {base}, head {head}")));
    let headline = bold(&view.headline);
    let _ = writeln!(out, "{}", screen.toned(&headline, view.tone));
    for difference in &view.differences {
        let _ = writeln!(out, "{}", screen.wrapped(&format!("  {}", without_controls(difference)), 2));
    }
    for sentence in &view.one_sided {
        let _ = writeln!(out, "{}", line(sentence));
    }
    if !view.gates.is_empty() {
        let _ = write!(out, "\n{}\n{}", bold("Gates"), view.gates.text(screen));
    }
    for stage in &view.stages {
        let sentence = format!("{}: {}", bold(&stage.name), stage.sentence);
        let _ = writeln!(out, "\n{}", screen.wrapped(&sentence, 2));
        let noise = line(&format!("({})", stage.noise));
        let _ = writeln!(out, "{}{noise}", stage.numbers.text(screen));
        if !stage.parts.is_empty() {
            let _ = write!(out, "\n{}", stage.parts.text(screen));
        }
        if let Some(why) = &stage.why_no_parts {
            let _ = writeln!(out, "{}", line(&format!("no breakdown of the change: {why}")));
        }
        if let Some(why) = &stage.why_no_kernels {
            let _ = writeln!(out, "{}", line(why));
        }
        if !stage.kernels.is_empty() {
            let _ = write!(out, "\n{}", stage.kernels.text(screen));
        }
        if stage.more_kernels > 0 {
            let _ = writeln!(out, "and {} more that changed", stage.more_kernels);
        }
        for renamed in &stage.renamed {
            let _ = writeln!(out, "{}", line(renamed));
        }
    }
    if !view.kernels.is_empty() {
        let _ = write!(out, "\n{}\n{}", bold("Kernels of the whole trace"), view.kernels.text(screen));
    }
    for renamed in &view.renamed {
        let _ = writeln!(out, "{}", line(renamed));
    }
    out
}

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

#[cfg(test)]
mod tests;
