//! Kernel summaries of `nsys stats` in CSV: totals of each kernel, without times of launches.
//!
//! Reads `cuda_gpu_kern_sum`, `cuda_gpu_kern_gb_sum` (a row per grid and block) and their older names, as written to a file
//! or as printed with titles around them.

use crate::decimal::{MAX_NS, scaled};
use crate::format::Detected;
use crate::{Format, KernelTotal, LossKind, NameId, ReadError, Source, SourceFormat, Trace};
use roofgap_base::file::Unpacked;
use rustc_hash::FxHashMap;
use std::io::Read;
use std::path::Path;

/// A column of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeColumn {
    pub at: usize,
    pub unit: TimeUnit,
}

/// The columns of a kernel summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// Number of columns.
    pub count: usize,
    pub share: Option<usize>,
    pub total: TimeColumn,
    pub instances: usize,
    pub median: Option<TimeColumn>,
    pub min: Option<TimeColumn>,
    pub max: Option<TimeColumn>,
    pub name: usize,
}

impl Columns {
    /// Parses a header line; `None` if it is not the header of a kernel summary.
    pub fn of(line: &str) -> Option<Self> {
        let titles: Vec<&str> = line.trim().split(',').map(|title| title.trim().trim_matches('"')).collect();
        let parsed: Vec<(String, Option<TimeUnit>)> = titles.iter().map(|title| split_title(title)).collect();
        let find = |names: &[&str]| parsed.iter().position(|(name, _)| names.contains(&name.as_str()));
        if find(&["range", "style", "operation", "category"]).is_some() {
            return None;
        }
        let total = find(&["total time"])?;
        let unit = parsed.get(total)?.1?;
        // The oldest releases give the unit of the total only.
        let time = |names: &[&str]| {
            find(names).map(|at| TimeColumn { at, unit: parsed.get(at).and_then(|c| c.1).unwrap_or(unit) })
        };
        Some(Self {
            count: titles.len(),
            share: find(&["time"]),
            total: TimeColumn { at: total, unit },
            instances: find(&["instances"])?,
            median: time(&["med", "median"]),
            min: time(&["min", "minimum"]),
            max: time(&["max", "maximum"]),
            name: find(&["name"])?,
        })
    }
}

/// Splits a title into its name in lower case and the unit of time in parentheses.
fn split_title(title: &str) -> (String, Option<TimeUnit>) {
    let (name, rest) = title.split_once('(').unwrap_or((title, ""));
    (name.trim().to_lowercase(), TimeUnit::parse(rest.trim().trim_end_matches(')')))
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
}

impl TimeUnit {
    /// Parses the abbreviation in a column header.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ns" | "nsec" => Self::Nanoseconds,
            "us" | "usec" | "\u{3bc}s" | "\u{b5}s" => Self::Microseconds,
            "ms" | "msec" => Self::Milliseconds,
            "s" | "sec" => Self::Seconds,
            _ => return None,
        })
    }

    /// Returns the power of ten that converts to nanoseconds.
    fn power(self) -> i32 {
        match self {
            Self::Nanoseconds => 0,
            Self::Microseconds => 3,
            Self::Milliseconds => 6,
            Self::Seconds => 9,
        }
    }

    /// Parses a time, ns.
    pub fn ns(self, text: &str) -> Option<i64> {
        let ns = i64::try_from(scaled(number(text).as_bytes(), self.power())?).ok()?;
        (ns <= MAX_NS).then_some(ns)
    }

    /// Parses a time with one decimal, ns.
    pub fn tenths(self, text: &str) -> Option<f64> {
        let tenths = scaled(number(text).as_bytes(), self.power() + 1)?;
        (tenths <= i128::from(MAX_NS)).then_some(tenths as f64 / 10.0)
    }

    /// Returns true if a time is written with fewer digits than nanoseconds.
    pub fn is_rounded(self, text: &str) -> bool {
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        !text.contains(['e', 'E']) && (decimals as i32) < self.power()
    }
}

