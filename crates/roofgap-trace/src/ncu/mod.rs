//! Nsight Compute: hardware counters of single launches.
//!
//! Three inputs give a [`CounterSet`]: the raw page ([`raw`]) and the details page ([`details`]) of `ncu --csv`, and the
//! report itself ([`rep`]), read without ncu. Values are converted to base units (`unit`).

mod cell;
pub mod details;
mod device;
mod error;
mod labels;
mod metric;
pub(crate) mod model;
mod nvtx;
mod page;
mod protobuf;
pub mod raw;
pub mod rep;
mod sniff;
pub mod unit;

#[cfg(test)]
mod tests;

pub use error::NcuError;
pub use metric::unit_of;
pub use model::{
    CounterSet, LaunchCounters, Metric, MetricId, NvtxKind, NvtxRange, Rule, RuleKind, Speedup, SpeedupScope,
    Tool,
};
pub use unit::{Base, Quantity, Unit};

use crate::reader::Reader;
use crate::{ReadError, Source, SourceFormat};
use roofgap_base::file::Unpacked;
use std::io::BufReader;
use std::path::Path;

pub(crate) const READER: Reader = Reader {
    detect: |head| sniff::sniff(&head.bytes, head.whole),
    takes_gzip: true,
    read: |path, format, input| {
        let set = read(path, format)?;
        let total: f64 = input.counters.iter().chain([&set]).map(total_ns).sum();
        if total > MOST_TOTAL {
            let what = "its launches last more than 146 years together";
            return Err(ReadError::damaged(path, NAME, what));
        }
        input.trace.sources.push(Source {
            path: path.display().to_string(),
            format,
            tool_version: set.tool.version.clone(),
            schema_version: None,
        });
        input.counters.push(set);
        Ok(())
    },
};

/// Name of the format in messages.
const NAME: &str = "ncu report or page";

/// Longest sum of the durations of all launches, ns, so that no sum of some of them overflows.
const MOST_TOTAL: f64 = (i64::MAX / 2) as f64;

/// Returns the sum of the durations of all launches, ns.
fn total_ns(set: &CounterSet) -> f64 {
    let durations = set
        .launches
        .iter()
        .filter_map(|launch| set.value(launch, "gpu__time_duration.sum", Unit::NANOSECOND));
    durations.map(f64::abs).sum()
}

/// Reads counters, compressed or not.
fn read(path: &Path, format: SourceFormat) -> Result<CounterSet, ReadError> {
    let input = BufReader::new(Unpacked::open(path).map_err(|e| ReadError::io(path, e))?);
    let set = match format {
        SourceFormat::NcuReport => rep::read(input),
        SourceFormat::NcuDetailsPage => details::read(input),
        _ => raw::read(input),
    };
    set.map_err(|e| ReadError::damaged(path, NAME, chain(&e)))
}

/// Formats an error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
