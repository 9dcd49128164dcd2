//! `findings`: what is worth fixing, with the evidence; `explain`: one finding in full.

use super::{InputRef, InputRequest, Located, Page, State, find_stage, listed};
use roofgap_analyze::Finding;
use roofgap_analyze::findings::{explain, fix};
use roofgap_base::error::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Request for findings.
#[derive(Deserialize, JsonSchema)]
pub struct FindingsRequest {
    #[serde(flatten)]
    pub input: InputRequest,
    /// Stage whose findings to give; all by default.
    pub stage: Option<String>,
    #[serde(flatten)]
    pub page: Page,
}

/// Findings of a run or capture.
#[derive(Serialize, JsonSchema)]
pub struct FindingsAnswer {
    #[serde(flatten)]
    pub input: InputRef,
    /// Findings, in the order in which to act on them; those that are part of another are last. `bound_ns` is an upper bound on the
    /// saving.
    pub findings: Vec<Located<Finding>>,
    /// Number of findings that match.
    pub count: usize,
}

/// Lists findings.
pub fn answer(state: &State, request: &FindingsRequest) -> Result<FindingsAnswer, Error> {
    let (input, opened) = state.open(&request.input)?;
    let wanted = request.stage.as_deref();
    if let Some(name) = wanted {
        find_stage(&opened.analysis, name)?;
    }
    let findings = opened.analysis.findings.iter().enumerate();
    let rows: Vec<(usize, &Finding)> =
        findings.filter(|(_, finding)| wanted.is_none() || finding.stage.as_deref() == wanted).collect();
    let shown = request.page.select(&rows).iter();
    Ok(FindingsAnswer {
        input,
        count: rows.len(),
        findings: shown.map(|(position, finding)| located(*position, finding)).collect(),
    })
}

fn located(position: usize, finding: &Finding) -> Located<Finding> {
    Located { pointer: format!("/findings/{position}"), part: finding.clone() }
}

/// Request for an explanation.
#[derive(Deserialize, JsonSchema)]
pub struct ExplainRequest {
    #[serde(flatten)]
    pub input: InputRequest,
    /// A finding: its id, such as `launch-bound`, or its pointer, such as `/findings/0`.
    pub finding: String,
    /// Stage, where several have the finding; the first by default.
    pub stage: Option<String>,
}

/// A finding in full.
#[derive(Serialize, JsonSchema)]
pub struct ExplainAnswer {
    #[serde(flatten)]
    pub input: InputRef,
    /// Finding with its evidence and action.
    pub finding: Located<Finding>,
    /// Meaning of the finding in general; null where there is no text for it.
    pub meaning: Option<String>,
    /// Pointers to further findings of the same id.
    pub also: Vec<String>,
}

/// Explains a finding.
pub fn answer_one(state: &State, request: &ExplainRequest) -> Result<ExplainAnswer, Error> {
    let (input, opened) = state.open(&request.input)?;
    let wanted = request.finding.as_str();
    let pointer = |position: usize| format!("/findings/{position}");
    let findings = &opened.analysis.findings;
    let mut matches = findings
        .iter()
        .enumerate()
        .filter(|(position, finding)| finding.id == wanted || pointer(*position) == wanted)
        .filter(|(_, finding)| request.stage.is_none() || finding.stage == request.stage);
    let Some((position, finding)) = matches.next() else {
        let known = findings.iter().take(20).map(|finding| match &finding.stage {
            Some(stage) => format!("{} ({stage})", finding.id),
            None => finding.id.clone(),
        });
        let known = listed(known);
        return Err(Error::new(format!("no finding {wanted:?} in this input; the findings are: {known}")));
    };
    Ok(ExplainAnswer {
        input,
        finding: located(position, finding),
        meaning: explain(&finding.id).map(|text| {
            format!(
                "{} Computed: {} Fix: {}",
                text.meaning,
                text.computed,
                fix(&finding.id).unwrap_or(text.fix)
            )
        }),
        also: matches.take(10).map(|(position, _)| pointer(position)).collect(),
    })
}