/// Removes the commas between thousands.
pub fn number(text: &str) -> String {
    let text = text.trim();
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let mut groups = whole.split(',');
    let leading = groups.next().map_or(0, str::len);
    match (1..=3).contains(&leading) && groups.all(|group| group.len() == 3) {
        true => text.replace(',', ""),
        false => text.to_owned(),
    }
}

pub const FORMAT: Format = Format {
    name: "nsys-kernel-summary",
    description: "an nsys kernel summary CSV",
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
    let text = String::from_utf8_lossy(head);
    find_header(&text).is_some()
}

/// Returns true if a file that begins with `head` has tables of `nsys stats`; a later one may be a kernel summary.
fn may_follow(head: &[u8]) -> bool {
    memchr::memmem::find(head, b"Total Time (").is_some()
}

/// Reads a kernel summary into `trace`.
pub fn read(path: &Path, trace: &mut Trace) -> Result<(), ReadError> {
    let text = load(path)?;
    let (columns, table) = find_header(&text).ok_or_else(|| ReadError::Unrecognised {
        path: path.to_path_buf(),
        expected: "a kernel summary of nsys stats (CSV with `Total Time (ns)`, `Instances` and `Name`)"
            .into(),
        found: match text.lines().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("`{}`", line.chars().take(60).collect::<String>()),
            None => "an empty file".into(),
        },
    })?;
    let mut totals = Totals::default();
    totals.read(columns, table, trace).map_err(|what| ReadError::damaged(path, NAME, what))?;
    if totals.misses_rows() && !table.ends_with('\n') {
        let what = "the text ends within a row, and its shares show that rows are missing";
        return Err(ReadError::damaged(path, NAME, what));
    }
    trace.losses.add(LossKind::SummaryOnly, totals.rows.len() as u64);
    trace.losses.add(LossKind::TimeRounded, totals.rounded);
    trace.losses.add(LossKind::CaptureCut, u64::from(totals.misses_rows()));
    trace.kernel_totals.extend(totals.rows);
    trace.sources.push(Source::new(path, SourceFormat::KernelSummary));
    Ok(())
}

/// Reads the whole text of a file.
fn load(path: &Path) -> Result<String, ReadError> {
    let content = Unpacked::open(path).map_err(|e| ReadError::io(path, e))?;
    let packed = content.is_packed();
    let mut bytes = Vec::new();
    let read = content.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|e| ReadError::content(path, packed, e))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ReadError::damaged(path, NAME, format!("longer than {} MiB", MAX_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| ReadError::damaged(path, NAME, "the text is not UTF-8"))
}

/// Finds the header; returns its columns and the lines of the table.
fn find_header(text: &str) -> Option<(Columns, &str)> {
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if let Some(columns) = Columns::of(line) {
            return Some((columns, table(after)));
        }
        rest = after;
    }
    None
}

