//! Hardware counters joined with the timeline: the launch they belong to, the work they count, the limit of each kernel.

mod advice;
pub(crate) mod alone;
mod arch;
mod bound;
mod caches;
mod join;
mod metrics;
mod names;
mod readings;
mod roof;
mod roofline;
mod rules;
mod timeline;
mod work;

pub(crate) use advice::Advice;
pub(crate) use bound::{Bound, NEAR_ROOF_PCT};
pub(crate) use join::{Measured, attach, join, merge};
pub use metrics::light_metrics;
pub use names::canonical;
pub(crate) use roof::{roofs, roofs_alone};
pub(crate) use rules::rules;
pub(crate) use timeline::Timeline;

/// Types that tests of other modules construct.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use super::arch::WorkKind;
    pub(crate) use super::readings::Readings;
    pub(crate) use super::work::Work;
}

#[cfg(test)]
mod tests;
