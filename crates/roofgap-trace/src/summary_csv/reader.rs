//! Reads kernel totals from a file.

use super::columns::{Columns, TimeColumn, number};
use crate::format::Detected;
use crate::{Format, KernelTotal, LossKind, NameId, ReadError, Source, SourceFormat, Trace};
use roofgap_base::file::Unpacked;
use rustc_hash::FxHashMap;
use std::io::Read;
use std::path::Path;

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

/// Reason a table cannot be read.
#[derive(Debug, thiserror::Error)]
enum TableError {
    #[error("a quote is not closed: the text is truncated")]
    OpenQuote,
    #[error("row {row}: {source}")]
    Csv { row: usize, source: csv::Error },
    #[error("row {row} has {found} fields, the header {expected}")]
    Fields { row: usize, found: usize, expected: usize },
    #[error("row {row}: {source}")]
    Row { row: usize, source: RowError },
    #[error("the table has no rows")]
    Empty,
}

/// Reason a row cannot be read.
#[derive(Debug, thiserror::Error)]
enum RowError {
    #[error("`{0}` is not a time")]
    Time(String),
    #[error("`{0}` is not a number of launches")]
    Launches(String),
    #[error("the sum of times or launches overflows")]
    Overflow,
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
    fn read(&mut self, columns: Columns, table: &str, trace: &mut Trace) -> Result<(), TableError> {
        // A name that is cut in the middle leaves a quote open.
        if table.bytes().filter(|&b| b == b'"').count() % 2 == 1 {
            return Err(TableError::OpenQuote);
        }
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(table.as_bytes());
        for (row, record) in reader.records().enumerate() {
            let row = row + 1;
            let record = record.map_err(|source| TableError::Csv { row, source })?;
            if record.len() != columns.count {
                return Err(TableError::Fields { row, found: record.len(), expected: columns.count });
            }
            self.add(columns, &record, trace).map_err(|source| TableError::Row { row, source })?;
        }
        match self.rows.is_empty() {
            true => Err(TableError::Empty),
            false => Ok(()),
        }
    }

    fn add(
        &mut self,
        columns: Columns,
        record: &csv::StringRecord,
        trace: &mut Trace,
    ) -> Result<(), RowError> {
        let cell = |at: usize| record.get(at).unwrap_or_default();
        let total_text = cell(columns.total.at);
        let total = columns.total.unit.ns(total_text);
        let total_ns = total.ok_or_else(|| RowError::Time(total_text.to_owned()))?;
        let calls = number(cell(columns.instances)).parse::<u64>().ok().filter(|&calls| calls > 0);
        let calls = calls.ok_or_else(|| RowError::Launches(cell(columns.instances).to_owned()))?;
        self.total_ns = self.total_ns.saturating_add(total_ns);
        self.calls = self.calls.saturating_add(calls);
        if self.total_ns > MOST_TOTAL || self.calls > MOST_TOTAL as u64 {
            return Err(RowError::Overflow);
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
        let kernel = KernelTotal {
            name: trace.names.intern(cell(columns.name).trim()),
            total_ns,
            calls,
            median_ns: known(columns.median).and_then(|(unit, text)| unit.tenths(text)),
            min_ns: known(columns.min).and_then(|(unit, text)| unit.ns(text)),
            max_ns: known(columns.max).and_then(|(unit, text)| unit.ns(text)),
        };
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
