//! The kernel summary of `nsys stats` as CSV: totals of each kernel, without times of launches.
//!
//! Reads `cuda_gpu_kern_sum`, the same with a row per grid and block (`cuda_gpu_kern_gb_sum`), and their older names.

use crate::decimal::{MAX_NS, scaled, ungrouped};
use crate::{Format, KernelTotal, LossKind, NameId, ReadError, Source, SourceFormat, Trace, input};
use csv::StringRecord;
use roofgap_base::error::Error;
use rustc_hash::FxHashMap;
use std::path::Path;

pub const FORMAT: Format = Format {
    name: "nsys-kernel-summary",
    description: "a kernel summary of `nsys stats` (cuda_gpu_kern_sum as CSV)",
    profiler: "nsys",
    is_timeline: true,
    endings: &[".csv"],
    detect: |head| find(&String::from_utf8_lossy(&head.bytes)).is_some().into(),
    read: |file, input| read(&file.path, &mut input.trace),
    ..Format::DEFAULT
};

/// Name of the format in messages.
const NAME: &str = "kernel summary of nsys stats";

/// Size limit, bytes: a summary has a row per kernel, not per launch.
const MAX_BYTES: u64 = 256 << 20;

/// Largest sum of times, ns, and of launches over all kernels, so that no sum of some of them overflows.
const MOST_TOTAL: i64 = i64::MAX / 2;

/// Tolerance between a written share and the computed one, percentage points: half a digit and the sum of all roundings.
const SHARE_TOLERANCE: f64 = 0.0501;

/// A unit of time, by the power of ten that converts it to nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimeUnit(i32);

impl TimeUnit {
    /// Parses the abbreviation in a column header.
    fn parse(text: &str) -> Option<Self> {
        Some(Self(match text {
            "ns" | "nsec" => 0,
            "us" | "usec" | "\u{3bc}s" | "\u{b5}s" => 3,
            "ms" | "msec" => 6,
            "s" | "sec" => 9,
            _ => return None,
        }))
    }

    /// Parses a time, ns.
    fn ns(self, text: &str) -> Option<i64> {
        let ns = i64::try_from(scaled(ungrouped(text).as_bytes(), self.0)?).ok()?;
        (ns <= MAX_NS).then_some(ns)
    }

    /// Parses a time with one decimal, ns.
    fn tenths(self, text: &str) -> Option<f64> {
        Self(self.0 + 1).ns(text).map(|tenths| tenths as f64 / 10.0)
    }

    /// Returns true if a time is written with fewer digits than nanoseconds.
    fn is_rounded(self, text: &str) -> bool {
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        !text.contains(['e', 'E']) && (decimals as i32) < self.0
    }
}

/// A column of times.
type TimeColumn = (usize, TimeUnit);

/// The columns of a kernel summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Columns {
    /// Number of columns.
    width: usize,
    share: Option<usize>,
    total: TimeColumn,
    instances: usize,
    median: Option<TimeColumn>,
    min: Option<TimeColumn>,
    max: Option<TimeColumn>,
    name: usize,
}

impl Columns {
    /// Parses a header; `None` if it is not that of a kernel summary.
    fn parse(header: &str) -> Option<Self> {
        let title = |title: &str| {
            let title = title.trim().trim_matches('"').to_lowercase();
            let (name, unit) = title.split_once('(').unwrap_or((&title, ""));
            (name.trim().to_owned(), TimeUnit::parse(unit.trim().trim_end_matches(')')))
        };
        let titles: Vec<(String, Option<TimeUnit>)> = header.split(',').map(title).collect();
        let find = |names: &[&str]| titles.iter().position(|(name, _)| names.contains(&name.as_str()));
        if find(&["range", "style", "operation", "category"]).is_some() {
            return None;
        }
        let total = find(&["total time"])?;
        let unit = titles[total].1?;
        // The oldest releases give the unit of the total only.
        let time = |names: &[&str]| find(names).map(|at| (at, titles[at].1.unwrap_or(unit)));
        Some(Self {
            width: titles.len(),
            share: find(&["time"]),
            total: (total, unit),
            instances: find(&["instances"])?,
            median: time(&["med", "median"]),
            min: time(&["min", "minimum"]),
            max: time(&["max", "maximum"]),
            name: find(&["name"])?,
        })
    }
}

/// Finds the header and the rows under it, up to an empty line: a printed table has its title before it and other tables behind it.
fn find(text: &str) -> Option<(Columns, &str)> {
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    while !rest.is_empty() {
        let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
        if let Some(columns) = Columns::parse(line) {
            let rows = below.split_inclusive('\n').take_while(|line| !line.trim().is_empty());
            return Some((columns, &below[..rows.map(str::len).sum()]));
        }
        rest = below;
    }
    None
}

