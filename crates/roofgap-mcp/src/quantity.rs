//! A number with its unit and origin, and the legend of a table.

use roofgap_analyze::Analysis;
pub use roofgap_base::text::cut as cut_to;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Number;

/// Characters of a text from a capture that an answer quotes. Kernel names can have thousands.
const MOST_TEXT: usize = 240;
/// Input files that an answer names.
const MOST_SOURCES: usize = 8;

/// A number with its unit and origin, or the reason for its absence.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Quantity {
    /// Value; null where it was not measured.
    pub value: Option<Number>,
    /// Unit, such as `ns`, `%`, `bytes`, `count` or `tokens/s`.
    pub unit: &'static str,
    /// Origin: `timeline`, `workload account`, `counters`, ...
    pub from: String,
    /// Reason for a null value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
}

impl Quantity {
    /// Makes a quantity from a whole number.
    pub fn whole(value: Option<i64>, unit: &'static str, from: &str, why_not: &str) -> Self {
        Self::of(value.map(Number::from), unit, from, why_not)
    }

    /// Makes a quantity from a real number.
    pub fn real(value: Option<f64>, unit: &'static str, from: &str, why_not: &str) -> Self {
        Self::of(value.and_then(Number::from_f64), unit, from, why_not)
    }

    /// Makes a count.
    pub fn count(value: u64, from: &str) -> Self {
        Self::of(Some(Number::from(value)), "count", from, "")
    }

    fn of(value: Option<Number>, unit: &'static str, from: &str, why_not: &str) -> Self {
        Quantity { not_measured: value.is_none().then(|| cut(why_not)), value, unit, from: from.to_owned() }
    }
}

/// Unit and origin of a column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Column {
    /// Field of the rows.
    pub field: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Meaning and origin.
    pub meaning: &'static str,
}

/// Makes the legend of a table from field, unit and meaning.
pub fn columns<const N: usize>(rows: [(&'static str, &'static str, &'static str); N]) -> Vec<Column> {
    rows.map(|(field, unit, meaning)| Column { field, unit, meaning }).to_vec()
}

/// The analysed input.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct InputRef {
    /// Name of the input, as the tools take it.
    pub input: String,
    /// Files that the numbers come from.
    pub sources: Vec<SourceRow>,
    /// Number of further files.
    pub more_sources: usize,
}

/// A file that numbers come from.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SourceRow {
    /// Path.
    pub path: String,
    /// Format, detected from content.
    pub format: String,
    /// Version of the tool that wrote it; null where the file does not tell.
    pub tool_version: Option<String>,
}

impl InputRef {
    /// Names the sources of an analysis.
    pub fn of(input: &str, analysis: &Analysis) -> Self {
        let sources = analysis.sources.iter().take(MOST_SOURCES);
        InputRef {
            input: input.to_owned(),
            sources: sources
                .map(|source| SourceRow {
                    path: cut(&source.path),
                    format: source.format.clone(),
                    tool_version: source.tool_version.as_deref().map(cut),
                })
                .collect(),
            more_sources: analysis.sources.len().saturating_sub(MOST_SOURCES),
        }
    }
}

/// Cuts a text from a capture to a bounded length.
pub fn cut(text: &str) -> String {
    cut_to(text, MOST_TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_value_has_a_reason_and_a_present_one_has_none() {
        let known = Quantity::whole(Some(7), "ns", "timeline", "never used");
        assert_eq!(
            serde_json::to_value(known).unwrap(),
            serde_json::json!({"value": 7, "unit": "ns", "from": "timeline"})
        );
        let unknown = Quantity::real(Some(f64::NAN), "%", "counters", "no counters");
        assert_eq!(
            serde_json::to_value(unknown).unwrap(),
            serde_json::json!({"value": null, "unit": "%", "from": "counters", "not_measured": "no counters"})
        );
    }
}
