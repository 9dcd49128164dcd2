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

use crate::{Format, Input, ReadError, Sniffed, Source, SourceFormat};
use roofgap_base::file::Unpacked;
use std::io::BufReader;

pub(crate) const REPORT: Format = Format {
    name: "ncu-rep",
    description: "an ncu report or CSV page",
    profiler: "ncu",
    endings: &[".ncu-rep"],
    detect: |head| sniff::is(SourceFormat::NcuReport, head),
    read: add,
    ..Format::DEFAULT
};

pub(crate) const RAW_PAGE: Format = Format {
    name: "ncu-raw-csv",
    endings: &[".csv"],
    detect: |head| sniff::is(SourceFormat::NcuRawPage, head),
    ..REPORT
};

pub(crate) const DETAILS_PAGE: Format = Format {
    name: "ncu-details-csv",
    detect: |head| sniff::is(SourceFormat::NcuDetailsPage, head),
    ..RAW_PAGE
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

/// Adds the counters of a file.
fn add(file: &Sniffed, input: &mut Input) -> Result<(), ReadError> {
    let damaged = |what: String| ReadError::damaged(&file.path, NAME, what);
    let content = BufReader::new(Unpacked::open(&file.path).map_err(|e| ReadError::io(&file.path, e))?);
    let set = match file.format {
        SourceFormat::NcuReport => rep::read(content),
        SourceFormat::NcuDetailsPage => details::read(content),
        _ => raw::read(content),
    };
    let set = set.map_err(|e| damaged(chain(&e)))?;
    let total: f64 = input.counters.iter().chain([&set]).map(total_ns).sum();
    if total > MOST_TOTAL {
        return Err(damaged("its launches last more than 146 years together".into()));
    }
    let source = Source::new(&file.path, file.format);
    input.trace.sources.push(Source { tool_version: set.tool.version.clone(), ..source });
    input.counters.push(set);
    Ok(())
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
