//! The phases of a session in order. Each ends ok, skipped or failed, with the reason in `session.json`.
//!
//! 1. `preflight` checks the program, tools, GPU and disk space;
//! 2. `baseline` runs the program without a profiler, or takes the times of an earlier run (`stage1`);
//! 3. `timeline` records with nsys or the native collector;
//! 4. `operators` runs the program under torch.profiler;
//! 5. `select` plans the kernels for ncu;
//! 6. `counters` measures that plan;
//! 7. [`report`] analyses the recordings and writes the reports.
//!
//! `requested` decides which of them a configuration asks for. `measured_rank` chooses one of several ranks for ncu. A phase that
//! runs commands describes them as values, which `--dry-run` prints.

pub mod report;

pub(crate) mod baseline;
pub(crate) mod counters;
mod inputs;
mod measured_rank;
pub(crate) mod operators;
pub(crate) mod preflight;
pub(crate) mod requested;
pub(crate) mod select;
pub(crate) mod stage1;
pub(crate) mod stage1_runner;
pub(crate) mod timeline;
