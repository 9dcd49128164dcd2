//! Rows in the formats of the command, and as a chart: one bar a row.

use std::fmt::Write as _;

use arrow::array::Array as _;
use arrow::csv;
use arrow::json::WriterBuilder;
use arrow::json::writer::JsonArray;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use roofgap_base::text::cut;

use super::Answer;
use crate::LakeError;

/// Text of a missing value.
pub const NONE: &str = "-";

impl Answer {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.batches.iter().map(arrow::array::RecordBatch::num_rows).sum()
    }

    /// Tells whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the names of the columns.
    pub fn names(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// Tells whether a column has numbers.
    pub fn is_numeric(&self, column: usize) -> bool {
        self.schema.fields().get(column).is_some_and(|field| field.data_type().is_numeric())
    }

    /// Returns the rows as text; a missing value is `None`. Fractions have at most `digits` significant digits, or all of them.
    pub fn rows(&self, digits: Option<usize>) -> Result<Vec<Vec<Option<String>>>, LakeError> {
        let options = FormatOptions::default();
        let mut rows = Vec::with_capacity(self.len());
        for batch in &self.batches {
            let columns = batch.columns();
            let formatters = columns.iter().map(|column| ArrayFormatter::try_new(column, &options));
            let formatters = formatters.collect::<Result<Vec<_>, _>>()?;
            for row in 0..batch.num_rows() {
                let cell = |(column, formatter): (&arrow::array::ArrayRef, &ArrayFormatter<'_>)| {
                    let text = (!column.is_null(row)).then(|| formatter.value(row).to_string())?;
                    let is_float = column.data_type().is_floating();
                    Some(match digits {
                        Some(digits) if is_float => shorten(&text, digits),
                        _ => text,
                    })
                };
                rows.push(columns.iter().zip(&formatters).map(cell).collect());
            }
        }
        Ok(rows)
    }

    /// Returns the values of a column as numbers; a missing value is `None`.
    pub fn numbers(&self, column: usize) -> Result<Vec<Option<f64>>, LakeError> {
        let rows = self.rows(None)?;
        let number = |row: &Vec<Option<String>>| row.get(column)?.as_deref()?.parse().ok();
        Ok(rows.iter().map(number).collect())
    }

    /// Formats a table for a terminal. Columns of numbers are aligned to the right.
    pub fn table(&self) -> Result<String, LakeError> {
        let rows = self.rows(Some(6))?;
        let names = self.names();
        let cell = |row: &Vec<Option<String>>, at: usize| match row.get(at) {
            // A line break in a value would look like a row.
            Some(Some(text)) => text.replace(['\n', '\r', '\t'], " "),
            _ => NONE.to_owned(),
        };
        let width = |at: usize, name: &str| {
            let cells = rows.iter().map(|row| cell(row, at).chars().count());
            cells.max().unwrap_or(0).max(name.chars().count())
        };
        let widths: Vec<usize> = names.iter().enumerate().map(|(at, name)| width(at, name)).collect();
        let mut text = String::new();
        let mut line = |cells: Vec<String>| {
            let mut row = String::new();
            for ((at, cell), width) in cells.iter().enumerate().zip(&widths) {
                let gap = if at == 0 { "" } else { "  " };
                let _ = match self.is_numeric(at) {
                    true => write!(row, "{gap}{cell:>width$}"),
                    false => write!(row, "{gap}{cell:<width$}"),
                };
            }
            text.push_str(row.trim_end());
            text.push('\n');
        };
        line(names.iter().map(|name| (*name).to_owned()).collect());
        for row in &rows {
            line((0..names.len()).map(|at| cell(row, at)).collect());
        }
        let count = rows.len();
        let _ = writeln!(text, "({count} row{})", if count == 1 { "" } else { "s" });
        Ok(text)
    }

    /// Formats a JSON array of objects.
    pub fn json(&self) -> Result<Vec<u8>, LakeError> {
        let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, JsonArray>(Vec::new());
        for batch in &self.batches {
            writer.write(batch)?;
        }
        writer.finish()?;
        let mut bytes = writer.into_inner();
        if bytes.is_empty() {
            bytes.extend(b"[]");
        }
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Formats CSV with a header.
    pub fn csv(&self) -> Result<Vec<u8>, LakeError> {
        let mut bytes = Vec::new();
        let mut header = true;
        if self.batches.is_empty() {
            bytes.extend(self.names().join(",").into_bytes());
            bytes.push(b'\n');
        }
        for batch in &self.batches {
            csv::WriterBuilder::new().with_header(header).build(&mut bytes).write(batch)?;
            header = false;
        }
        Ok(bytes)
    }

    /// Formats a Parquet file.
    pub fn parquet(&self) -> Result<Vec<u8>, LakeError> {
        let write = || {
            let properties =
                WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?));
            let mut bytes = Vec::new();
            let mut writer = ArrowWriter::try_new(&mut bytes, self.schema.clone(), Some(properties.build()))?;
            for batch in &self.batches {
                writer.write(batch)?;
            }
            writer.close()?;
            Ok(bytes)
        };
        write().map_err(|source| LakeError::Parquet { path: "the answer".to_owned(), source })
    }
}

