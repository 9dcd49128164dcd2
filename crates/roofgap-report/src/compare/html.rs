//! The comparison as one HTML page that needs nothing else.

use super::view::{Size, StageView, View};
use crate::html::markup::escape;
use roofgap_analyze::compare::Comparison;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub fn html(comparison: &Comparison) -> String {
    let size = Size {
        parts: 24,
        kernels: 200,
    };
    let view = View::of(comparison, size);
    let title = format!("{} against {}", comparison.head.title, comparison.base.title);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>roofgap: {}</title><style>{STYLE}</style></head><body><main>\n<h1>{}</h1>\n",
        escape(&title),
        escape(&view.headline)
    );
    let _ = writeln!(
        out,
        "<p>base <b>{}</b>, head <b>{}</b></p>",
        escape(&comparison.base.title),
        escape(&comparison.head.title)
    );
    if let Some(alarm) = &view.alarm {
        let _ = writeln!(out, "<p class=alarm>{}</p>", escape(alarm));
    }
    list(
        view.differences
            .iter()
            .chain(&view.unchecked)
            .chain(&view.one_sided),
        &mut out,
    );
    if !view.gates.rows.is_empty() {
        let _ = writeln!(out, "<h2>Gates</h2>{}", view.gates.html());
    }
    for view in &view.stages {
        stage(view, &mut out);
    }
    if let Some(kernels) = view.kernels.as_ref().filter(|grid| !grid.rows.is_empty()) {
        let _ = writeln!(
            out,
            "<h2>Kernels of the whole trace that changed</h2>{}",
            kernels.html()
        );
    }
    list(view.renamed.iter(), &mut out);
    out.push_str("</main></body></html>\n");
    out
}

fn stage(stage: &StageView, out: &mut String) {
    let _ = writeln!(
        out,
        "<h2>{}</h2><p>{}</p>{}<p class=small>{}</p>",
        escape(&stage.name),
        escape(&stage.sentence),
        stage.numbers.html(),
        escape(&stage.noise)
    );
    if let Some(why) = &stage.why_no_parts {
        let _ = writeln!(out, "<p>No finer account: {}</p>", escape(why));
    }
    if !stage.bars.is_empty() {
        out.push_str("<h3>What the change of wall time is the sum of</h3>");
        bars(&stage.bars, out);
    }
    if !stage.kernels.rows.is_empty() {
        let _ = writeln!(out, "<h3>Kernels that changed</h3>{}", stage.kernels.html());
    }
    list(stage.renamed.iter(), out);
}

/// Bars to the left (less) and to the right (more) of a middle line.
fn bars(parts: &[(String, i64)], out: &mut String) {
    let widest = parts
        .iter()
        .map(|part| part.1.unsigned_abs())
        .max()
        .unwrap_or(1)
        .max(1);
    out.push_str("<table class=bars><tbody>");
    for (name, delta) in parts {
        let width = 50.0 * delta.unsigned_abs() as f64 / widest as f64;
        let (left, class) = if *delta < 0 {
            (50.0 - width, "less")
        } else {
            (50.0, "more")
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=n>{:+.3} ms</td><td class=bar><i class={class} style=\"left:{left:.2}%;width:{width:.2}%\"></i></td></tr>",
            escape(name),
            *delta as f64 / 1e6
        );
    }
    let sum: i64 = parts.iter().map(|part| part.1).sum();
    let _ = writeln!(
        out,
        "<tr class=sum><td>sum: the change of wall time</td><td class=n>{:+.3} ms</td><td></td></tr></tbody></table>",
        sum as f64 / 1e6
    );
}

fn list<'a>(lines: impl Iterator<Item = &'a String>, out: &mut String) {
    let items: String = lines.map(|line| format!("<li>{}</li>", escape(line))).collect();
    if !items.is_empty() {
        let _ = writeln!(out, "<ul>{items}</ul>");
    }
}