/// Reads a kernel summary into `trace`.
fn read(path: &Path, trace: &mut Trace) -> Result<(), ReadError> {
    let damaged = |what: &str| ReadError::damaged(path, NAME, what);
    let bytes = input::load(path, NAME, MAX_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| damaged("the text is not UTF-8"))?;
    let (columns, rows) = find(&text).ok_or_else(|| damaged("no header"))?;
    // A name that is cut in the middle leaves a quote open.
    if rows.bytes().filter(|&byte| byte == b'"').count() % 2 == 1 {
        return Err(damaged("a quote is not closed: the text is truncated"));
    }
    let mut totals = Totals::default();
    let reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(rows.as_bytes());
    for (number, row) in (1..).zip(reader.into_records()) {
        let in_row = |why: &dyn std::fmt::Display| damaged(&format!("row {number}: {why}"));
        let row = row.map_err(|error| in_row(&error))?;
        if row.len() != columns.width {
            return Err(in_row(&format_args!("{} fields, the header {}", row.len(), columns.width)));
        }
        totals.add(columns, &row, trace).map_err(|why| in_row(&why))?;
    }
    if totals.rows.is_empty() {
        return Err(damaged("the table has no rows"));
    }
    let misses_rows = totals.misses_rows();
    if misses_rows && !rows.ends_with('\n') {
        return Err(damaged("the text ends within a row, and its shares show that rows are missing"));
    }
    trace.losses.add(LossKind::SummaryOnly, totals.rows.len() as u64);
    trace.losses.add(LossKind::TimeRounded, totals.rounded);
    trace.losses.add(LossKind::CaptureCut, u64::from(misses_rows));
    trace.kernel_totals.extend(totals.rows);
    trace.sources.push(Source::new(path, SourceFormat::KernelSummary));
    Ok(())
}

/// Totals of each kernel, in the order of the table.
#[derive(Default)]
struct Totals {
    rows: Vec<KernelTotal>,
    positions: FxHashMap<NameId, usize>,
    /// Share, percent, and total, ns, of each line.
    shares: Vec<(f64, i64)>,
    /// Lines whose times are not whole nanoseconds.
    rounded: u64,
    /// Time of all kernels, ns.
    total_ns: i64,
    /// Launches of all kernels.
    calls: u64,
}

impl Totals {
    fn add(&mut self, columns: Columns, row: &StringRecord, trace: &mut Trace) -> Result<(), Error> {
        let cell = |at: usize| row.get(at).unwrap_or_default().trim();
        let (at, unit) = columns.total;
        let total = cell(at);
        let total_ns = unit.ns(total).ok_or_else(|| Error::new(format!("`{total}` is not a time")))?;
        let launches = cell(columns.instances);
        let calls = ungrouped(launches).parse::<u64>().ok().filter(|&calls| calls > 0);
        let calls = calls.ok_or_else(|| Error::new(format!("`{launches}` is not a number of launches")))?;
        let rounded = unit.is_rounded(&ungrouped(total));
        self.rounded += u64::from(rounded);
        if let Some(share) = columns.share.and_then(|at| cell(at).parse().ok()).filter(|_| !rounded) {
            self.shares.push((share, total_ns));
        }
        // A rounded zero means shorter than one digit.
        let known = |column: Option<TimeColumn>| {
            let known = column.map(|(at, unit)| (unit, cell(at)));
            known.filter(|(unit, text)| !rounded || unit.ns(text) != Some(0))
        };
        let mut kernel = KernelTotal {
            name: trace.names.intern(cell(columns.name)),
            total_ns,
            calls,
            median_ns: known(columns.median).and_then(|(unit, text)| unit.tenths(text)),
            min_ns: known(columns.min).and_then(|(unit, text)| unit.ns(text)),
            max_ns: known(columns.max).and_then(|(unit, text)| unit.ns(text)),
        };
        if !is_possible(&kernel, rounded) {
            trace.losses.add(LossKind::ValueOutOfRange, 1);
            (kernel.median_ns, kernel.min_ns, kernel.max_ns) = (None, None, None);
        }
        self.total_ns = self.total_ns.saturating_add(total_ns);
        self.calls = self.calls.saturating_add(calls);
        if self.total_ns > MOST_TOTAL || self.calls > MOST_TOTAL as u64 {
            return Err(Error::new("the sum of times or launches overflows"));
        }
        let position = *self.positions.entry(kernel.name).or_insert(self.rows.len());
        match self.rows.get_mut(position) {
            None => self.rows.push(kernel),
            Some(same) => add_launches(same, &kernel),
        }
        Ok(())
    }

    /// Returns true if the shares show that kernels are missing from the table.
    fn misses_rows(&self) -> bool {
        let sum: f64 = self.shares.iter().map(|&(_, total)| total as f64).sum();
        self.shares.iter().any(|&(share, total)| (100.0 * total as f64 / sum - share).abs() > SHARE_TOLERANCE)
    }
}

/// Tells whether the shortest, median and longest launch of a kernel can be: in this order, and the mean between them. Rounded times say
/// nothing about the mean.
fn is_possible(kernel: &KernelTotal, rounded: bool) -> bool {
    let (min, max) = (kernel.min_ns.unwrap_or(0) as f64, kernel.max_ns.map_or(f64::INFINITY, |ns| ns as f64));
    let median = kernel.median_ns.unwrap_or(min);
    let mean = kernel.total_ns as f64 / kernel.calls as f64;
    let has_mean = rounded || (min - 1.0..=max + 1.0).contains(&mean);
    min <= median && median <= max && has_mean
}

/// Adds the launches of the same kernel in another shape. The median of all does not follow from their medians.
fn add_launches(kernel: &mut KernelTotal, other: &KernelTotal) {
    // The totals of the table hold these sums.
    kernel.total_ns += other.total_ns;
    kernel.calls += other.calls;
    kernel.median_ns = None;
    kernel.min_ns = kernel.min_ns.zip(other.min_ns).map(|(a, b)| a.min(b));
    kernel.max_ns = kernel.max_ns.zip(other.max_ns).map(|(a, b)| a.max(b));
}

#[cfg(test)]
mod tests;
