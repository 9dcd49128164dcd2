//! Parts of an answer: a number with its unit and origin, the legend of a table, and bounds of all texts.
//! Errors of the tools.

use rmcp::model::{ContentBlock, IntoContents};
use roofgap_analyze::{Analysis, SourceInfo};
use roofgap_base::error::Error;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::{Number, Value};
use std::borrow::Cow;

/// Characters of a name from a capture that an answer quotes. Kernel names can have thousands.
const MOST_NAME: usize = 240;
/// Characters of a text for people that an answer quotes.
const MOST_TEXT: usize = 2000;
/// Fields with texts for people, and with names that the tools take.
const TEXTS: &[&str] =
    &["headline", "title", "action", "meaning", "why", "not_measured", "unreadable", "input", "id"];
/// Values of a list that an answer has.
const MOST_VALUES: usize = 100;
/// Input files that an answer names.
const MOST_SOURCES: usize = 8;

/// An answer whose texts and lists are cut to a bounded length.
#[derive(Debug)]
pub struct Bounded<T>(pub T);

impl<T: Serialize> Serialize for Bounded<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut answer = serde_json::to_value(&self.0).map_err(S::Error::custom)?;
        cut(&mut answer, MOST_NAME);
        answer.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Bounded<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Cuts texts and lists; the last character of a text that was cut says so.
fn cut(value: &mut Value, most: usize) {
    match value {
        Value::String(text) => *text = roofgap_base::text::cut(text, most),
        Value::Array(values) => {
            values.truncate(MOST_VALUES);
            values.iter_mut().for_each(|value| cut(value, most));
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                cut(value, if TEXTS.contains(&name.as_str()) { MOST_TEXT } else { MOST_NAME });
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A number with its unit and origin, or the reason for its absence.
#[derive(serde::Serialize, JsonSchema)]
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

/// The origin of quantities, and the reason for those that are missing.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// Origin.
    pub from: &'a str,
    /// Reason.
    pub why_not: &'a str,
}

impl Origin<'_> {
    /// Makes a time, ns.
    pub fn ns(self, value: impl Into<Option<i64>>) -> Quantity {
        self.quantity(value.into().map(Number::from), "ns")
    }

    /// Makes a number of things.
    pub fn count(self, value: impl Into<Option<u64>>) -> Quantity {
        self.quantity(value.into().map(Number::from), "count")
    }

    /// Makes a real number.
    pub fn real(self, value: impl Into<Option<f64>>, unit: &'static str) -> Quantity {
        self.quantity(value.into().and_then(Number::from_f64), unit)
    }

    fn quantity(self, value: Option<Number>, unit: &'static str) -> Quantity {
        let not_measured = value.is_none().then(|| self.why_not.to_owned());
        Quantity { not_measured, value, unit, from: self.from.to_owned() }
    }
}

/// Unit and origin of a column of a table.
#[derive(Clone, serde::Serialize, JsonSchema)]
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
    rows.map(|(field, unit, meaning)| Column { field, unit, meaning }).into()
}

/// The analysed input.
#[derive(serde::Serialize, JsonSchema)]
pub struct InputRef {
    /// Name of the input, as the tools take it.
    pub input: String,
    /// Files that the numbers come from.
    pub sources: Vec<SourceInfo>,
    /// Number of further files.
    pub more_sources: usize,
}

impl InputRef {
    /// Names the sources of an analysis.
    pub fn of(input: String, analysis: &Analysis) -> Self {
        InputRef {
            input,
            sources: analysis.sources.iter().take(MOST_SOURCES).cloned().collect(),
            more_sources: analysis.sources.len().saturating_sub(MOST_SOURCES),
        }
    }
}

/// Error of a tool, as a client sees it.
#[derive(Debug)]
pub struct ToolError(pub Error);

impl IntoContents for ToolError {
    fn into_contents(self) -> Vec<ContentBlock> {
        vec![ContentBlock::text(self.0.to_string())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_missing_value_has_a_reason_and_a_present_one_has_none() {
        let origin = |from, why_not| Origin { from, why_not };
        let known = origin("timeline", "never used").ns(7);
        assert_eq!(
            serde_json::to_value(known).unwrap(),
            json!({"value": 7, "unit": "ns", "from": "timeline"})
        );
        let unknown = origin("counters", "no counters").real(f64::NAN, "%");
        assert_eq!(
            serde_json::to_value(unknown).unwrap(),
            json!({"value": null, "unit": "%", "from": "counters", "not_measured": "no counters"})
        );
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let cut_to = |text: &str, most| {
            let mut value = Value::from(text);
            cut(&mut value, most);
            value
        };
        assert_eq!(cut_to("äöü", 3), "äöü");
        assert_eq!(cut_to("äöüx", 3), "äö…");
        let long = "x".repeat(3000);
        let answer =
            serde_json::to_value(Bounded(json!({"name": long, "why": [long], "each": vec![0; 1000]})))
                .unwrap();
        let length = |at: &str| answer.pointer(at).unwrap().as_str().unwrap().chars().count();
        assert_eq!((length("/name"), length("/why/0")), (MOST_NAME, MOST_TEXT));
        assert_eq!(answer["each"].as_array().unwrap().len(), MOST_VALUES);
    }
}
