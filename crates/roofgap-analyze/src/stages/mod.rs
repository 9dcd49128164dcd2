//! The one owner of "which stage": the rule, the instances it finds in a trace, and the index of what belongs to them.

mod engine_steps;
mod frame_steps;
mod index;
mod instances;
mod rule;
mod span;

pub use index::{StageIndex, StageSpans};
pub use instances::AllOfStage;
pub use rule::{NamedPlace, Pattern, StageError, StageRule, StageSet, kind_of};
pub use span::Span;
