//! Tables of `nsys stats`, as CSV or as text in columns, as written to a file or as printed with titles around them.
//!
//! `summary` reads the totals of kernels, `gpu_trace` the timeline of GPU work.

pub mod gpu_trace;
pub mod summary;

use crate::decimal::{MAX_NS, scaled, ungrouped};
use crate::{ReadError, input};
use std::ops::Range;
use std::path::Path;

/// A table with its rows.
#[derive(Debug)]
pub struct Table<'t> {
    /// Number of columns.
    width: usize,
    /// Lines of the rows.
    lines: &'t str,
    /// Characters of each column in a line; `None` for CSV.
    spans: Option<Vec<Range<usize>>>,
}

impl<'t> Table<'t> {
    /// Finds the first table whose titles a function accepts; returns what the function made of them.
    pub fn find<C>(text: &'t str, columns: impl Fn(&[Title]) -> Option<C>) -> Option<(C, Self)> {
        let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
        while !rest.is_empty() {
            let (line, after) = split_line(rest);
            let (rule, below) = split_line(after);
            let spans = column_spans(rule);
            let titles: Vec<&str> = match &spans {
                Some(spans) => cells(line, spans).unwrap_or_default(),
                None => line.split(',').map(|title| title.trim().trim_matches('"')).collect(),
            };
            let titles: Vec<Title> = titles.into_iter().map(Title::parse).collect();
            if let Some(found) = columns(&titles) {
                let lines = until_end(if spans.is_some() { below } else { after });
                return Some((found, Self { width: titles.len(), lines, spans }));
            }
            rest = after;
        }
        None
    }

    /// Returns true if the last line has no end.
    pub fn is_cut(&self) -> bool {
        !self.lines.ends_with('\n')
    }

    /// Passes the cells of each row to a function, with the number of the row. A row with another number of cells has the
    /// reason in their place.
    ///
    /// # Errors
    /// Fails when a quote is not closed, or when the function does.
    pub fn each(
        &self,
        mut row: impl FnMut(usize, Result<&csv::StringRecord, String>) -> Result<(), String>,
    ) -> Result<(), String> {
        if let Some(spans) = &self.spans {
            for (number, line) in (1..).zip(self.lines.lines()) {
                match cells(line, spans) {
                    Some(cells) => row(number, Ok(&csv::StringRecord::from(cells)))?,
                    None => row(number, Err("not in the columns of the header".into()))?,
                }
            }
            return Ok(());
        }
        // A name that is cut in the middle leaves a quote open.
        if self.lines.bytes().filter(|&b| b == b'"').count() % 2 == 1 {
            return Err("a quote is not closed: the text is truncated".into());
        }
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(self.lines.as_bytes());
        let mut record = csv::StringRecord::new();
        for number in 1.. {
            match reader.read_record(&mut record) {
                Ok(true) if record.len() == self.width => row(number, Ok(&record))?,
                Ok(true) => row(number, Err(format!("{} fields, the header {}", record.len(), self.width)))?,
                Ok(false) => break,
                Err(why) => return Err(format!("row {number}: {why}")),
            }
        }
        Ok(())
    }
}

/// Returns the first line and the text behind it.
fn split_line(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}

/// Returns the columns that a line of dashes under the titles marks; `None` for any other line.
fn column_spans(line: &str) -> Option<Vec<Range<usize>>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for (at, byte) in line.trim_end().bytes().enumerate() {
        match (byte, spans.last_mut()) {
            (b'-', Some(span)) if span.end == at => span.end += 1,
            (b'-', _) => spans.push(at..at + 1),
            (b' ' | b'+', _) => {}
            _ => return None,
        }
    }
    (spans.len() > 1).then_some(spans)
}

/// Returns the cells of a line in columns; `None` if there is text between the columns.
fn cells<'t>(line: &'t str, spans: &[Range<usize>]) -> Option<Vec<&'t str>> {
    let mut characters = line.trim_end().char_indices().peekable();
    let mut number = 0;
    let mut cells = Vec::with_capacity(spans.len());
    for span in spans {
        while number < span.start
            && let Some((_, between)) = characters.next()
        {
            if !matches!(between, ' ' | '|') {
                return None;
            }
            number += 1;
        }
        let start = characters.peek().map_or(line.len(), |(at, _)| *at);
        while number < span.end && characters.next().is_some() {
            number += 1;
        }
        let end = characters.peek().map_or(line.len(), |(at, _)| *at);
        cells.push(line.get(start..end)?.trim());
    }
    characters.all(|(_, behind)| matches!(behind, ' ' | '|')).then_some(cells)
}

