//! A comparison as bytes: for a terminal, as JSON, as Markdown that fits a pull request, and as one HTML page.
//!
//! - `view`: what there is to say, once for all forms;
//! - `sentences`: the lines that stand above the tables;
//! - `text`, `markdown`, `html`: the forms.

mod grid;
mod html;
mod markdown;
mod sentences;
mod text;
mod view;

pub use html::html;
pub use markdown::markdown;
pub use text::text;

use roofgap_analyze::compare::Comparison;

/// The comparison as indented JSON with a newline at the end.
pub fn json(comparison: &Comparison) -> String {
    // Serialising plain data to a string cannot fail; a number that is not finite becomes null.
    let mut text = serde_json::to_string_pretty(comparison).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
