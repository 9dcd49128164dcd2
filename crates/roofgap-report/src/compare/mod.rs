//! A comparison for a terminal, as Markdown that fits a pull request, and as one HTML page.
//!
//! - `view`: the sections that all forms render; every sentence is computed from the rows below it
//! - `html`: the page

mod html;
mod view;

pub use html::{Shown, html};
pub use view::headline;

use crate::document::Section;
use crate::render::markdown::{self, escape, escape_long};
use crate::render::text;
use crate::text::TextOptions;
use roofgap_analyze::compare::Comparison;
use roofgap_base::text::without_controls;
use std::fmt::Write;

/// Renders a comparison as text.
pub fn text(comparison: &Comparison, options: TextOptions) -> String {
    let screen = options.screen;
    let line = |text: &str| screen.wrapped(&without_controls(text), 2);
    let (base, head) = (&comparison.base.title, &comparison.head.title);
    let mut lines =
        vec![screen.bold(&line(&headline(comparison))), line(&format!("base {base}, head {head}"))];
    lines.extend(view::facts(comparison).iter().map(|fact| line(&format!("  {fact}"))));
    let mut out = lines.join("\n") + "\n";
    for section in view::sections(comparison, [options.kernels; 2]) {
        let title = if section.inner { String::new() } else { screen.bold(&line(&section.title)) + "\n" };
        // Writing to a string cannot fail.
        let _ = write!(out, "\n{title}{}", text::blocks(&section.blocks, screen));
    }
    out
}

/// First line of every such comment, by which a later run finds and replaces it.
const MARK: &str = "<!-- roofgap compare -->";

/// The longest comment, in characters; GitHub rejects 65,536.
const LONGEST: usize = 60_000;

/// Renders a comparison as Markdown, with fewer rows if it is too long for a comment.
pub fn markdown(comparison: &Comparison) -> String {
    for most in [[12, 15], [6, 5], [3, 0]] {
        let text = comment(comparison, most);
        if text.chars().count() <= LONGEST {
            return text;
        }
    }
    comment(comparison, [0; 2]).chars().take(LONGEST).collect()
}

fn comment(comparison: &Comparison, most: [usize; 2]) -> String {
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
