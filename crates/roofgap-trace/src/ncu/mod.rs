//! Nsight Compute: hardware counters of single launches.
//!
//! Three inputs give one [`CounterSet`]: the raw page ([`raw`]) and the details page ([`details`]) of `ncu --csv`, and
//! the report itself ([`rep`]), read without ncu. Every value becomes a number in its base unit ([`unit`]).

mod cell;
pub mod details;
mod device;
mod error;
mod labels;
mod metric;
mod model;
mod nvtx;
mod page;
pub mod raw;
pub mod rep;
mod sniff;
pub mod unit;
mod wire;

#[cfg(test)]
mod tests;

pub use error::NcuError;
pub use metric::unit_of;
pub use model::{
    CounterSet, LaunchCounters, Metric, MetricId, NvtxKind, NvtxRange, Rule, RuleKind, Speedup, SpeedupScope,
    Tool,
};
pub use sniff::{NcuFormat, Sniff, sniff};
pub use unit::{Base, Quantity, Unit};

use std::io::Read;

/// Reads counters in the format that [`sniff`] has named.
///
/// # Errors
/// See [`NcuError`].
pub fn read(format: NcuFormat, input: impl Read) -> Result<CounterSet, NcuError> {
    match format {
        NcuFormat::RawPage => raw::read(input),
        NcuFormat::DetailsPage => details::read(input),
        NcuFormat::Report => rep::read(input),
    }
}