/// Returns the text up to the end of the table.
fn until_end(text: &str) -> &str {
    let is_end = |line: &str| {
        let outside = ["Processing [", "SKIPPED:"].iter().any(|start| line.starts_with(start));
        line.trim().is_empty() || outside || column_spans(line).is_some()
    };
    let lines = text.split_inclusive('\n').take_while(|line| !is_end(line));
    text.get(..lines.map(str::len).sum()).unwrap_or(text)
}

/// The title of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Title {
    /// Name in lower case.
    pub name: String,
    /// Unit in parentheses; empty for none.
    pub unit: String,
}

impl Title {
    fn parse(title: &str) -> Self {
        let (name, unit) = title.split_once('(').unwrap_or((title, ""));
        Self { name: name.trim().to_lowercase(), unit: unit.trim().trim_end_matches(')').to_owned() }
    }
}

/// A unit of time, by the power of ten that converts it to nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeUnit(i32);

impl TimeUnit {
    /// Parses the abbreviation in a column header.
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self(match text {
            "ns" | "nsec" => 0,
            "us" | "usec" | "\u{3bc}s" | "\u{b5}s" => 3,
            "ms" | "msec" => 6,
            "s" | "sec" => 9,
            _ => return None,
        }))
    }

    /// Parses a time, ns.
    pub fn ns(self, text: &str) -> Option<i64> {
        let ns = i64::try_from(scaled(ungrouped(text).as_bytes(), self.0)?).ok()?;
        (ns <= MAX_NS).then_some(ns)
    }

    /// Parses a time with one decimal, ns.
    pub fn tenths(self, text: &str) -> Option<f64> {
        let tenths = scaled(ungrouped(text).as_bytes(), self.0 + 1)?;
        (tenths <= i128::from(MAX_NS)).then_some(tenths as f64 / 10.0)
    }

    /// Returns true if a time is written with fewer digits than nanoseconds.
    pub fn is_rounded(self, text: &str) -> bool {
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        !text.contains(['e', 'E']) && (decimals as i32) < self.0
    }
}

/// Returns true if a name was cut to fit its column.
fn is_cut(name: &str) -> bool {
    name.ends_with('\u{2026}')
}

/// Reads the whole text of a file of at most `most` bytes.
fn load(path: &Path, format: &'static str, most: u64) -> Result<String, ReadError> {
    let bytes = input::load(path, format, most)?;
    String::from_utf8(bytes).map_err(|_| ReadError::damaged(path, format, "the text is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_exact() {
        assert_eq!(TimeUnit(0).ns("1373559"), Some(1_373_559));
        assert_eq!(TimeUnit(0).ns("1,373,559"), Some(1_373_559));
        assert_eq!(TimeUnit(3).ns("1373.559"), Some(1_373_559));
        assert_eq!(TimeUnit(6).ns("1,373.5590"), Some(1_373_559_000));
        assert_eq!(TimeUnit(9).ns("9007199.254740993"), Some(9_007_199_254_740_993));
        assert_eq!(TimeUnit(9).ns("1e-9"), Some(1));
        assert_eq!(TimeUnit(3).tenths("10.6885"), Some(10_688.5));
        for text in ["", "x", "-1", "1,37", "1,3733,559", "1e30", "n/a"] {
            assert_eq!(TimeUnit(0).ns(text), None, "{text}");
        }
    }

    #[test]
    fn missing_digits_are_noticed() {
        assert!(TimeUnit(9).is_rounded("0.0014"));
        assert!(TimeUnit(6).is_rounded("1.3736"));
        assert!(!TimeUnit(3).is_rounded("1373.559"));
        assert!(!TimeUnit(0).is_rounded("1373559"));
    }

    #[test]
    fn columns_are_under_the_dashes() {
        let spans = column_spans(" ----  -----\r").unwrap();
        assert_eq!(spans, [1..5, 7..12]);
        assert_eq!(cells("    7  a\u{2026}b d  \r", &spans), Some(vec!["7", "a\u{2026}b d"]));
        assert_eq!(cells("    7", &spans), Some(vec!["7", ""]));
        assert_eq!(cells("    77 a", &spans), None, "text between the columns");
        assert_eq!(cells("    7  abcdefg", &spans), None, "text behind the columns");
        let framed = column_spans("+----+----+").unwrap();
        assert_eq!(cells("|  1 | b  |", &framed), Some(vec!["1", "b"]));
        for other in ["", " ---- ", "-- a --", "Time (%)"] {
            assert_eq!(column_spans(other), None, "{other}");
        }
    }
}
