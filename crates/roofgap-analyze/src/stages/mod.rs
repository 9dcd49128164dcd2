//! The one owner of "which stage", and of its kind: the rule, the ranges of a trace that it finds, and the index of what belongs to them.

mod frame_steps;
mod index;
mod ranges;
mod rule;

pub use index::{Span, StageIndex, StageSpans};
pub use ranges::AllOfStage;
pub use rule::{NamedPlace, Pattern, StageError, StageRule, StageSet, kind_of};
