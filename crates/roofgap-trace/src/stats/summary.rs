//! Kernel summaries: totals of each kernel, without times of launches.
//!
//! Reads `cuda_gpu_kern_sum`, `cuda_gpu_kern_gb_sum` (a row per grid and block) and their older names.

use super::{Table, TimeUnit, Title, is_cut, load};
use crate::decimal::ungrouped;
use crate::format::Detected;
use crate::{Format, KernelTotal, LossKind, NameId, ReadError, Source, SourceFormat, Trace};
use rustc_hash::FxHashMap;
use std::path::Path;

/// A column of times.
type TimeColumn = (usize, TimeUnit);

/// The columns of a kernel summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
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
    pub fn of(titles: &[Title]) -> Option<Self> {
        let find = |names: &[&str]| titles.iter().position(|title| names.contains(&title.name.as_str()));
        let unit_of = |at: usize| titles.get(at).and_then(|title| TimeUnit::parse(&title.unit));
        if find(&["range", "style", "operation", "category"]).is_some() {
            return None;
        }
        let total = find(&["total time"])?;
        let unit = unit_of(total)?;
        // The oldest releases give the unit of the total only.
        let time = |names: &[&str]| find(names).map(|at| (at, unit_of(at).unwrap_or(unit)));
        Some(Self {
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

pub const FORMAT: Format = Format {
    name: "nsys-kernel-summary",
    description: "a kernel summary of `nsys stats`",
    profiler: "nsys",
    is_timeline: true,
    endings: &[".csv"],
    detect: |head| match looks_like(&head.bytes) {
        true => Detected::Yes,
        // Tables of other reports may precede the summary.
        false if !head.whole && may_follow(&head.bytes) => Detected::NeedMore,
        false => Detected::No,
    },
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

/// Returns true if a file that begins with `head` looks like a kernel summary.
pub fn looks_like(head: &[u8]) -> bool {
    Table::find(&String::from_utf8_lossy(head), Columns::of).is_some()
}

/// Returns true if a file that begins with `head` has tables of `nsys stats`; a later one may be a kernel summary.
fn may_follow(head: &[u8]) -> bool {
    memchr::memmem::find(head, b"Total Time (").is_some()
}

/// Reads a kernel summary into `trace`.
pub fn read(path: &Path, trace: &mut Trace) -> Result<(), ReadError> {
    let text = load(path, NAME, MAX_BYTES)?;
    let (columns, table) = Table::find(&text, Columns::of).ok_or_else(|| ReadError::Unrecognised {
        path: path.to_path_buf(),
        expected: "a kernel summary of nsys stats (with `Total Time (ns)`, `Instances` and `Name`)".into(),
        found: match text.lines().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("`{}`", line.chars().take(60).collect::<String>()),
            None => "an empty file".into(),
        },
    })?;
    let mut totals = Totals::default();
    totals.read(columns, &table, trace).map_err(|what| ReadError::damaged(path, NAME, what))?;
    if totals.misses_rows() && table.is_cut() {
        let what = "the text ends within a row, and its shares show that rows are missing";
        return Err(ReadError::damaged(path, NAME, what));
    }
    trace.losses.add(LossKind::SummaryOnly, totals.rows.len() as u64);
    trace.losses.add(LossKind::TimeRounded, totals.rounded);
    trace.losses.add(LossKind::NameCut, totals.cut_names);
    trace.losses.add(LossKind::CaptureCut, u64::from(totals.misses_rows()));
    trace.kernel_totals.extend(totals.rows);
    trace.sources.push(Source::new(path, SourceFormat::KernelSummary));
    Ok(())
}

/// Totals of each kernel, in the order of the table.
#[derive(Default)]
pub struct Totals {
    pub rows: Vec<KernelTotal>,
    positions: FxHashMap<NameId, usize>,
    /// Share, percent, and total, ns, of each line.
    shares: Vec<(f64, i64)>,
    /// Lines whose times are not whole nanoseconds.
    rounded: u64,
    /// Lines whose names are cut.
    cut_names: u64,
    /// Time of all kernels, ns.
    total_ns: i64,
    /// Launches of all kernels.
    calls: u64,
}

impl Totals {
    fn read(&mut self, columns: Columns, table: &Table<'_>, trace: &mut Trace) -> Result<(), String> {
        table.each(|number, row| {
            row.and_then(|row| self.add(columns, row, trace)).map_err(|why| format!("row {number}: {why}"))
        })?;
        if self.rows.is_empty() { Err("the table has no rows".into()) } else { Ok(()) }
    }

    fn add(&mut self, columns: Columns, record: &csv::StringRecord, trace: &mut Trace) -> Result<(), String> {
        let cell = |at: usize| record.get(at).unwrap_or_default();
        let (at, unit) = columns.total;
        let total_text = cell(at);
        let total_ns = unit.ns(total_text).ok_or_else(|| format!("`{total_text}` is not a time"))?;
        let calls_text = cell(columns.instances);
        let calls = ungrouped(calls_text).parse::<u64>().ok().filter(|&calls| calls > 0);
        let calls = calls.ok_or_else(|| format!("`{calls_text}` is not a number of launches"))?;
        let rounded = unit.is_rounded(ungrouped(total_text).as_str());
        self.rounded += u64::from(rounded);
        if let Some(share) = columns.share.and_then(|at| cell(at).trim().parse().ok()).filter(|_| !rounded) {
            self.shares.push((share, total_ns));
        }
        let name = cell(columns.name).trim();
        self.cut_names += u64::from(is_cut(name));
        // A rounded zero means shorter than one digit.
        let known = |column: Option<TimeColumn>| {
            column
                .map(|(at, unit)| (unit, cell(at)))
                .filter(|(unit, text)| !rounded || unit.ns(text) != Some(0))
        };
        let mut kernel = KernelTotal {
            name: trace.names.intern(name),
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
        self.add_launches(kernel).ok_or_else(|| "the sum of times or launches overflows".into())
    }

    /// Adds launches of a kernel; `None` where a sum overflows.
    pub fn add_launches(&mut self, kernel: KernelTotal) -> Option<()> {
        self.total_ns = self.total_ns.saturating_add(kernel.total_ns);
        self.calls = self.calls.saturating_add(kernel.calls);
        if self.total_ns > MOST_TOTAL || self.calls > MOST_TOTAL as u64 {
            return None;
        }
        let position = *self.positions.entry(kernel.name).or_insert(self.rows.len());
        match self.rows.get_mut(position) {
            None => self.rows.push(kernel),
            Some(same) => add_launches(same, &kernel),
        }
        Some(())
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

#[cfg(test)]
mod column_tests {
    use super::*;

    fn columns(header: &str) -> Option<Columns> {
        Table::find(header, Columns::of).map(|(columns, _)| columns)
    }

    #[test]
    fn headers_of_several_releases() {
        for header in [
            "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
            "Time (%),Total Time (us),Instances,Avg (us),Med (us),Min (us),Max (us),StdDev (us),GridXYZ,BlockXYZ,Name",
            "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\r\n",
            "\"Time(%)\",\"Total Time (ns)\",\"Instances\",\"Average\",\"Minimum\",\"Maximum\",\"Name\"",
        ] {
            let columns = columns(header).expect(header);
            assert_eq!((columns.share, columns.total.0, columns.instances), (Some(0), 1, 2), "{header}");
            assert_eq!(columns.name, header.split(',').count() - 1);
            assert!(columns.min.is_some() && columns.max.is_some());
        }
    }

    #[test]
    fn other_summaries_are_not_kernel_summaries() {
        for header in [
            "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
            "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation",
            "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Category,Operation",
            "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range",
            "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Kernel Name",
            "Time (%),Total Time,Instances,Name",
            "",
        ] {
            assert_eq!(columns(header), None, "{header}");
        }
    }
}
