//! `findings`: what is worth fixing, with the evidence; `explain`: one finding in full.

use super::{InputRequest, Page, State, find_stage, listed};
use crate::answer::{InputRef, Origin, Quantity};
use roofgap_analyze::findings::{explain, fix};
use roofgap_analyze::{Finding, Knob};
use roofgap_base::error::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// Findings, in the order in which to act on them; those that are part of another are last.
    pub findings: Vec<FindingRow>,
    /// Number of findings that match.
    pub count: usize,
}

/// A finding.
#[derive(Serialize, JsonSchema)]
pub struct FindingRow {
    /// JSON pointer into the analysis (`roofgap analyze --format json`).
    pub id: String,
    /// Rule that made the finding; the parameter `finding` of the tool `explain`.
    pub rule: String,
    /// Stage; null for the whole trace.
    pub stage: Option<String>,
    /// Title of one line.
    pub title: String,
    /// Upper bound on the saving.
    pub saves_at_most: Quantity,
    /// Upper bound on the saving, share of the stage.
    pub saves_at_most_share: Quantity,
    /// Confidence: `measured`, `bounded` by an ideal, or `guessed` from names, shapes or totals.
    pub confidence: &'static str,
    /// Observation that would disprove the finding.
    pub disproof: String,
    /// Rule of the finding that covers this one; null for a finding to act on.
    pub part_of: Option<String>,
    /// Action to take.
    pub action: String,
    /// Numbers that the finding is based on.
    pub evidence: Vec<Evidence>,
    /// Changes of the workload that carry out the action; `roofgap try RUN RULE` measures them.
    pub knobs: Vec<Knob>,
}

/// A number that a finding is based on.
#[derive(Serialize, JsonSchema)]
pub struct Evidence {
    /// JSON pointer into the analysis.
    pub id: String,
    /// Name.
    pub name: String,
    /// Value: a number or a text.
    pub value: Value,
    /// Unit; `dimensionless` for counts and ratios.
    pub unit: &'static str,
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
    let shown = request.page.of(&rows).iter();
    Ok(FindingsAnswer {
        input,
        count: rows.len(),
        findings: shown.map(|(position, finding)| row(*position, finding)).collect(),
    })
}

/// Makes the row of a finding.
fn row(position: usize, finding: &Finding) -> FindingRow {
    let id = format!("/findings/{position}");
    let from = Origin { from: "computed from the evidence", why_not: "the time of the stage is unknown" };
    let evidence = finding.evidence.iter().map(|(name, value)| Evidence {
        id: format!("{id}/evidence/{}", name.replace('~', "~0").replace('/', "~1")),
        unit: if value.is_number() { unit(name) } else { "text" },
        value: value.clone(),
        name: name.clone(),
    });
    FindingRow {
        evidence: evidence.collect(),
        rule: finding.id.clone(),
        stage: finding.stage.clone(),
        title: finding.title.clone(),
        saves_at_most: from.ns(finding.bound_ns),
        saves_at_most_share: from.real(finding.bound_pct, "%"),
        confidence: finding.confidence.as_str(),
        disproof: finding.disproof.clone(),
        part_of: finding.part_of.clone(),
        action: finding.action.clone(),
        knobs: finding.knobs.clone(),
        id,
    }
}

/// Tells the unit from the suffix of a name, as in all JSON of roofgap.
fn unit(name: &str) -> &'static str {
    const SUFFIXES: [(&str, &str); 7] = [
        ("_ns", "ns"),
        ("_pct", "%"),
        ("flops_per_s", "FLOP/s"),
        ("bytes_per_s", "bytes/s"),
        ("tokens_per_s", "tokens/s"),
        ("requests_per_s", "requests/s"),
        ("bytes", "bytes"),
    ];
    let known = SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix));
    known.map_or("dimensionless", |(_, unit)| unit)
}

/// Request for an explanation.
#[derive(Deserialize, JsonSchema)]
pub struct ExplainRequest {
    #[serde(flatten)]
    pub input: InputRequest,
    /// A finding: its rule, such as `launch-bound`, or its id, such as `/findings/0`.
    pub finding: String,
    /// Stage, where a rule has findings in several; the first by default.
    pub stage: Option<String>,
}

/// A finding in full.
#[derive(Serialize, JsonSchema)]
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
        finding: row(position, finding),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_suffix() {
        for (name, expected) in [
            ("idle_launch_ns", "ns"),
            ("busy_pct", "%"),
            ("bytes", "bytes"),
            ("dram_bytes", "bytes"),
            ("bus_bandwidth_bytes_per_s", "bytes/s"),
            ("launches", "dimensionless"),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
    }
}
