//! Captures of the native collector (`.rgcap`): CUPTI and NVTX from inside the program, one file per process.

mod annotations;
mod demangle;
mod graph_nodes;
mod identity;
mod reader;

pub(crate) use demangle::demangle;
pub(crate) use reader::READER;
pub use reader::{frames, kernel_names};
pub use roofgap_wire::older_segment;

#[cfg(test)]
mod tests;
