//! Common parts of ncu's CSV pages: surrounding lines, and the columns that identify a launch.

use super::NcuError;
use super::model::{CounterSet, LaunchCounters, Metric, MetricId};
use super::nvtx;
use super::unit::{Scaled, Unit};
use crate::decimal::ungrouped;
use crate::model::{LossKind, RangeStyle};
use csv::StringRecord;
use std::io::{self, BufRead, BufReader, Read};

/// No line of ncu comes near this; an input without line ends must not fill the memory.
const LINE_LIMIT: usize = 64 << 20;

/// The CSV alone: what stands before the header (the output of the program, ncu's `==PROF==` lines) and `==` lines
/// between rows are passed over.
pub struct PageLines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    at: usize,
    in_page: bool,
    in_quotes: bool,
    /// True if the last line had no line end.
    unfinished: bool,
}

impl<R: Read> PageLines<R> {
    pub fn new(input: R) -> Self {
        Self {
            input: BufReader::new(input),
            line: Vec::new(),
            at: 0,
            in_page: false,
            in_quotes: false,
            unfinished: false,
        }
    }

    /// Loads the next line that belongs to the page; `false` at the end.
    fn advance(&mut self) -> io::Result<bool> {
        loop {
            self.line.clear();
            self.at = 0;
            let read = (&mut self.input).take(LINE_LIMIT as u64).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(false);
            }
            if read == LINE_LIMIT {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            if !self.in_page {
                let text = self.line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.line);
                if !is_header(text) {
                    continue;
                }
                self.in_page = true;
                self.at = self.line.len() - text.len();
            } else if !self.in_quotes && self.line.starts_with(b"==") {
                continue;
            }
            self.unfinished = !self.line.ends_with(b"\n");
            let quotes = memchr::memchr_iter(b'"', &self.line).count();
            self.in_quotes ^= quotes % 2 == 1;
            return Ok(true);
        }
    }
}

impl<R: Read> Read for PageLines<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.line.len() && !self.advance()? {
            return Ok(0);
        }
        let count = self.line.get(self.at..).unwrap_or_default().read(out)?;
        self.at += count;
        Ok(count)
    }
}

/// Returns true if a line is the header of a page.
pub fn is_header(line: &[u8]) -> bool {
    line.starts_with(b"\"ID\",\"") || line.starts_with(b"ID,Process ID")
}

/// Rows of a page.
pub struct Page<R: Read> {
    rows: csv::Reader<PageLines<R>>,
    raw: csv::ByteRecord,
    /// Smallest number of fields of a complete row.
    pub least: usize,
    /// Number of fields of the last row.
    last: usize,
}

impl<R: Read> Page<R> {
    /// Opens a page and reads its header.
    pub fn open(input: R) -> Result<(Self, StringRecord), NcuError> {
        let rows =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(PageLines::new(input));
        let mut page = Self { rows, raw: csv::ByteRecord::new(), least: 0, last: 0 };
        let header = page.next()?.ok_or(NcuError::NoHeader)?;
        page.least = header.len();
        Ok((page, header))
    }

    /// Reads the next row; invalid UTF-8 is replaced.
    pub fn next(&mut self) -> Result<Option<StringRecord>, NcuError> {
        match self.rows.read_byte_record(&mut self.raw) {
            Ok(true) => {
                self.last = self.raw.len();
                Ok(Some(StringRecord::from_byte_record_lossy(self.raw.clone())))
            }
            Ok(false) if self.is_cut() => Err(NcuError::Cut),
            Ok(false) => Ok(None),
            Err(error) => Err(page_error(error)),
        }
    }

    /// Returns true if the page ends within a row. A missing line end alone proves nothing: editors drop it.
    fn is_cut(&self) -> bool {
        let lines = self.rows.get_ref();
        lines.unfinished && (lines.in_quotes || self.last < self.least)
    }
}

fn page_error(error: csv::Error) -> NcuError {
    match error.into_kind() {
        csv::ErrorKind::Io(source) if source.kind() == io::ErrorKind::FileTooLarge => {
            NcuError::LineTooLong { limit: LINE_LIMIT }
        }
        csv::ErrorKind::Io(source) => NcuError::Io { what: "an ncu CSV page", source },
        kind => NcuError::Csv(format!("{kind:?}")),
    }
}

const PUSH_POP: &str = "Push/Pop_Range";
const START_END: &str = "Start/Stop_Range";

/// Columns that identify a launch. What each is called, or what the name of the last two has in it.
const COLUMNS: [&str; 14] = [
    "ID",
    "Process ID",
    "Process Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
    "Host Name",
    "Kernel Time",
    PUSH_POP,
    START_END,
];

