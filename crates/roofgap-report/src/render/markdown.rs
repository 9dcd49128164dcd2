//! Documents in Markdown: `report.md`, `stakeholder_summary.md`, `kernels.md` and `operators.md`.

use super::screen::align;
use crate::Bundle;
use crate::document::table::Table;
use crate::document::{Block, Document, Form, Item, KERNELS, Section};
use roofgap_base::numbers::count;
use roofgap_base::text::{cut, lines_without_controls, without_controls};
use std::fmt::Write;

/// The longest cell of a table, in characters.
const CELL: usize = 100;

/// The longest full name of a kernel, in characters.
const FULL_NAME: usize = 400;

/// Renders `report.md`: every result, and how the numbers were obtained.
pub fn report(bundle: Bundle<'_>) -> String {
    document("Report", &bundle.context.title, &Document::of(bundle, Form::Report).sections())
}

/// Renders `stakeholder_summary.md`: one page for readers who decide.
pub fn stakeholder_summary(bundle: Bundle<'_>) -> String {
    let page = Document::of(bundle, Form::Report);
    document("Summary", &page.summary_title(), &page.for_stakeholders())
}

/// Renders `kernels.md`: every kernel by total time, then the full names.
pub fn kernels(bundle: Bundle<'_>) -> String {
    let listed = Document::of(bundle, Form::List);
    let mut out = document("Kernels", &bundle.context.title, &[listed.all_kernels()]);
    if listed.has_timeline_kernels() {
        out.push_str("\n## Full names\n\n");
        let shown = bundle.analysis.kernels.iter().take(KERNELS);
        for kernel in shown.filter(|kernel| kernel.name != kernel.short_name) {
            let full = escape_long(&cut(&kernel.name, FULL_NAME));
            let _ = writeln!(out, "- {}: {full}", escape(&kernel.short_name));
        }
    }
    out
}

/// Renders `operators.md`: operators by own GPU time, then own CPU time, then those of a Stage 1 runner.
pub fn operators(bundle: Bundle<'_>) -> String {
    let listed = Document::of(bundle, Form::List);
    document("Operators", &bundle.context.title, &[listed.operators().titled(""), listed.stage1()])
}

/// Renders sections below a title.
fn document(kind: &str, title: &str, sections: &[Section]) -> String {
    let mut out = format!("# {kind}: {}\n", escape(title));
    for section in sections.iter().filter(|section| !section.blocks.is_empty()) {
        if !section.title.is_empty() {
            let _ = write!(out, "\n## {}\n", escape(&section.title));
        }
        for text in section.blocks.iter().map(block).filter(|text| !text.is_empty()) {
            let _ = write!(out, "\n{text}");
        }
    }
    out
}

/// Renders a piece of a section.
pub fn block(block: &Block) -> String {
    match block {
        Block::Line(text) | Block::Note(text) | Block::Missing(text) => format!("{}\n", escape_line(text)),
        Block::List(items) => items.iter().map(|item| list_item(item, "-")).collect(),
        Block::Steps(items) => {
            items.iter().zip(1..).map(|(item, i)| list_item(item, &format!("{i}."))).collect()
        }
        Block::Table(table) => table.markdown(),
        Block::Rest { all, shown, what } => {
            format!("{} more{what} are in `metrics.json`.\n", count((all - shown) as u64))
        }
        Block::Code(code) => format!("```sh\n{}\n```\n", lines_without_controls(code).replace("```", "'''")),
        Block::Markdown(text) => text.clone(),
        Block::Drawing => String::new(),
    }
}

fn list_item(item: &Item, mark: &str) -> String {
    let mut out = format!("{mark} ");
    if !item.name.is_empty() {
        let _ = write!(out, "**{}**", escape_line(&item.name));
    }
    if let Some((word, _)) = item.word {
        let _ = write!(out, ": {word}");
    }
    let _ = writeln!(out, "{}", escape_line(&item.text));
    let indent = " ".repeat(mark.len() + 1);
    for line in &item.lines {
        let _ = writeln!(out, "{indent}- {}", escape_line(line));
    }
    out
}

impl Table {
    /// Renders the table as Markdown that is aligned in the source too. Cells are escaped and cut.
    pub(crate) fn markdown(&self) -> String {
        let mut lines = self.lines(escape);
        align(&self.headings, &mut lines);
        let rule = lines.first().into_iter().flatten().zip(&self.headings).map(|(cell, heading)| {
            let width = cell.chars().count();
            if heading.numeric { format!("{}:", "-".repeat(width - 1)) } else { "-".repeat(width) }
        });
        let rule = rule.collect();
        lines.insert(1, rule);
        lines.iter().map(|line| format!("| {} |\n", line.join(" | "))).collect()
    }
}

/// Escapes text for any place of a Markdown document and cuts it to the size of a cell.
pub fn escape(text: &str) -> String {
    escape_long(&cut(text, CELL))
}

/// Escapes text for any place of a Markdown document.
pub fn escape_long(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in without_controls(text).chars() {
        match c {
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '~' | '#' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c => out.push(c),
        }
    }
    out
}

/// Escapes a sentence of a Markdown document: markup and tags only, so that the source stays readable.
pub fn escape_line(text: &str) -> String {
    let mut text = without_controls(text).replace('&', "&amp;").replace('<', "&lt;");
    for mark in ["|", "`", "*"] {
        text = text.replace(mark, &format!("\\{mark}"));
    }
    text
}