/// Shortens a number to some significant digits, but never the digits before the point.
fn shorten(text: &str, digits: usize) -> String {
    let Ok(value) = text.parse::<f64>() else {
        return text.to_owned();
    };
    if value == 0.0 || !value.is_finite() {
        return text.to_owned();
    }
    let before = value.abs().log10().floor() as i64 + 1;
    let decimals = (digits as i64 - before).clamp(0, 15) as usize;
    let fixed = format!("{value:.decimals$}");
    if fixed.contains('.') { fixed.trim_end_matches('0').trim_end_matches('.').to_owned() } else { fixed }
}

/// Longest label, characters.
const LABEL: usize = 48;

/// Draws the last column of numbers, one bar a row, labelled by the columns that are no numbers.
pub fn bars(answer: &Answer, width: usize) -> Result<String, LakeError> {
    let names = answer.names();
    let value = (0..names.len()).rev().find(|at| answer.is_numeric(*at));
    let value = value.ok_or_else(|| {
        LakeError::Usage(format!("a chart needs a column of numbers; the answer has {}", names.join(", ")))
    })?;
    let labels: Vec<usize> = (0..names.len()).filter(|at| !answer.is_numeric(*at)).collect();
    let rows = answer.rows(Some(6))?;
    let numbers = answer.numbers(value)?;
    let label = |row: &Vec<Option<String>>| {
        let parts = labels.iter().filter_map(|at| row.get(*at)?.as_deref());
        let text = parts.collect::<Vec<_>>().join(" ").replace(['\n', '\r', '\t'], " ");
        cut(&text, LABEL)
    };
    let labels: Vec<String> = rows.iter().map(label).collect();
    let label_width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let most = numbers.iter().flatten().fold(0.0_f64, |most, value| most.max(value.abs()));
    let values: Vec<&str> =
        rows.iter().map(|row| row.get(value).and_then(Option::as_deref).unwrap_or(NONE)).collect();
    let value_width = values.iter().map(|value| value.len()).max().unwrap_or(0);
    let space = width.saturating_sub(label_width + value_width + 3).max(10);
    let mut text = format!("{}\n", names.get(value).unwrap_or(&""));
    for ((label, shown), number) in labels.iter().zip(values).zip(numbers) {
        let share = number.filter(|_| most > 0.0).map_or(0.0, |number| number.abs() / most);
        let bar = bar(share, space);
        let line = format!("{label:<label_width$} {shown:>value_width$} {bar}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    Ok(text)
}

/// Draws a bar in eighths of a character.
fn bar(share: f64, space: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * space as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(EIGHTHS.get(eighths % 8).filter(|c| **c != ' '));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
    use std::sync::Arc;

    fn answer() -> Answer {
        let batch = RecordBatch::try_from_iter([
            ("name", Arc::new(StringArray::from(vec![Some("a"), Some("b\nc"), None])) as _),
            ("ns", Arc::new(Int64Array::from(vec![Some(1_234_567_890), None, Some(3)])) as _),
            (
                "pct",
                Arc::new(Float64Array::from(vec![Some(12.345_678_9), Some(0.000_012_345_67), None])) as _,
            ),
        ]);
        let batch = batch.unwrap();
        Answer { schema: batch.schema(), batches: vec![batch] }
    }

    #[test]
    fn a_table_aligns_numbers_and_keeps_a_row_on_a_line() {
        let expected = "name          ns           pct\n\
                        a     1234567890       12.3457\n\
                        b c            -  0.0000123457\n\
                        -              3             -\n\
                        (3 rows)\n";
        assert_eq!(answer().table().unwrap(), expected);
    }

    #[test]
    fn json_and_csv_keep_missing_values_apart() {
        let json: serde_json::Value = serde_json::from_slice(&answer().json().unwrap()).unwrap();
        assert_eq!(json[1]["ns"], serde_json::Value::Null);
        assert_eq!(json[0]["ns"], 1_234_567_890_i64);
        let csv = String::from_utf8(answer().csv().unwrap()).unwrap();
        assert!(csv.starts_with("name,ns,pct\na,1234567890,12.3456789\n"), "{csv}");
        let none = Answer { batches: Vec::new(), ..answer() };
        assert_eq!(none.json().unwrap(), b"[]\n");
        assert_eq!(none.csv().unwrap(), b"name,ns,pct\n");
    }

    #[test]
    fn the_largest_value_fills_the_width() {
        let names: ArrayRef = Arc::new(StringArray::from(vec!["a", "bc", "d"]));
        let values: ArrayRef = Arc::new(Float64Array::from(vec![Some(10.0), Some(5.0), None]));
        let answer = |columns: Vec<(&str, ArrayRef)>| {
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            Answer { schema: batch.schema(), batches: vec![batch] }
        };
        let text = bars(&answer(vec![("name", Arc::clone(&names)), ("pct", values)]), 27).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let full = "█".repeat(20);
        let half = "█".repeat(10);
        assert_eq!(lines, ["pct", &format!("a  10 {full}"), &format!("bc  5 {half}"), "d   -"]);
        let error = bars(&answer(vec![("name", names)]), 27).unwrap_err().to_string();
        assert_eq!(error, "a chart needs a column of numbers; the answer has name");
    }
}
