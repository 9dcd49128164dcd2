//! Captures of the native collector (`.rgcap`): CUPTI and NVTX from inside the program, one file per process.

mod annotations;
mod demangle;
mod file;
mod graph_nodes;
mod host;
mod identity;
mod place;
mod rank;
mod reader;
mod window_edges;

pub(crate) use demangle::demangle;
pub use file::{find_older, is_capture};
pub use host::{host, write_without_host};
pub use rank::{CaptureRank, rank};
pub(crate) use reader::FORMAT;
pub use reader::{frames, kernel_names};
pub use roofgap_wire::older_segment;

#[cfg(test)]
mod tests;
