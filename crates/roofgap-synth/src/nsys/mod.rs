//! The events as an export of Nsight Systems.

mod strings;
mod write;

pub use write::{WriteError, write};
