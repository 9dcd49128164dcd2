//! `findings`: what is worth fixing, with the evidence.

use roofgap_analyze::{Analysis, Finding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::request::{InputRequest, Page};
use super::stage;
use crate::error::McpError;
use crate::quantity::{InputRef, Quantity, cut, cut_to};

/// Request for findings.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct FindingsRequest {
    #[serde(flatten)]
    pub input: InputRequest,
    /// Stage whose findings to give; all by default.
    pub stage: Option<String>,
    #[serde(flatten)]
    pub page: Page,
}

/// Findings of a run or capture.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FindingsAnswer {
    #[serde(flatten)]
    pub input: InputRef,
    /// Findings, largest possible saving first.
    pub findings: Vec<FindingRow>,
    /// Number of findings that match.
    pub count: usize,
}

/// A finding.
#[derive(Debug, Clone, Serialize, JsonSchema)]
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
    /// Action to take.
    pub action: String,
    /// Numbers that the finding is based on.
    pub evidence: Vec<Evidence>,
    /// Changes of the workload that carry out the action; `roofgap try RUN RULE` measures them.
    pub knobs: Vec<KnobRow>,
}

/// A change of the workload.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct KnobRow {
    /// Id of the knob.
    pub id: String,
    /// Sentence for people.
    pub title: String,
    /// Settings, flags and variables to change, in one line.
    pub changes: String,
    /// Effect on the output: `none`, `rounding` or `changes`.
    pub output: &'static str,
}

/// A number that a finding is based on.
#[derive(Debug, Clone, Serialize, JsonSchema)]
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
pub fn answer(
    input: &str,
    analysis: &Analysis,
    request: &FindingsRequest,
) -> Result<FindingsAnswer, McpError> {
    let wanted = request.stage.as_deref();
    if let Some(name) = wanted {
        stage::find(analysis, name)?;
    }
    let rows: Vec<(usize, &Finding)> = analysis
        .findings
        .iter()
        .enumerate()
        .filter(|(_, finding)| wanted.is_none() || finding.stage.as_deref() == wanted)
        .collect();
    Ok(FindingsAnswer {
        input: InputRef::of(input, analysis),
        count: rows.len(),
        findings: request.page.of(&rows).iter().map(|(position, finding)| row(*position, finding)).collect(),
    })
}

/// Makes the row of a finding.
pub fn row(position: usize, finding: &Finding) -> FindingRow {
    let id = format!("/findings/{position}");
    let from = "computed from the evidence";
    FindingRow {
        rule: finding.id.clone(),
        stage: finding.stage.as_deref().map(cut),
        title: cut_to(&finding.title, 600),
        saves_at_most: Quantity::whole(Some(finding.bound_ns), "ns", from, ""),
        saves_at_most_share: Quantity::real(
            Some(finding.bound_pct),
            "%",
            from,
            "the time of the stage is unknown",
        ),
        action: cut_to(&finding.action, 2000),
        evidence: finding
            .evidence
            .iter()
            .map(|(name, value)| Evidence {
                id: format!("{id}/evidence/{}", name.replace('~', "~0").replace('/', "~1")),
                unit: if value.is_number() { unit(name) } else { "text" },
                value: bounded(value),
                name: name.clone(),
            })
            .collect(),
        knobs: finding
            .knobs
            .iter()
            .map(|knob| KnobRow {
                id: cut(&knob.id),
                title: cut(&knob.title),
                changes: cut_to(&knob.spoken(), 600),
                output: knob.output.as_str(),
            })
            .collect(),
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

/// Cuts texts and long lists.
fn bounded(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(cut(text)),
        Value::Array(values) => values.iter().take(16).map(bounded).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().take(16);
            Value::Object(fields.map(|(name, value)| (cut(name), bounded(value))).collect())
        }
        value => value.clone(),
    }
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
