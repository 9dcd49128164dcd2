//! Nsight Compute: hardware counters of single launches.
//!
//! Three inputs give a [`CounterSet`]: the raw page ([`raw`]) and the details page ([`details`]) of `ncu --csv`, and the
//! report itself ([`rep`]), read without ncu. Values are converted to base units (`unit`).

use crate::format::{Detected, Head};
use crate::{Format, Input, ReadError, Sniffed, Source, SourceFormat, input};
use std::io::BufReader;

pub mod details;
mod metric;
pub(crate) mod model;
mod nvtx;
mod page;
pub mod raw;
pub mod rep;
pub mod unit;

#[cfg(test)]
mod tests;

pub use metric::unit_of;
pub use model::{
    CounterSet, LaunchCounters, Metric, MetricId, NvtxRange, Rule, RuleKind, Speedup, SpeedupScope,
};
pub use page::write_launches;
pub use unit::{Base, Quantity, Unit};

pub(crate) const REPORT: Format = Format {
    name: "ncu-rep",
    description: "an ncu report or CSV page",
    profiler: "ncu",
    endings: &[".ncu-rep"],
    detect: |head| is_format(SourceFormat::NcuReport, head),
    read: add,
    ..Format::DEFAULT
};

pub(crate) const RAW_PAGE: Format = Format {
    name: "ncu-raw-csv",
    endings: &[".csv"],
    detect: |head| is_format(SourceFormat::NcuRawPage, head),
    ..REPORT
};

pub(crate) const DETAILS_PAGE: Format = Format {
    name: "ncu-details-csv",
    detect: |head| is_format(SourceFormat::NcuDetailsPage, head),
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
    let content = BufReader::new(input::open(&file.path)?);
    let set = match file.format {
        SourceFormat::NcuReport => rep::read(content),
        SourceFormat::NcuDetailsPage => details::read(content),
        _ => raw::read(content),
    };
    let set = set.map_err(|e| damaged(e.to_string()))?;
    let total: f64 = input.counters.iter().chain([&set]).map(total_ns).sum();
    if total > MOST_TOTAL {
        return Err(damaged("its launches last more than 146 years together".into()));
    }
    let source = Source::new(&file.path, file.format);
    input.trace.sources.push(Source { tool_version: set.tool_version.clone(), ..source });
    input.counters.push(set);
    Ok(())
}

/// Why an ncu input could not be read.
#[derive(Debug, thiserror::Error)]
pub enum NcuError {
    /// The input could not be read.
    #[error("reading {what}: {source}")]
    Io {
        /// Input being read.
        what: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// A CSV record could not be split.
    #[error("splitting a record of the ncu CSV page: {0}")]
    Csv(String),
    /// No line of the input is the header of an ncu page.
    #[error(
        "looking for the header of an ncu CSV page: no line begins with the column ID; \
         export one with `ncu --import FILE --page raw --csv --print-units base`"
    )]
    NoHeader,
    /// One line is too long to be of ncu.
    #[error("reading an ncu CSV page: a line is longer than {limit} bytes, so this is no such page")]
    LineTooLong {
        /// The longest line accepted.
        limit: usize,
    },
    /// The last row of a page is not whole.
    #[error(
        "reading an ncu CSV page: it breaks off in the middle of a row; \
         export it again with `ncu --import FILE --page raw --csv --print-units base`"
    )]
    Cut,
    /// The file does not begin as a report.
    #[error("reading an ncu report: it does not begin with the letters NVR")]
    NotAReport,
    /// The report breaks off or is malformed.
    #[error(
        "reading an ncu report at byte {offset}: {problem}; copy it again, or, if the file is whole, read the page \
         that `ncu --import FILE --page raw --csv --print-units base` prints instead"
    )]
    BadReport {
        /// Offset in the file, bytes.
        offset: u64,
        /// Description of the damage.
        problem: String,
    },
    /// Nothing was profiled.
    #[error("reading ncu's counters: no launch is in it; `No kernels were profiled` also ends with status 0")]
    NoLaunches,
    /// Every launch failed.
    #[error("reading ncu's counters: none of its {launches} launches has a counter with a value")]
    AllFailed {
        /// Number of launches.
        launches: usize,
    },
}

