//! Hardware counters beside the timeline: which launch they belong to, what work they show, what holds a kernel back.

mod advice;
mod arch;
mod ask;
mod bound;
mod join;
mod names;
mod readings;
mod roofline;
mod timeline;
mod work;

pub use advice::Advice;
pub use arch::{Arch, Counter};
pub use ask::{deep_sections, light_metrics};
pub use bound::{Bound, Inputs, NEAR_ROOF_PCT, Verdict, verdict};
pub use join::{Joined, Measured, REPRESENTATIVE, attach, join};
pub use names::canonical;
pub use readings::{OccupancyLimit, Readings};
pub use roofline::Roofline;
pub use timeline::{Timeline, TimelineKernel};
pub use work::{Work, WorkKind};

#[cfg(test)]
mod tests;
