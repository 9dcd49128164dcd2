//! The one owner of "which stage": the rule, the instances it finds in a trace, and the index of what belongs to them.

mod engine_steps;
mod engines;
mod frame_steps;
mod index;
mod instances;
mod rule;
mod span;

pub use engines::{Engine, EngineStep, GRAMMARS, Grammar, Scheduled};
pub use index::{AbsentStage, StageIndex, StageSpans};
pub use instances::AllOfStage;
pub use rule::{NamedPlace, Pattern, StageError, StageRule, StageSet};
pub use span::Span;
