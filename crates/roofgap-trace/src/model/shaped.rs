//! Operators whose shapes were recorded.

use super::{NameId, Ns, ThreadId};

/// A matrix product or an attention with the shapes of its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapedOperator {
    /// Thread that called it.
    pub thread: ThreadId,
    /// Start on the CPU.
    pub start: Ns,
    /// End on the CPU.
    pub end: Ns,
    /// Operator name.
    pub name: NameId,
    /// Shapes of the inputs as the profiler writes them, such as `[[8, 4096], [4096, 4096]]`.
    pub dims: NameId,
    /// Types of the inputs as the profiler writes them, such as `["c10::BFloat16", "c10::BFloat16"]`.
    pub types: NameId,
}
