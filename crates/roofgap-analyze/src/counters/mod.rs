//! Hardware counters joined with the timeline: the launch they belong to, the work they count, the limit of each kernel.

pub(crate) mod alone;
mod bound;
mod join;
mod names;
mod readings;
mod roof;
mod rules;
mod sampled;

pub(crate) use bound::{Bound, NEAR_ROOF_PCT};
pub(crate) use join::{Joined, Measured, Timeline, attach, join, merge};
pub use names::canonical;
pub use readings::light_metrics;
pub(crate) use roof::{roofs, roofs_alone};
pub(crate) use rules::rules;
pub(crate) use sampled::add as add_sampled;

/// Types that tests of other modules construct.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use super::readings::{Readings, Work};
    pub(crate) use crate::gpu::WorkKind;
}

#[cfg(test)]
mod tests;
