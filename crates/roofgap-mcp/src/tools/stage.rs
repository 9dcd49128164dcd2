//! Finding a stage by its name.

use roofgap_analyze::{Analysis, Stage};

use crate::error::McpError;

/// Finds a stage and its position.
pub fn find<'a>(analysis: &'a Analysis, wanted: &str) -> Result<(usize, &'a Stage), McpError> {
    let mut stages = analysis.stages.iter().enumerate();
    stages
        .find(|(_, stage)| stage.name == wanted)
        .ok_or_else(|| McpError::NoStage { wanted: wanted.to_owned(), known: names(analysis) })
}

/// Lists the stages for a message.
fn names(analysis: &Analysis) -> String {
    let names: Vec<&str> = analysis.stages.iter().map(|s| s.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
