//! Backward operators of a framework and the forward operators that they belong to.

use super::{Ns, ThreadId};

/// A backward operator and its forward operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackwardLink {
    /// The thread that ran the backward operator.
    pub thread: ThreadId,
    /// When it was entered.
    pub start: Ns,
    /// When it was left.
    pub end: Ns,
    /// The thread that ran the forward operator.
    pub forward_thread: ThreadId,
    /// When that was entered.
    pub forward_start: Ns,
    /// When that was left.
    pub forward_end: Ns,
}
