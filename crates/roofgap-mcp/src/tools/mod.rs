//! The tools: for each a request, an answer with a schema, and a function between them; here what several of them share.

pub mod compare;
pub mod findings;
pub mod kernels;
pub mod list;
pub mod summary;
pub mod timeline;

use crate::answer::InputRef;
use crate::roots::Roots;
use roofgap_analyze::{Analysis, Stage};
use roofgap_base::error::Error;
use roofgap_runs::cache::OpenCache;
use roofgap_runs::open::Opened;
use schemars::JsonSchema;
use serde::Deserialize;
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
    pub fn of<'a, T>(&self, rows: &'a [T]) -> &'a [T] {
        let start = self.offset.min(rows.len());
        let end = start.saturating_add(self.rows()).min(rows.len());
        rows.get(start..end).unwrap_or_default()
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.limit.unwrap_or(ROWS).clamp(1, MOST_ROWS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_never_exceeds_its_bounds() {
        let rows: Vec<usize> = (0..250).collect();
        let page = |limit, offset| Page { limit, offset };
        assert_eq!(page(None, 0).of(&rows).len(), 10);
        assert_eq!(page(Some(1000), 0).of(&rows).len(), 100);
        assert_eq!(page(Some(0), 0).of(&rows), [0]);
        assert_eq!(page(Some(5), 248).of(&rows), [248, 249]);
        assert!(page(None, usize::MAX).of(&rows).is_empty());
    }
}
