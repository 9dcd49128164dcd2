//! Traces of the PyTorch profiler (Kineto): Chrome trace events in JSON, plain or compressed.
//!
//! The text is read in blocks by several threads and never held whole. A document that is cut or broken anywhere, also in
//! what is not read from it, is an error.

mod blocks;
mod cursor;
mod document;
mod event;
mod merge;
mod pipeline;
mod reader;
mod rows;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use reader::READER;
