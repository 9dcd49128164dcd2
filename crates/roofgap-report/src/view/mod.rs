//! The view model: rows, sentences and numbers of a report. Text, Markdown and HTML render the same ones.
//!
//! - `table`: a table and its text, Markdown and HTML forms
//! - `headline`: the first lines, with time per token and the numbers of one run
//! - `confidence`: how far the numbers can be trusted, and why
//! - `kernels`: tables of kernels, operators and counters
//! - `gpu_work`: copies, whole graphs and communication
//! - `job`: several ranks together
//! - `layers`: kernels by layer of the model
//! - `measured`: launches that ncu measured without a timeline, and ncu's own rules
//! - `screen`: the width and the colours of a terminal; `fit`: tables in that width
//! - `selection`: the part of an analysis that a user asks for
//! - `stage1`: figures of a Stage 1 runner beside those of the profiled run
//! - `heading`, `fit`: headings of columns, and columns that fit the screen
//! - `stages`: the table of stages, and the sentences on each
//! - `utilisation`: MFU and MBU and the terms behind them
//! - `findings`: savings, evidence, and the sentence for no findings
//! - `savings`: savings of findings by token
//! - `trial`: changes of the workload that were measured
//! - `roof`: the distance to the roof
//! - `serving`: steps of a serving engine together
//! - `requests`: latency and throughput of a server under load
//! - `ranges`: the ranges of a capture in which no stage was found
//! - `provenance`: inputs, environment, phases, profiler overhead, losses, and why a part is missing

pub mod confidence;
pub mod findings;
mod fit;
pub mod gpu_work;
pub mod heading;
pub mod headline;
pub mod job;
pub mod kernels;
pub mod layers;
pub mod measured;
pub mod provenance;
pub mod ranges;
pub mod requests;
pub mod roof;
pub mod savings;
pub mod screen;
pub mod selection;
pub mod serving;
pub mod stage1;
pub mod stages;
pub mod table;
pub mod trial;
pub mod utilisation;

pub use roofgap_base::numbers;
