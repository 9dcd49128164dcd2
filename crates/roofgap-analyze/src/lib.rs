//! Pure functions from a trace (and facts about the GPU and the model) to an analysis.
//!
//! [`analyze`] is the whole of it. It never touches a file or a clock.

pub mod compare;
pub mod counters;
pub mod findings;
pub mod gpu;
pub mod model;
pub mod names;
mod result;
pub mod stages;

mod account;
mod analyze;
mod timeline;
mod verdict;

pub use analyze::{Analyzed, Options, analyze};
pub use names::{Family, family, is_communication, short_name};
pub use result::*;
pub use stages::{NamedPlace, Pattern, Span, StageError, StageIndex, StageRule, StageSet, StageSpans};
pub use timeline::{Contexts, IntervalSet, Launches, NO_CALL};
pub use verdict::{Verdict, verdict};
