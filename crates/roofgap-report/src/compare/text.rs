//! A comparison for a terminal.

use super::view::{Size, View};
use crate::text::TextOptions;
use crate::view::table::plain;
use roofgap_analyze::compare::Comparison;
use std::fmt::Write;

/// Renders a comparison as text.
pub fn text(comparison: &Comparison, options: TextOptions) -> String {
    let size = Size {
        parts: options.kernels,
        kernels: options.kernels,
    };
    let view = View::of(comparison, size);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let bold = |text: &str| options.bold(&plain(text));
    if let Some(alarm) = &view.alarm {
        let _ = writeln!(out, "{}", bold(alarm));
    }
    for line in &view.differences {
        let _ = writeln!(out, "  {}", plain(line));
    }
    let (base, head) = (&comparison.base.title, &comparison.head.title);
    let _ = writeln!(out, "base {}, head {}", plain(base), plain(head));
    let _ = writeln!(out, "{}", bold(&view.headline));
    for line in &view.one_sided {
        let _ = writeln!(out, "{}", plain(line));
    }
    if !view.gates.is_empty() {
        let _ = write!(out, "\n{}\n{}", bold("Gates"), view.gates.text());
    }
    for stage in &view.stages {
        let _ = writeln!(out, "\n{}: {}", bold(&stage.name), stage.sentence);
        let _ = writeln!(out, "{}({})", stage.numbers.text(), stage.noise);
        if !stage.parts.is_empty() {
            let _ = write!(out, "\n{}", stage.parts.text());
        }
        if let Some(why) = &stage.why_no_parts {
            let _ = writeln!(out, "no breakdown of the change: {why}");
        }
        if !stage.kernels.is_empty() {
            let _ = write!(out, "\n{}", stage.kernels.text());
        }
        if stage.more_kernels > 0 {
            let _ = writeln!(out, "and {} more that changed", stage.more_kernels);
        }
        for line in &stage.renamed {
            let _ = writeln!(out, "{}", plain(line));
        }
    }
    if !view.kernels.is_empty() {
        let _ = write!(
            out,
            "\n{}\n{}",
            bold("Kernels of the whole trace"),
            view.kernels.text()
        );
    }
    for line in &view.renamed {
        let _ = writeln!(out, "{}", plain(line));
    }
    out
}
