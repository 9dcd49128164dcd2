//! The tools: for each a request, an answer with a schema, and a function between them; here what several of them share: the input, parts
//! of the analysis with their places, bounds of all texts, and errors.

pub mod compare;
pub mod findings;
pub mod list;
pub mod summary;
pub mod timeline;

use crate::roots::Roots;
use rmcp::model::{ContentBlock, IntoContents};
use roofgap_analyze::{Analysis, SourceInfo, Stage};
use roofgap_base::error::Error;
use roofgap_runs::cache::OpenCache;
use roofgap_runs::open::Opened;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// Inputs of the tools.
#[derive(Debug)]
pub struct State {
    pub roots: Roots,
    pub cache: OpenCache,
}

impl State {
    /// Opens the input of a request.
    pub fn open(&self, request: &InputRequest) -> Result<(InputRef, Arc<Opened>), Error> {
        let inputs = std::iter::once(&request.input).chain(&request.with);
        let paths = inputs.map(|input| self.roots.find(input)).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = paths.iter().map(|path| self.roots.name_of(path)).collect();
        let opened = self.cache.open(&paths)?;
        Ok((InputRef::of(names.join(", "), &opened.analysis), opened))
    }
}

/// Finds a stage and its position.
fn find_stage<'a>(analysis: &'a Analysis, wanted: &str) -> Result<(usize, &'a Stage), Error> {
    let mut stages = analysis.stages.iter().enumerate();
    stages.find(|(_, stage)| stage.name == wanted).ok_or_else(|| {
        let known = listed(analysis.stages.iter().map(|stage| stage.name.clone()));
        Error::new(format!("no stage {wanted:?}; the stages are: {known}"))
    })
}

/// Lists names for a message.
fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Rows of an answer, unless the client sets a number.
const ROWS: usize = 10;
/// Rows of an answer at most.
const MOST_ROWS: usize = 100;

/// The input of a tool.
#[derive(Deserialize, JsonSchema)]
pub struct InputRequest {
    /// A run (id, unique prefix or `latest`), or the path of a capture or of a folder of captures, as the tool `list` names them.
    pub input: String,
    /// Further captures to analyse together with `input`: counters of ncu, or other ranks of the job.
    #[serde(default)]
    pub with: Vec<String>,
}

/// Bounds of a list.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
pub struct Page {
    /// Number of rows, 1 to 100; 10 by default.
    pub limit: Option<usize>,
    /// Number of rows to skip.
    #[serde(default)]
    pub offset: usize,
}

impl Page {
    /// Returns the rows of a list that belong to the page.
    pub fn select<'a, T>(&self, rows: &'a [T]) -> &'a [T] {
        let start = self.offset.min(rows.len());
        let end = start.saturating_add(self.rows()).min(rows.len());
        rows.get(start..end).unwrap_or_default()
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.limit.unwrap_or(ROWS).clamp(1, MOST_ROWS)
    }
}

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

    #[test]
    fn a_page_never_exceeds_its_bounds() {
        let rows: Vec<usize> = (0..250).collect();
        let page = |limit, offset| Page { limit, offset };
        assert_eq!(page(None, 0).select(&rows).len(), 10);
        assert_eq!(page(Some(1000), 0).select(&rows).len(), 100);
        assert_eq!(page(Some(0), 0).select(&rows), [0]);
        assert_eq!(page(Some(5), 248).select(&rows), [248, 249]);
        assert!(page(None, usize::MAX).select(&rows).is_empty());
    }
}

#[cfg(test)]
mod answer_tests {
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
