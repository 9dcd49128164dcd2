//! Traces of the PyTorch profiler (Kineto): Chrome trace events in JSON, plain or compressed.
//!
//! The text is read in blocks by several threads and never held whole; a JSON crate does not do that, so the parser is
//! written by hand, and tests compare it with serde_json. A document that is truncated or damaged anywhere is an error.

mod block_names;
mod blocks;
mod collective;
mod cursor;
mod document;
mod event;
pub mod frames;
mod merge;
mod pipeline;
mod reader;
mod rows;
mod sequence;
mod shapes;
mod text;

#[cfg(test)]
mod tests;

pub use reader::FORMAT;