/// Positions of the columns that identify a launch.
#[derive(Debug)]
pub struct LaunchColumns(Vec<(&'static str, usize)>);

impl LaunchColumns {
    pub fn find(header: &StringRecord) -> Self {
        let known = |(index, name): (usize, &str)| {
            let name = if name.trim() == "Function Name" { "Kernel Name" } else { name.trim() };
            let is = |column: &&&str| match **column {
                PUSH_POP | START_END => name.contains(**column),
                column => name == column,
            };
            Some((*COLUMNS.iter().find(is)?, index))
        };
        Self(header.iter().enumerate().filter_map(known).collect())
    }

    /// Returns true if a column identifies the launch and is not a metric.
    pub fn contains(&self, index: usize) -> bool {
        self.0.iter().any(|(_, at)| *at == index)
    }

    fn cell<'r>(&self, row: &'r StringRecord, name: &str) -> Option<&'r str> {
        let (_, at) = self.0.iter().rfind(|(known, _)| *known == name)?;
        row.get(*at).map(str::trim).filter(|text| !text.is_empty())
    }

    /// Returns the number of the launch; `None` if the row is not ncu's.
    pub fn id(&self, row: &StringRecord) -> Option<u64> {
        self.cell(row, "ID")?.parse().ok()
    }

    /// Returns the launch of a row.
    pub fn launch(&self, row: &StringRecord) -> Option<LaunchCounters> {
        let get = |name| self.cell(row, name);
        let number = |name| get(name)?.parse::<u32>().ok();
        let mut launch = LaunchCounters {
            id: self.id(row)?,
            process: number("Process ID"),
            device: number("Device"),
            kernel: get("Kernel Name")?.to_owned(),
            grid: get("Grid Size").and_then(dimensions),
            block: get("Block Size").and_then(dimensions),
            compute_capability: get("CC").and_then(compute_capability),
            ..LaunchCounters::default()
        };
        nvtx::ranges(get(PUSH_POP).unwrap_or_default(), RangeStyle::PushPop, &mut launch.nvtx);
        nvtx::ranges(get(START_END).unwrap_or_default(), RangeStyle::StartEnd, &mut launch.nvtx);
        Some(launch)
    }
}

/// Columns of the details page beside those of [`COLUMNS`].
pub const DETAILS: [&str; 9] = [
    "Section Name",
    "Metric Name",
    "Metric Unit",
    "Metric Value",
    "Rule Name",
    "Rule Type",
    "Rule Description",
    "Estimated Speedup Type",
    "Estimated Speedup",
];

/// Columns that name the program and the machine.
const MACHINE: [&str; 2] = ["Process Name", "Host Name"];

/// Writes a page again with the columns of launches and metrics, whose texts pass `clean`, and without the lines around it.
///
/// # Errors
/// Fails when the input is not a page of ncu, or the copy cannot be written.
pub fn write_launches(
    from: impl Read,
    to: &mut dyn io::Write,
    clean: &dyn Fn(&str) -> String,
) -> Result<(), NcuError> {
    let (mut page, header) = Page::open(from)?;
    let launch = LaunchColumns::find(&header);
    let is_shared = |(at, name): (usize, &str)| {
        let is_known = launch.contains(at) || DETAILS.contains(&name) || name.contains("__");
        (is_known && !MACHINE.contains(&name)).then_some(at)
    };
    let shared: Vec<usize> = header.iter().map(str::trim).enumerate().filter_map(is_shared).collect();
    let mut copy = csv::WriterBuilder::new().quote_style(csv::QuoteStyle::Always).from_writer(to);
    let mut next = Some(header);
    while let Some(row) = next {
        let cells = shared.iter().map(|at| clean(row.get(*at).unwrap_or_default()));
        copy.write_record(cells).map_err(page_error)?;
        next = page.next()?;
    }
    copy.flush().map_err(|source| NcuError::Io { what: "an ncu CSV page", source })
}

/// Parses `(256, 1, 1)`.
fn dimensions(text: &str) -> Option<[u32; 3]> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    let mut parts = inner.split(',').map(|part| part.trim().parse::<u32>());
    let mut next = || parts.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// Parses `9.0`.
fn compute_capability(text: &str) -> Option<(u8, u8)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Content of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Nothing was printed, or the tool says that it has no value (`n/a`, `nan`, `inf`).
    Missing,
    /// A number. What each instance of the unit counted, which a page may list behind it, is left out.
    Number(f64),
    /// A word.
    Text(&'a str),
    /// Digits that are no number as ncu writes them: better lost than misread.
    Malformed,
}

/// Reads a cell: `1,234.50`, `n/a`, `all`, `5504 (64; 64; 48)`, `5504 (0: 64; 1: 48)`.
pub fn parse_cell(text: &str) -> Cell<'_> {
    let text = text.trim();
    if MISSING.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Cell::Missing;
    }
    if let Some(value) = number(text) {
        return Cell::Number(value);
    }
    if let Some(cell) = with_instances(text) {
        return cell;
    }
    let looks_numeric = text.bytes().any(|b| b.is_ascii_digit())
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b',' | b'.' | b'-' | b'+' | b' ' | b';' | b'\''));
    if looks_numeric { Cell::Malformed } else { Cell::Text(text) }
}

