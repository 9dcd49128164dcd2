//! Rows as a chart in the terminal: one bar a row.

use std::fmt::Write as _;

use roofgap_base::text::cut;

use super::answer::NONE;
use super::engine::Answer;
use crate::error::LakeError;

/// Longest label, characters.
const LABEL: usize = 48;

/// Draws the last column of numbers, one bar a row, labelled by the columns that are no numbers.
pub fn bars(answer: &Answer, width: usize) -> Result<String, LakeError> {
    let names = answer.names();
    let value = (0..names.len()).rev().find(|at| answer.is_numeric(*at));
    let value = value.ok_or_else(|| LakeError::NoChart { columns: names.join(", ") })?;
    draw(answer, value, width)
}

/// Draws one column of numbers.
pub fn draw(answer: &Answer, value: usize, width: usize) -> Result<String, LakeError> {
    let names = answer.names();
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
    use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};
    use std::sync::Arc;

    fn answer(columns: Vec<(&str, ArrayRef)>) -> Answer {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        Answer { schema: batch.schema(), batches: vec![batch] }
    }

    #[test]
    fn the_largest_value_fills_the_width() {
        let names: ArrayRef = Arc::new(StringArray::from(vec!["a", "bc", "d"]));
        let values: ArrayRef = Arc::new(Float64Array::from(vec![Some(10.0), Some(5.0), None]));
        let text = bars(&answer(vec![("name", Arc::clone(&names)), ("pct", values)]), 27).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let full = "█".repeat(20);
        let half = "█".repeat(10);
        assert_eq!(lines, ["pct", &format!("a  10 {full}"), &format!("bc  5 {half}"), "d   -"]);
        assert!(matches!(bars(&answer(vec![("name", names)]), 27), Err(LakeError::NoChart { .. })));
    }
}
