//! A comparison for a terminal.

use super::view::{Size, View};
use crate::text::TextOptions;
use roofgap_analyze::compare::Comparison;
use roofgap_base::text::without_controls;
use std::fmt::Write;

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
