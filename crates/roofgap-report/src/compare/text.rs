//! The comparison for a terminal.

use super::view::{Size, View};
use crate::table::plain;
use crate::text::Look;
use roofgap_analyze::compare::Comparison;
use std::fmt::Write;

/// The whole text.
pub fn text(comparison: &Comparison, look: Look) -> String {
    let view = View::of(
        comparison,
        Size {
            parts: look.kernels,
            kernels: look.kernels,
        },
    );
    let mut out = String::new();
    // Writing to a string cannot fail.
    let bold = |text: &str| {
        if look.color {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    };
    if let Some(alarm) = &view.alarm {
        let _ = writeln!(out, "{}", bold(&plain(alarm)));
    }
    for line in view.differences.iter().chain(&view.unchecked) {
        let _ = writeln!(out, "  {}", plain(line));
    }
    let _ = writeln!(
        out,
        "base {}, head {}",
        plain(&comparison.base.title),
        plain(&comparison.head.title)
    );
    let _ = writeln!(out, "{}", bold(&plain(&view.headline)));
    for line in &view.one_sided {
        let _ = writeln!(out, "{}", plain(line));
    }
    if !view.gates.rows.is_empty() {
        let _ = writeln!(out, "\n{}", bold("Gates"));
        out.push_str(&view.gates.text());
    }
    for stage in &view.stages {
        let _ = writeln!(out, "\n{}: {}", bold(&plain(&stage.name)), stage.sentence);
        out.push_str(&stage.numbers.text());
        let _ = writeln!(out, "({})", stage.noise);
        if !stage.parts.rows.is_empty() {
            out.push('\n');
            out.push_str(&stage.parts.text());
        }
        if let Some(why) = &stage.why_no_parts {
            let _ = writeln!(out, "no finer account: {why}");
        }
        if !stage.kernels.rows.is_empty() {
            out.push('\n');
            out.push_str(&stage.kernels.text());
        }
        if stage.more_kernels > 0 {
            let _ = writeln!(out, "and {} more that changed", stage.more_kernels);
        }
        for line in &stage.renamed {
            let _ = writeln!(out, "renamed: {}", plain(line));
        }
    }
    if let Some(kernels) = view.kernels.as_ref().filter(|grid| !grid.rows.is_empty()) {
        let _ = writeln!(out, "\n{}", bold("Kernels of the whole trace"));
        out.push_str(&kernels.text());
    }
    for line in &view.renamed {
        let _ = writeln!(out, "renamed: {}", plain(line));
    }
    out
}
