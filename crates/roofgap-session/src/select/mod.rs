//! Which kernels go to ncu, what that will cost, and what came back.
//!
//! - [`strata`]: kernel x grid x block of each stage, by time;
//! - [`mangled`]: the names ncu is asked by;
//! - [`plan`]: the choice among them, within a budget: `ncu/plan.json`.

pub mod mangled;
pub mod plan;
pub mod strata;

pub use plan::{LeftOut, Limits, Plan, Planned, Policies, StageCover, choose};
pub use strata::Stratum;
