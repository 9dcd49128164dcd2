//! Pure functions from a trace (and facts about the GPU and the model) to an analysis.
//!
//! [`analyze`] is the whole of it. It never touches a file or a clock.

pub mod analysis;
pub mod attribute;
pub mod compare;
pub mod counters;
pub mod findings;
pub mod gpu;
pub mod interval;
pub mod model;
pub mod names;
pub mod stages;

mod analyze;
mod enrich;
mod idle;
mod instances;
mod kernels;
mod operators;
mod parallel;
mod steps;
mod verdict;

pub use analysis::*;
pub use analyze::{Options, analyze};
pub use enrich::operators_of;
pub use names::{family, short_name};
pub use stages::{Pattern, StageError, StageRule, StageSet};
pub use verdict::{Verdict, verdict};
