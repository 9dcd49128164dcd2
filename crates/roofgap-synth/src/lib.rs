//! Made-up captures of any size, and the analysis they must give.
//!
//! A [`Spec`] says what to make. [`Program::run`] plays a made-up LLM program (warm-up, prefill, decode; kernels, graphs,
//! copies, waits; several processes, threads, streams and devices) and adds up, event by event as it makes them, what an
//! analysis must find: [`Expected`]. The events are then written as an export of Nsight Systems ([`nsys::write`]) or as a
//! trace of the PyTorch profiler ([`kineto::write`]). The same spec gives the same bytes.

mod event;
mod expected;
pub mod kineto;
mod names;
pub mod nsys;
mod program;
mod random;
mod spec;
mod tally;

pub use event::{Call, CallKind, Copy, Events, Graph, Kernel, Range, Set};
pub use expected::{Expected, ExpectedKernel, ExpectedNote, ExpectedStage, ExpectedTotals};
pub use program::Program;
pub use spec::{Graphs, Spec};
