//! `explain`: one finding in full.

use roofgap_analyze::Analysis;
use roofgap_analyze::findings::explain;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::findings::{FindingRow, row};
use super::request::InputRequest;
use crate::error::McpError;
use crate::quantity::InputRef;

/// Request for an explanation.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ExplainRequest {
    #[serde(flatten)]
    pub input: InputRequest,
    /// A finding: its rule, such as `launch-bound`, or its id, such as `/findings/0`.
    pub finding: String,
    /// Stage, where a rule has findings in several; the first by default.
    pub stage: Option<String>,
}

/// A finding in full.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ExplainAnswer {
    #[serde(flatten)]
    pub input: InputRef,
    /// Finding with its evidence and action.
    pub finding: FindingRow,
    /// Meaning of the rule in general; null where there is no text for it.
    pub meaning: Option<String>,
    /// Ids of further findings of the same rule.
    pub also: Vec<String>,
}

/// Returns the text on a rule in general.
fn meaning(rule: &str) -> Option<String> {
    let text = explain(rule)?;
    Some(format!("{} Computed: {} Fix: {}", text.meaning, text.computed, text.fix))
}

/// Explains a finding.
pub fn answer(input: &str, analysis: &Analysis, request: &ExplainRequest) -> Result<ExplainAnswer, McpError> {
    let wanted = request.finding.as_str();
    let matches: Vec<_> = analysis
        .findings
        .iter()
        .enumerate()
        .filter(|(position, finding)| finding.id == wanted || format!("/findings/{position}") == wanted)
        .filter(|(_, finding)| request.stage.is_none() || finding.stage == request.stage)
        .collect();
    let Some((position, finding)) = matches.first() else {
        let known: Vec<String> = analysis
            .findings
            .iter()
            .take(20)
            .map(|finding| match &finding.stage {
                Some(stage) => format!("{} ({stage})", finding.id),
                None => finding.id.clone(),
            })
            .collect();
        return Err(McpError::NoFinding {
            wanted: wanted.to_owned(),
            known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        });
    };
    Ok(ExplainAnswer {
        input: InputRef::of(input, analysis),
        finding: row(*position, finding),
        meaning: meaning(&finding.id),
        also: matches.iter().skip(1).take(10).map(|(position, _)| format!("/findings/{position}")).collect(),
    })
}
