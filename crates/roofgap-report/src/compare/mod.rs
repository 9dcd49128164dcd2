//! A comparison for a terminal, as Markdown that fits a pull request, and as one HTML page.
//!
//! - `view`: rows and sentences that all forms render
//! - `sentences`: the sentences above the tables
//! - `text`, `markdown`, `html`: the forms; `sides`: the bars of base and head

mod html;
mod markdown;
mod sentences;
mod sides;
mod text;
mod view;

pub use html::html;
pub use markdown::markdown;
pub use sentences::headline;
pub use text::text;

#[cfg(test)]
mod tests;
