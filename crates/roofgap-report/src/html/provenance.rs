//! Where the numbers come from: environment, phases, inputs, the price of watching, what was lost, what is missing.

use super::markup::{escape, escape_cut};
use crate::bundle::Bundle;
use crate::number::{NONE, count};
use std::fmt::Write;

/// The longest value of the environment.
const LONGEST: usize = 400;

/// All of it.
pub(super) fn provenance(bundle: Bundle<'_>) -> String {
    let (analysis, context) = (bundle.analysis, bundle.context);
    let mut out = String::new();
    let sources = analysis.sources.iter().map(|s| {
        [
            escape_cut(&s.path, LONGEST),
            escape(&s.format),
            s.tool_version.as_deref().map_or(NONE.into(), escape),
            s.schema_version.as_deref().map_or(NONE.into(), escape),
        ]
    });
    section(
        "Inputs",
        &["File", "Format", "Tool version", "Schema version"],
        sources,
        "No file was read: the numbers are the program's own.",
        &mut out,
    );
    let environment = context
        .environment
        .iter()
        .map(|(name, value)| [escape(name), escape_cut(value, LONGEST)]);
    section(
        "Environment",
        &["What", "Value"],
        environment,
        "Not recorded: the capture was made elsewhere.",
        &mut out,
    );
    let phases = context.phases.iter().map(|p| {
        [
            escape(&p.name),
            format!(
                "<span class=\"status {}\">{}</span>",
                escape(&p.status),
                escape(&p.status)
            ),
            p.seconds.map_or(NONE.into(), |s| format!("{s:.1} s")),
            p.why.as_deref().map_or(String::new(), |w| escape_cut(w, 1000)),
        ]
    });
    section(
        "Phases",
        &["Phase", "Status", "Time", "Why"],
        phases,
        "None: this is no session but a capture made elsewhere.",
        &mut out,
    );
    let overhead = analysis.overhead.iter().map(|o| {
        let ratio = format!("{:.2}", o.ratio);
        let advice = if o.ratio > 1.25 {
            "read these times with care"
        } else {
            ""
        };
        [
            escape(o.tool.as_str()),
            escape(&o.stage),
            ratio,
            advice.to_owned(),
        ]
    });
    section(
        "Price of watching",
        &["Tool", "Stage", "Watched / unwatched", ""],
        overhead,
        "Not known: there is no unwatched run to compare with.",
        &mut out,
    );
    let losses = analysis.losses.iter().map(|l| {
        [
            escape(&l.id),
            escape(&l.severity),
            count(l.count),
            escape(&l.meaning),
        ]
    });
    section(
        "What was lost",
        &["Loss", "Severity", "Count", "What it means"],
        losses,
        "Nothing that the readers could tell.",
        &mut out,
    );
    let reasons = analysis
        .reasons
        .iter()
        .map(|r| [escape(&r.about.to_string()), escape(&r.why)]);
    section(
        "What is missing or stands in",
        &["What", "Why"],
        reasons,
        "Nothing.",
        &mut out,
    );
    if let Some(command) = &context.repeat {
        // Line ends of a command are kept; every line is escaped.
        let lines: Vec<String> = command.lines().map(escape).collect();
        let _ = write!(out, "<h3>Again</h3><pre>{}</pre>", lines.join("\n"));
    }
    out
}

/// A heading and a table whose cells are HTML already, or a sentence for an empty one.
fn section<const N: usize>(
    title: &str,
    columns: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
    empty: &str,
    out: &mut String,
) {
    let _ = write!(out, "<h3>{title}</h3>");
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        let _ = write!(out, "<p class=\"absent\">{empty}</p>");
        return;
    }
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for column in columns {
        let _ = write!(out, "<th>{column}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<td>{cell}</td>");
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}
