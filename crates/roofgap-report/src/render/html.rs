//! Documents as HTML, and the shell of every page. Characters from a capture never become markup.

use crate::document::table::Table;
use crate::document::{Block, Section, capitalized};
use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use roofgap_base::numbers::count;
use roofgap_base::text::{add_base64, base64, cut, is_harmless, lines_without_controls};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Styles of the report, which the other pages share.
pub const STYLE: &str = include_str!("../page/style.css");

/// The longest cell of a table, in characters.
const CELL: usize = 1000;

/// The parts of a page that differ from page to page.
#[derive(Debug, Default)]
pub struct Shell<'a> {
    /// Title, before the name of the program.
    pub title: &'a str,
    /// Style sheets.
    pub styles: &'a [&'a str],
    /// Content, in which invisible characters are replaced.
    pub body: Markup,
    /// Data for the script, as elements after the content: id, type and text.
    pub data: &'a [(&'a str, &'a str, Data<'a>)],
    /// The only script that the browser may run.
    pub script: Option<&'a str>,
    /// The script asks the server that gave the page.
    pub asks_server: bool,
    /// Seconds after which the browser loads the page again.
    pub refresh: Option<u32>,
}

/// Data for a script.
#[derive(Debug)]
pub enum Data<'a> {
    Text(&'a str),
    /// Bytes, which the page has in base64.
    Bytes(&'a [u8]),
}

impl Render for Data<'_> {
    fn render_to(&self, page: &mut String) {
        match self {
            Self::Text(text) => page.push_str(text),
            Self::Bytes(bytes) => {
                // With room for the scripts, so that the page is not moved for them.
                page.reserve(bytes.len() / 3 * 4 + (1 << 18));
                add_base64(bytes, page);
            }
        }
    }
}

/// Renders a page that needs no network.
pub fn shell(shell: &Shell<'_>) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy(shell.script, shell.asks_server));
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                @if let Some(seconds) = shell.refresh { meta http-equiv="refresh" content=(seconds); }
                title { (lines_without_controls(shell.title)) " · roofgap" }
                link rel="icon" href="data:,";
                style { @for style in shell.styles { (PreEscaped(style)) } }
            }
            body {
                (PreEscaped(lines_without_controls(&shell.body.0)))
                @for (id, kind, text) in shell.data { script type=(kind) id=(id) { (text) } "
    " }
                @if let Some(script) = shell.script { script { (PreEscaped(script)) } }
            }
        }
        "\n"
    }
    .into_string()
}

/// Returns the policy of a page: it loads nothing, and runs no script but its own, which may ask the server of the page or nobody.
pub fn policy(script: Option<&str>, asks_server: bool) -> String {
    let mut policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:".to_owned();
    if let Some(script) = script {
        let _ = write!(policy, "; script-src 'sha256-{}'", base64(&Sha256::digest(script)));
    }
    policy + if asks_server { "; connect-src 'self'" } else { "" }
}

/// Renders sections. `drawing` makes the drawing of a section, if it has one.
pub fn sections(sections: &[Section], mut drawing: impl FnMut(&str) -> Option<Markup>) -> Markup {
    let parts: Vec<&[Section]> = sections.chunk_by(|_, next| next.inner).collect();
    html! {
        @for part in parts {
            section id=[Some(part[0].id).filter(|id| !id.is_empty())] {
                @for section in part {
                    @if section.inner { h3 { (section.title) } } @else { h2 { (section.title) } }
                    @for block in &section.blocks { (markup(block, section.id, &mut drawing)) }
                }
            }
            "\n"
        }
    }
}

fn markup(block: &Block, id: &str, drawing: &mut impl FnMut(&str) -> Option<Markup>) -> Markup {
    html! {
        @match block {
            Block::Line(text) => p { (text) },
            Block::Note(text) => p.hint { (text) },
            Block::Missing(text) => (absent(text)),
            Block::List(items) | Block::Steps(items) => ul { @for item in items {
                li { @if !item.name.is_empty() { b { (item.name) } } (cut(&item.text, CELL)) }
            } },
            Block::Table(table) => (table.html()),
            Block::Rest { all, shown, what } => p.hint { (count((all - shown) as u64)) " more" (what) " are in metrics.json." },
            Block::Code(code) => pre { (code) },
            Block::Markdown(_) => {},
            Block::Drawing => { @if let Some(drawing) = drawing(id) { (drawing) } },
        }
    }
}

impl Table {
    /// Renders the table as HTML. A status has a class of its own.
    pub(crate) fn html(&self) -> Markup {
        let content = |name: &str, cell: &str| {
            let cell = cut(cell, CELL);
            html! { @if name == "status" { span class={ "status " (cell) } { (cell) } } @else { (cell) } }
        };
        html! {
            div.scroll { table {
                thead { tr { @for h in &self.headings { th class=[h.class()] { (capitalized(&h.name)) } } } }
                tbody { @for (at, row) in self.rows.iter().enumerate() { tr class=[self.notes.contains(&at).then_some("note")] {
                    @for (i, (h, cell)) in self.headings.iter().zip(row).enumerate() {
                        @if i == 0 { th scope="row" { (content(&h.name, cell)) } }
                        @else { td class=[h.class()] { (content(&h.name, cell)) } }
                    }
                } } }
            } }
        }
    }
}

/// Renders a sentence on a missing part.
pub fn absent(sentence: &str) -> Markup {
    html! { p.absent { (sentence) } }
}

/// Serializes a value as JSON that can stand in a script element: nothing in it ends the element or a line of script.
pub fn script_json(value: &impl serde::Serialize) -> String {
    // Plain data always serializes; the script of the page would notice an empty object.
    let json = serde_json::to_string(value).unwrap_or_else(|_| "{}".into());
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        match c {
            c if matches!(c, '<' | '>' | '&') || !is_harmless(c) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_becomes_markup() {
        let json = script_json(&["</script><!--", "\u{2028}&\u{202e}"]);
        assert_eq!(json, r#"["\u003c/script\u003e\u003c!--","\u2028\u0026\u202e"]"#);
        let back: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(back, ["</script><!--", "\u{2028}&\u{202e}"]);
    }
}
