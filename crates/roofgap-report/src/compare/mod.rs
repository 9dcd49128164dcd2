//! A comparison for a terminal, as Markdown that fits a pull request, and as one HTML page.
//!
//! - `view`: rows and sentences that all forms render
//! - `sentences`: the sentences above the tables
//! - `text`, `markdown`, `html`: the forms

mod html;
mod markdown;
mod sentences;
mod text;
mod view;

pub use html::html;
pub use markdown::markdown;
pub use sentences::headline;
pub use text::text;

#[cfg(test)]
mod tests;
