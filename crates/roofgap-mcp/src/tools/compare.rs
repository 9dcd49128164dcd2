//! `compare`: two runs or captures side by side.

use super::{Page, State};
use crate::answer::{Column, columns};
use roofgap_analyze::compare::{
    Basis, Change, CompareOptions, Difference, KernelChange, METRICS, Metric, Part, StageChange, compare,
};
use roofgap_base::error::Error;
use roofgap_report::compare::headline;
use roofgap_runs::open::{Overrides, open_side};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

/// Differences and stages that an answer names.
const MOST: usize = 12;

/// Request for a comparison.
#[derive(Deserialize, JsonSchema)]
pub struct CompareRequest {
    /// Before: a run (id, unique prefix or `latest`), or the path of a capture or of a metrics.json.
    pub base: String,
    /// After.
    pub head: String,
    #[serde(flatten)]
    pub page: Page,
}

/// Two runs or captures side by side.
#[derive(Serialize, JsonSchema)]
pub struct CompareAnswer {
    /// The main result in one sentence.
    pub headline: String,
    /// Before: run id or file.
    pub base: String,
    /// After: run id or file.
    pub head: String,
    /// False if the two did different work or ran on different hardware, so that times do not compare.
    pub comparable: bool,
    /// Unit of work that compares.
    pub basis: Basis,
    /// Facts that differ, worst first.
    pub differences: Vec<Difference>,
    /// Facts that neither side gives, so that the two may differ in them.
    pub unchecked: Vec<String>,
    /// Stages that both have.
    pub stages: Vec<StageRow>,
    /// Stages that only the base has.
    pub stages_gone: Vec<String>,
    /// Stages that only the head has.
    pub stages_added: Vec<String>,
    /// Kernels of the whole trace, largest change first.
    pub kernels: Vec<KernelChange>,
    /// Number of kernels.
    pub kernel_count: usize,
    /// Units and meaning of the rows.
    pub columns: Vec<Column>,
}

/// A stage on both sides, one instance of it.
#[derive(Serialize, JsonSchema)]
pub struct StageRow {
    /// Stage name.
    pub name: String,
    /// Numbers on both sides.
    pub numbers: Vec<ChangeRow>,
    /// Parts of the change of wall time, largest first.
    pub parts: Vec<Part>,
    /// Reason for missing parts.
    pub why_not: Option<String>,
}

/// A number on both sides.
#[derive(Serialize, JsonSchema)]
pub struct ChangeRow {
    /// Name.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// On the base; null where it was not measured.
    pub base: Option<Number>,
    /// On the head; null where it was not measured.
    pub head: Option<Number>,
    /// Head less base, in percent of the base.
    pub delta_pct: Option<f64>,
    /// Amount by which the number may move by itself.
    pub noise: Option<Number>,
    /// `same`, `better`, `worse`, or why it is not judged.
    pub judgement: &'static str,
}

/// Compares two inputs and shortens the comparison.
pub fn answer(state: &State, request: &CompareRequest) -> Result<CompareAnswer, Error> {
    let side = |input: &str| -> Result<_, Error> {
        let path = state.roots.find(input)?.display().to_string();
        open_side(state.roots.runs(), &path, &Overrides::default(), state.cache.exporter())
    };
    let (base, head) = (side(&request.base)?, side(&request.head)?);
    let comparison = compare(base.as_side(), head.as_side(), &CompareOptions::default());
    let page = request.page;
    Ok(CompareAnswer {
        headline: headline(&comparison),
        comparable: !comparison.is_incomparable(),
        base: comparison.base.title,
        head: comparison.head.title,
        basis: comparison.basis,
        differences: comparison.differences.into_iter().take(MOST).collect(),
        unchecked: comparison.unchecked,
        stages: comparison.stages.into_iter().take(MOST).map(|stage| stage_row(stage, page)).collect(),
        stages_gone: comparison.stages_gone.into_iter().take(MOST).collect(),
        stages_added: comparison.stages_added.into_iter().take(MOST).collect(),
        kernels: page.of(&comparison.kernels).to_vec(),
        kernel_count: comparison.kernels.len(),
        columns: columns([
            (
                "base, head, noise",
                "the unit beside them",
                "of one instance of the stage, from the analyses of both sides",
            ),
            ("delta_pct", "%", "head less base, of the base; above 0 is a loss for times"),
            ("delta_ns", "ns", "head less base; above 0 is a loss"),
            ("base.total_ns, head.total_ns", "ns", "sum of durations on the GPU over the whole trace"),
        ]),
    })
}

fn stage_row(stage: StageChange, page: Page) -> StageRow {
    StageRow {
        numbers: METRICS.iter().map(|metric| change_row(metric, &metric.of(&stage))).collect(),
        parts: page.of(&stage.explanation.parts).to_vec(),
        why_not: stage.explanation.why_not,
        name: stage.name,
    }
}

fn change_row(metric: &Metric, change: &Change<f64>) -> ChangeRow {
    let number = |value: f64| {
        if metric.is_time() { Some(Number::from(value as i64)) } else { Number::from_f64(value) }
    };
    ChangeRow {
        name: metric.field,
        unit: metric.unit(),
        base: change.base.and_then(number),
        head: change.head.and_then(number),
        delta_pct: change.delta_pct.filter(|pct| pct.is_finite()),
        noise: change.noise.and_then(number),
        judgement: change.judgement.as_str().unwrap_or(if change.is_on_both_sides() {
            "not judged: the sides did different work"
        } else {
            "not measured on both sides"
        }),
    }
}
