//! The view model: rows, sentences and numbers of a report. Text, Markdown and HTML render the same ones.
//!
//! - `numbers`: quantities formatted for people
//! - `table`: a table and its text, Markdown and HTML forms
//! - `headline`: the first lines, with time per token and the numbers of one run
//! - `kernels`: tables of kernels, operators and counters
//! - `measured`: launches that ncu measured without a timeline, and ncu's own rules
//! - `stages`: the table of stages, and the sentences on each
//! - `utilisation`: MFU and MBU and the terms behind them
//! - `findings`: savings, evidence, and the sentence for no findings
//! - `provenance`: inputs, environment, phases, profiler overhead, losses, and why a part is missing

pub(crate) mod findings;
pub(crate) mod headline;
pub(crate) mod kernels;
pub(crate) mod measured;
pub(crate) mod numbers;
pub(crate) mod provenance;
pub(crate) mod stages;
pub(crate) mod table;
pub(crate) mod utilisation;