/// Returns the text up to the end of the table.
fn table(text: &str) -> &str {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let line_text = line.trim_end();
        if line_text.is_empty() || line.starts_with("Processing [") || line.starts_with("SKIPPED:") {
            break;
        }
        end += line.len();
    }
    text.get(..end).unwrap_or(text)
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
    fn read(&mut self, columns: Columns, table: &str, trace: &mut Trace) -> Result<(), String> {
        // A name that is cut in the middle leaves a quote open.
        if table.bytes().filter(|&b| b == b'"').count() % 2 == 1 {
            return Err("a quote is not closed: the text is truncated".into());
        }
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(table.as_bytes());
        for (row, record) in (1..).zip(reader.records()) {
            let record = record.map_err(|why| format!("row {row}: {why}"))?;
            if record.len() != columns.count {
                return Err(format!("row {row} has {} fields, the header {}", record.len(), columns.count));
            }
            self.add(columns, &record, trace).map_err(|why| format!("row {row}: {why}"))?;
        }
        if self.rows.is_empty() { Err("the table has no rows".into()) } else { Ok(()) }
    }

    fn add(&mut self, columns: Columns, record: &csv::StringRecord, trace: &mut Trace) -> Result<(), String> {
        let cell = |at: usize| record.get(at).unwrap_or_default();
        let total_text = cell(columns.total.at);
        let total = columns.total.unit.ns(total_text);
        let total_ns = total.ok_or_else(|| format!("`{total_text}` is not a time"))?;
        let calls_text = cell(columns.instances);
        let calls = number(calls_text).parse::<u64>().ok().filter(|&calls| calls > 0);
        let calls = calls.ok_or_else(|| format!("`{calls_text}` is not a number of launches"))?;
        self.total_ns = self.total_ns.saturating_add(total_ns);
        self.calls = self.calls.saturating_add(calls);
        if self.total_ns > MOST_TOTAL || self.calls > MOST_TOTAL as u64 {
            return Err("the sum of times or launches overflows".into());
        }
        let rounded = columns.total.unit.is_rounded(number(total_text).as_str());
        self.rounded += u64::from(rounded);
        if let Some(share) = columns.share.and_then(|at| cell(at).trim().parse().ok()).filter(|_| !rounded) {
            self.shares.push((share, total_ns));
        }
        // A rounded zero means shorter than one digit.
        let known = |column: Option<TimeColumn>| {
            column.map(|c| (c.unit, cell(c.at))).filter(|(unit, text)| !rounded || unit.ns(text) != Some(0))
        };
        let mut kernel = KernelTotal {
            name: trace.names.intern(cell(columns.name).trim()),
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

#[cfg(test)]
mod column_tests {
    use super::*;

    #[test]
    fn headers_of_several_releases() {
        for header in [
            "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
            "Time (%),Total Time (us),Instances,Avg (us),Med (us),Min (us),Max (us),StdDev (us),GridXYZ,BlockXYZ,Name",
            "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\r\n",
            "\"Time(%)\",\"Total Time (ns)\",\"Instances\",\"Average\",\"Minimum\",\"Maximum\",\"Name\"",
        ] {
            let columns = Columns::of(header).expect(header);
            assert_eq!((columns.share, columns.total.at, columns.instances), (Some(0), 1, 2), "{header}");
            assert_eq!(columns.name, columns.count - 1);
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
            assert_eq!(Columns::of(header), None, "{header}");
        }
    }

    #[test]
    fn every_unit_is_exact() {
        assert_eq!(TimeUnit::Nanoseconds.ns("1373559"), Some(1_373_559));
        assert_eq!(TimeUnit::Nanoseconds.ns("1,373,559"), Some(1_373_559));
        assert_eq!(TimeUnit::Microseconds.ns("1373.559"), Some(1_373_559));
        assert_eq!(TimeUnit::Milliseconds.ns("1,373.5590"), Some(1_373_559_000));
        assert_eq!(TimeUnit::Seconds.ns("9007199.254740993"), Some(9_007_199_254_740_993));
        assert_eq!(TimeUnit::Seconds.ns("1e-9"), Some(1));
        assert_eq!(TimeUnit::Microseconds.tenths("10.6885"), Some(10_688.5));
        for text in ["", "x", "-1", "1,37", "1,3733,559", "1e30", "n/a"] {
            assert_eq!(TimeUnit::Nanoseconds.ns(text), None, "{text}");
        }
    }

    #[test]
    fn missing_digits_are_noticed() {
        assert!(TimeUnit::Seconds.is_rounded("0.0014"));
        assert!(TimeUnit::Milliseconds.is_rounded("1.3736"));
        assert!(!TimeUnit::Microseconds.is_rounded("1373.559"));
        assert!(!TimeUnit::Nanoseconds.is_rounded("1373559"));
    }
}