impl CounterSet {
    /// Adds the value of a metric to a launch; an empty cell is a value that is missing.
    pub(super) fn add_cell(
        &mut self,
        launch: &mut LaunchCounters,
        id: MetricId,
        text: &str,
        unit: Option<Scaled>,
    ) {
        match parse_cell(text) {
            Cell::Missing => launch.missing.push(id),
            Cell::Text(text) => launch.texts.push((id, text.into())),
            Cell::Malformed => self.losses.add(LossKind::CounterMalformed, 1),
            Cell::Number(value) => {
                self.losses.add(LossKind::UnitUnknown, u64::from(unit.is_none()));
                let (unit, value) =
                    unit.map_or((Unit::UNSTATED, value), |unit| (unit.unit, unit.apply(value)));
                launch.metrics.push(Metric { id, unit, value });
            }
        }
    }
}

const MISSING: [&str; 8] = ["", "n/a", "nan", "-nan", "inf", "-inf", "(!) n/a", "(!) nan"];

/// Parses a number with or without thousands commas.
pub fn number(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let value = ungrouped(digits).parse::<f64>().ok().filter(|value| value.is_finite())?;
    Some(if digits.len() < text.len() { -value } else { value })
}

/// Splits `total (a; b; c)` or `total (id: a; id: b)`; the total may be missing, as in `(burn)`.
fn with_instances(text: &str) -> Option<Cell<'_>> {
    let open = text.find('(')?;
    let inner = text.get(open + 1..)?.strip_suffix(')')?;
    let head = text.get(..open)?.trim_end();
    if let Some(value) = number(head) {
        return Some(Cell::Number(value));
    }
    let first = inner.split(';').next()?;
    let listed = first.rsplit_once(": ").map_or(first, |(_, value)| value).trim();
    match (head.is_empty(), listed) {
        // `all (all)`: the aggregate is the word.
        (false, one) if one == head => Some(Cell::Text(head)),
        (true, one) if !inner.contains(';') && !one.is_empty() => match number(one) {
            Some(value) => Some(Cell::Number(value)),
            None => Some(Cell::Text(one)),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> String {
        let mut out = String::new();
        PageLines::new(text.as_bytes()).read_to_string(&mut out).expect("readable");
        out
    }

    #[test]
    fn lines_around_the_page_are_passed_over() {
        let text = "loading model\n==PROF== Connected to process 1\n\"ID\",\"Process ID\"\n==WARNING== x\n\"0\",\"a\n== b\"\n==PROF== Disconnected\n";
        assert_eq!(kept(text), "\"ID\",\"Process ID\"\n\"0\",\"a\n== b\"\n");
    }

    #[test]
    fn a_byte_order_mark_is_no_obstacle() {
        assert_eq!(kept("\u{feff}\"ID\",\"Process ID\"\n"), "\"ID\",\"Process ID\"\n");
    }

    #[test]
    fn dimensions_are_three() {
        assert_eq!(dimensions("(256, 1, 1)"), Some([256, 1, 1]));
        assert_eq!(dimensions("(256, 1)"), None);
        assert_eq!(dimensions("256"), None);
    }
}

#[cfg(test)]
mod cell_tests {
    use super::*;

    fn plain(value: f64) -> Cell<'static> {
        Cell::Number(value)
    }

    #[test]
    fn numbers() {
        assert_eq!(parse_cell("0"), plain(0.0));
        assert_eq!(parse_cell("1,048,576"), plain(1_048_576.0));
        assert_eq!(parse_cell("152,646,341,463.41"), plain(152_646_341_463.41));
        assert_eq!(parse_cell(" -3.5 "), plain(-3.5));
        assert_eq!(parse_cell("1e3"), plain(1000.0));
    }

    #[test]
    fn a_decimal_comma_is_not_misread() {
        assert_eq!(parse_cell("1.048,58"), Cell::Malformed);
        assert_eq!(parse_cell("3,18"), Cell::Malformed);
        assert_eq!(parse_cell("1 048 576"), Cell::Malformed);
    }

    #[test]
    fn absent_and_words() {
        assert_eq!(parse_cell(""), Cell::Missing);
        assert_eq!(parse_cell("n/a"), Cell::Missing);
        assert_eq!(parse_cell("nan"), Cell::Missing);
        assert_eq!(parse_cell("PolicySpread"), Cell::Text("PolicySpread"));
        assert_eq!(parse_cell("NVIDIA H200"), Cell::Text("NVIDIA H200"));
    }

    #[test]
    fn instances_follow_the_total() {
        assert_eq!(parse_cell("4096 (4096)"), Cell::Number(4096.0));
        assert_eq!(parse_cell("5,504 (64; 64; 48)"), Cell::Number(5504.0));
        assert_eq!(parse_cell("176 (0: 64; 512: 112)"), Cell::Number(176.0));
        assert_eq!(parse_cell("all (0: all)"), Cell::Text("all"));
        assert_eq!(parse_cell("(burn)"), Cell::Text("burn"));
    }
}
