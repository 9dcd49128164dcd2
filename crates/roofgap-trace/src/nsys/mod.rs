//! Exports of Nsight Systems (`nsys export --type sqlite`), by looking at which tables and columns exist.

mod calls;
mod columns;
mod graph_nodes;
mod identity;
mod job;
mod kernels;
mod nvtx;
mod reader;
mod strings;
mod work;

#[cfg(test)]
mod tests;

pub use reader::{EXPORT, REPORT, REPORT_MAGIC};
