//! Synthetic captures of any size, and their expected analysis.
//!
//! [`Program::run`] simulates the LLM program of a [`Spec`] (warm-up, prefill, decode; kernels, graphs, copies, waits;
//! several processes, threads, streams and devices) and adds up the [`Expected`] results on the way. The events are written
//! as an nsys export ([`nsys::write`]) or as a PyTorch profiler trace ([`kineto::write`]). The same spec gives the same bytes.
//! [`job`] makes the ranks of a distributed job, [`planted`] small programs that lose time for one known reason.

mod event;
mod expected;
pub mod job;
pub mod kineto;
pub mod mutate;
mod names;
pub mod nsys;
pub mod planted;
mod program;
mod random;
mod spec;
mod tally;

pub use event::{Call, CallKind, Events, Kernel, Range, Transfer, TransferKind};
pub use expected::{Expected, ExpectedKernel, ExpectedNote, ExpectedStage, ExpectedTotals};
pub use program::Program;
pub use spec::{Graphs, Spec};
