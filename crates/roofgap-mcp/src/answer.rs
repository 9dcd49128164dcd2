//! Parts of an answer: the input, parts of the analysis with their places, and bounds of all texts. Errors of the tools.

use rmcp::model::{ContentBlock, IntoContents};
use roofgap_analyze::{Analysis, SourceInfo};
use roofgap_base::error::Error;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;

/// Characters of a name from a capture that an answer quotes. Kernel names can have thousands.
const MOST_NAME: usize = 240;
/// Characters of a text for people that an answer quotes.
const MOST_TEXT: usize = 2000;
/// Fields with texts for people, and with names that the tools take.
const TEXTS: &[&str] = &[
    "headline",
    "title",
    "action",
    "disproof",
    "meaning",
    "why",
    "not_measured",
    "unreadable",
    "input",
    "pointer",
];
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

/// A part of the analysis with the place where it stands.
#[derive(Debug, serde::Serialize, JsonSchema)]
pub struct Located<T> {
    /// JSON pointer into the analysis (`roofgap analyze --format json`).
    pub pointer: String,
    #[serde(flatten)]
    pub part: T,
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
