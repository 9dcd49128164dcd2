//! Writes events as an nsys export.

mod strings;
mod write;

pub use write::{WriteError, write};
