//! Renderers: each walks the sections of a document.
//!
//! - `text` for a terminal, with `screen` for its width and colours
//! - `markdown` for the files of a run directory
//! - `html` for the page, and the shell that all pages share

pub mod html;
pub mod markdown;
pub mod screen;
pub mod text;
