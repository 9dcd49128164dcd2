//! Facts of GPUs: peaks, bandwidth and sizes from NVIDIA's own publications, found by the name that a tool reports.
//!
//! An unknown GPU has no peak: [`lookup`] answers with a reason instead of a guess.

mod dtype;
mod facts;
mod link;
mod lookup;
mod table;

pub use dtype::{Dtype, UnknownDtype};
#[cfg(test)]
pub(crate) use facts::DeviceReport;
pub use facts::{GpuFacts, Peak, TensorPeaks, UserLimits};
pub(crate) use link::CopyLinks;
pub use lookup::{UnknownGpu, lookup};
pub use table::TableError;