/// Bytes searched for a header, since output of the program may precede it.
const PREAMBLE: usize = 1 << 20;

/// Tells whether a file has one of the formats of ncu.
fn is_format(format: SourceFormat, head: &Head) -> Detected {
    match sniff(&head.bytes, head.whole) {
        Ok(known) => (known == Some(format)).into(),
        Err(NeedMore) => Detected::NeedMore,
    }
}

/// The bytes are too few to decide.
#[derive(Debug, PartialEq, Eq)]
struct NeedMore;

/// Detects an input of ncu from its first bytes; `whole` is true if there are no more.
fn sniff(head: &[u8], whole: bool) -> Result<Option<SourceFormat>, NeedMore> {
    let more = if whole { Ok(None) } else { Err(NeedMore) };
    if head.starts_with(rep::MAGIC) {
        return Ok(Some(SourceFormat::NcuReport));
    }
    if rep::MAGIC.starts_with(head) {
        return more;
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    if text.iter().take(4096).any(|byte| *byte == 0) {
        return Ok(None);
    }
    let Some(line) = text.split(|byte| *byte == b'\n').find(|line| page::is_header(line)) else {
        let says_ncu = text.starts_with(b"==") || memchr::memmem::find(text, b"\n==PROF==").is_some();
        // Bytes that stop inside the header, or that carry ncu's marks, may still turn out to be a page.
        let may_be = text.len() < PREAMBLE && (says_ncu || b"\"ID\",\"".starts_with(text));
        return if may_be { more } else { Ok(None) };
    };
    let holds = |needle: &[u8]| memchr::memmem::find(line, needle).is_some();
    if holds(b"Metric Name") {
        Ok(Some(SourceFormat::NcuDetailsPage))
    } else if holds(b"__") && (holds(b"Kernel Name") || holds(b"Function Name")) {
        Ok(Some(SourceFormat::NcuRawPage))
    } else if line.len() == text.len() {
        more
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod sniff_tests {
    use super::*;

    const RAW: &[u8] = b"\"ID\",\"Process ID\",\"Kernel Name\",\"dram__bytes.sum\"\n";
    const DETAILS: &[u8] = b"\"ID\",\"Process ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\"\n";

    #[test]
    fn tells_the_three() {
        assert_eq!(sniff(b"NVR\0\x02\0\0\0", true), Ok(Some(SourceFormat::NcuReport)));
        assert_eq!(sniff(RAW, true), Ok(Some(SourceFormat::NcuRawPage)));
        assert_eq!(sniff(DETAILS, true), Ok(Some(SourceFormat::NcuDetailsPage)));
    }

    #[test]
    fn output_before_the_header() {
        let page = [b"tokens: 12\n==PROF== Connected to process 7\n".as_slice(), DETAILS].concat();
        assert_eq!(sniff(&page, true), Ok(Some(SourceFormat::NcuDetailsPage)));
        assert_eq!(sniff(b"==PROF== Connected to process 7\n", false), Err(NeedMore));
        assert_eq!(sniff(b"==PROF== Connected to process 7\n", true), Ok(None));
    }

    #[test]
    fn too_few_bytes() {
        assert_eq!(sniff(b"NV", false), Err(NeedMore));
        assert_eq!(sniff(b"NV", true), Ok(None));
        assert_eq!(sniff(&RAW[..20], false), Err(NeedMore));
    }

    #[test]
    fn others() {
        assert_eq!(sniff(b"SQLite format 3\0", true), Ok(None));
        assert_eq!(sniff(b"{\"traceEvents\": []}", false), Ok(None));
        assert_eq!(sniff(b"Time (%),Total Time (ns)\n", true), Ok(None));
    }
}
