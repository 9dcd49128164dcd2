//! A comparison for a terminal, as Markdown that fits a pull request, and as one HTML page.
//!
//! - `view`: the sections that all forms render; every sentence is computed from the rows below it
//! - `html`: the page

mod html;
mod view;

pub use html::{Shown, html};
pub use view::headline;

use crate::document::{Block, Section};
use crate::render::markdown::{self, escape, escape_long};
use crate::render::text;
use crate::text::TextOptions;
use roofgap_analyze::compare::Comparison;
use std::fmt::Write;

/// Renders a comparison as text.
pub fn text(comparison: &Comparison, options: TextOptions) -> String {
    let (base, head) = (&comparison.base.title, &comparison.head.title);
    let lines = [headline(comparison), format!("base {base}, head {head}")].into_iter();
    let facts = view::facts(comparison).into_iter().map(|fact| format!("  {fact}"));
    let mut sections = vec![Section::new("", "").with(lines.chain(facts).map(Block::Line))];
    sections.extend(view::sections(comparison, options.kernels));
    text::rendered(sections, options.screen)
}

/// First line of every such comment, by which a later run finds and replaces it.
const MARK: &str = "<!-- roofgap compare -->";

/// The longest comment, in characters; GitHub rejects 65,536.
const LONGEST: usize = 60_000;

/// Renders a comparison as Markdown, with fewer rows if it is too long for a comment.
pub fn markdown(comparison: &Comparison) -> String {
    for most in [15, 5] {
        let text = comment(comparison, most);
        if text.chars().count() <= LONGEST {
            return text;
        }
    }
    comment(comparison, 0).chars().take(LONGEST).collect()
}

fn comment(comparison: &Comparison, most: usize) -> String {
    let (base, head) = (escape(&comparison.base.title), escape(&comparison.head.title));
    let headline = escape_long(&headline(comparison));
    let mut out = format!("{MARK}\n## roofgap: {headline}\n\nBase {base}, head {head}.\n");
    for fact in view::facts(comparison) {
        let _ = write!(out, "\n- {}", escape_long(&fact));
    }
    for section in view::sections(comparison, most) {
        let title = escape(&section.title);
        let _ = match section.inner {
            true => write!(out, "\n\n<details><summary>{title}</summary>\n{}\n</details>", blocks(&section)),
            false => write!(out, "\n\n### {title}\n{}", blocks(&section)),
        };
    }
    out + "\n"
}

fn blocks(section: &Section) -> String {
    section.blocks.iter().map(|block| format!("\n{}", markdown::block(block))).collect()
}

#[cfg(test)]
mod tests;
