//! A document for a terminal.

use super::screen::Screen;
use crate::Context;
use crate::document::stages::once_each;
use crate::document::{Block, Document, Form, Item, Section};
use roofgap_analyze::{About, Analysis};
use roofgap_base::numbers::count;
use roofgap_base::text::without_controls;
use std::sync::LazyLock;

/// Options for text output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Width and colours.
    pub screen: Screen,
    /// The most kernels listed.
    pub kernels: usize,
    /// Leave out tables of the whole trace.
    pub stages_only: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { screen: Screen::default(), kernels: 12, stages_only: false }
    }
}

/// The most kernels on the first screen of a capture without stages.
const BRIEF_KERNELS: usize = 5;

/// Renders all of an analysis as text.
pub fn render(analysis: &Analysis, options: TextOptions) -> String {
    rendered(document(analysis, options).sections(), options.screen)
}

/// Renders the first screen of an analysis: its headline, its stages and its first findings.
pub fn brief(analysis: &Analysis, options: TextOptions) -> String {
    let options = TextOptions { kernels: BRIEF_KERNELS, ..options };
    rendered(document(analysis, options).brief(), options.screen)
}

/// Renders the sections that are named, in the order of the document.
pub fn show(analysis: &Analysis, options: TextOptions, names: &[String]) -> Result<String, NoSection> {
    let mut sections = document(analysis, options).all_sections();
    if let Some(name) = names.iter().find(|name| sections.iter().all(|section| section.id != **name)) {
        let known = once_each(sections.iter().map(|section| section.id.to_owned()));
        return Err(NoSection { name: name.clone(), known: known.join(", ") });
    }
    sections.retain(|section| names.iter().any(|name| section.id == *name));
    let is_empty =
        |name: &&String| sections.iter().all(|section| section.id != **name || section.blocks.is_empty());
    let why = |name: &String| {
        let why = analysis.reason(&About::from(name.clone())).unwrap_or("the capture has none");
        Block::Line(format!("no {name}: {why}"))
    };
    let empty: Vec<Block> = names.iter().filter(is_empty).map(why).collect();
    sections.retain(|section| !section.blocks.is_empty());
    Ok(rendered(sections, options.screen) + &blocks(&empty, options.screen))
}

/// A section that no analysis has.
#[derive(Debug, thiserror::Error)]
#[error("no section {name}; the sections are {known}")]
pub struct NoSection {
    name: String,
    known: String,
}

fn document(analysis: &Analysis, options: TextOptions) -> Document<'_> {
    static NO_CONTEXT: LazyLock<Context> = LazyLock::new(Context::default);
    Document { analysis, context: &NO_CONTEXT, form: Form::Text(options) }
}

/// Renders sections below their titles.
pub fn rendered(sections: Vec<Section>, screen: Screen) -> String {
    let mut out = String::new();
    for section in sections {
        if !section.title.is_empty() {
            out.push_str(&format!("\n{}\n", screen.bold(&without_controls(&section.title))));
        }
        out.push_str(&blocks(&section.blocks, screen));
    }
    out
}

/// Renders the blocks of a section. An empty line stands between two tables.
pub fn blocks(blocks: &[Block], screen: Screen) -> String {
    let mut out = String::new();
    let mut after_table = false;
    for block in blocks {
        let is_table = matches!(block, Block::Table(_));
        if is_table && after_table {
            out.push('\n');
        }
        after_table = is_table;
        out.push_str(&text(block, screen));
    }
    out
}

fn text(block: &Block, screen: Screen) -> String {
    let line = |text: &str, indent| format!("{}\n", screen.wrapped(&without_controls(text), indent));
    match block {
        Block::Line(text) | Block::Note(text) | Block::Missing(text) => line(text, 2),
        Block::List(items) => items.iter().map(|item| list_item(item, "", 2, screen)).collect(),
        Block::Steps(items) => {
            let numbered = items.iter().zip(1..);
            numbered.map(|(item, i)| list_item(item, &format!("{i}. "), 3, screen)).collect()
        }
        Block::Table(table) => table.text(screen),
        Block::Rest { all, shown: 0, what } if what.is_empty() => {
            format!("{}, none listed\n", count(*all as u64))
        }
        Block::Rest { all, shown: 0, what } => {
            line(&format!("{} kernels{what}, none listed", count(*all as u64)), 2)
        }
        Block::Rest { all, shown, what } => format!("and {} more{what}\n", count((all - shown) as u64)),
        Block::Code(_) | Block::Markdown(_) | Block::Drawing => String::new(),
    }
}

/// Renders an item after a mark. Its lines are indented by the width of a mark.
fn list_item(item: &Item, mark: &str, indent: usize, screen: Screen) -> String {
    let word =
        item.word.map_or_else(String::new, |(word, tone)| format!(": {}", screen.toned(word, Some(tone))));
    let plain = without_controls;
    let mut out = screen.wrapped(&format!("{mark}{}{word}{}", plain(&item.name), plain(&item.text)), indent);
    let (inset, more) = if mark.is_empty() { ("  ", 2) } else { ("   ", 0) };
    for text in &item.lines {
        out.push('\n');
        out.push_str(&screen.wrapped(&format!("{inset}{}", plain(text)), more));
    }
    out + "\n"
}
