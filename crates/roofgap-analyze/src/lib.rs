//! Pure functions from a trace, with facts about the GPU and the model, to an analysis.
//!
//! [`analyze`] takes a [`Trace`](roofgap_trace::Trace) and returns the [`Analysis`] with an index of its stages. It never reads a
//! file or a clock.
//!
//! ```
//! use roofgap_analyze::{Options, analyze};
//!
//! let input = roofgap_trace::read(&["../../fixtures/h200/llama4.sqlite.gz".into()])?;
//! let analyzed = analyze(&input.trace, &Options::default());
//! for stage in &analyzed.analysis.stages {
//!     println!("{}: {} kernels", stage.name, stage.kernel_count);
//! }
//! assert_eq!(analyzed.analysis.stages.len(), 2);
//! assert_eq!(analyzed.stages.spans(0).instances.len() as u64, analyzed.analysis.stages[0].instances);
//! # Ok::<(), roofgap_trace::ReadError>(())
//! ```
//!
//! Each question has one owner:
//!
//! - `result`: the types of the JSON;
//! - `engines`: a file for each serving engine ([`ENGINES`]): names of its steps, metrics, knobs, advice;
//! - `stages`: which stage an operation or a span of time belongs to ([`StageIndex`]);
//! - `attribution`: the launch call of an operation, and the ranges and operators around it;
//! - `timeline`: idle time, steps, kernels, copies and graphs;
//! - `host`: functions of the CPU in the idle time of a stage;
//! - `communication`: collectives and their bandwidth; `ranks`: the rank of a capture and its share of the model;
//! - `serving`: the steps of a serving engine together, and the latency of requests by its parts;
//! - `job`: several ranks together ([`join_ranks`]): clocks, matched collectives, stragglers;
//! - `layers`: kernels by layer of the model;
//! - `names`: short name and [`Family`] of a kernel;
//! - [`gpu`]: peaks and bandwidth of a device; [`model`]: work of a model; [`counters`]: hardware counters;
//! - [`findings`]: one file per rule in `findings/rules`; [`compare`]: two analyses side by side;
//! - [`knobs`]: changes of a workload that carry out the action of a finding;
//! - `execution`: the graph of what starts after what, replayed with changes, and without the profiler;
//! - `roof`: the distance of kernels and stages to the roof;
//! - `shapes`: FLOPs and bytes of kernels by the shapes of their operators ([`launches_of_window`]);
//! - `checks`: consistency of the result ([`violations`]).

pub mod compare;
pub mod counters;
pub mod findings;
pub mod gpu;
pub mod knobs;
pub mod model;

mod account;
mod analyze;
mod attribution;
mod checks;
mod communication;
mod engines;
mod execution;
mod host;
mod job;
mod layers;
mod loops;
mod names;
mod ranks;
mod rates;
mod result;
mod roof;
mod serving;
mod shapes;
mod stages;
mod timeline;
mod verdict;
mod vitals;

use roofgap_base::numbers;

pub use account::operators as account_operators;
pub use analyze::{Analyzed, Options, analyze, trace_operators};
pub use attribution::{
    CallKind, CallNode, Contexts, LaunchCount, Launches, NO_CALL, Scope, call_tree, launch_counts,
    operation_tree,
};
pub use checks::violations;
pub use engines::{ENGINES, Engine, EngineStep, Grammar, Scheduled, ServerGauges};
pub use execution::{Edit, UnknownEdit, what_if};
pub use host::{HostStack, host_stacks};
pub use job::{RankRecord, join_ranks};
pub use names::{Family, ShortNames, family, short_name};
pub use result::*;
pub use shapes::launches_of_window;
pub use stages::{
    AllOfStage, NamedPlace, Pattern, Span, StageError, StageIndex, StageRule, StageSet, StageSpans,
};
pub use timeline::{IdleCause, IdlePart, IdleParts, IntervalSet, idle_parts};
pub use verdict::{StageLimit, Verdict, verdict};

/// Lists the sections of a text for people: title and body. `mark` is what stands before titles of their level.
fn sections(text: &'static str, mark: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.split(mark).skip(1).filter_map(|section| section.split_once('\n'))
}
