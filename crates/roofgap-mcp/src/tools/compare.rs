//! `compare`: two runs or captures side by side.

use roofgap_analyze::compare::{
    Basis, Change, Comparison, Judgement, KernelChange, KernelStatus, StageChange, Weight,
};
use roofgap_report::compare::headline;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use super::request::Page;
use crate::quantity::{Column, columns, cut, cut_to};

/// Differences and stages that an answer names.
const MOST: usize = 12;
/// Unchecked facts that an answer names; a comparison knows fewer.
const MOST_FACTS: usize = 40;

/// Request for a comparison.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct CompareRequest {
    /// Before: a run (id, unique prefix or `latest`), or the path of a capture or of a metrics.json.
    pub base: String,
    /// After.
    pub head: String,
    #[serde(flatten)]
    pub page: Page,
}

/// Two runs or captures side by side.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CompareAnswer {
    /// The main result in one sentence.
    pub headline: String,
    /// Before: run id or file.
    pub base: String,
    /// After: run id or file.
    pub head: String,
    /// False if the two did different work or ran on different hardware, so that times do not compare.
    pub comparable: bool,
    /// Unit of work that compares: `whole`, `instance` or `step and token`.
    pub basis: &'static str,
    /// Facts that differ, worst first.
    pub differences: Vec<DifferenceRow>,
    /// Facts that neither side gives, so that the two may differ in them.
    pub unchecked: Vec<String>,
    /// Stages that both have.
    pub stages: Vec<StageRow>,
    /// Stages that only the base has.
    pub stages_gone: Vec<String>,
    /// Stages that only the head has.
    pub stages_added: Vec<String>,
    /// Kernels of the whole trace, largest change first.
    pub kernels: Vec<KernelRow>,
    /// Number of kernels.
    pub kernel_count: usize,
    /// Units and meaning of the rows.
    pub columns: Vec<Column>,
}

/// A fact that differs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DifferenceRow {
    /// Fact: `gpu`, `model`, `prompt_tokens`, ...
    pub what: String,
    /// True if times do not compare because of it.
    pub incomparable: bool,
    /// On the base; null where it does not say.
    pub base: Option<String>,
    /// On the head.
    pub head: Option<String>,
    /// Meaning for the numbers.
    pub meaning: String,
}

/// A stage on both sides, one instance of it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct StageRow {
    /// Stage name.
    pub name: String,
    /// Numbers on both sides.
    pub numbers: Vec<ChangeRow>,
    /// Parts of the change of wall time, largest first.
    pub parts: Vec<PartRow>,
    /// Reason for missing parts.
    pub no_parts: Option<String>,
}

/// A number on both sides.
#[derive(Debug, Clone, Serialize, JsonSchema)]
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

/// A part of a change.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PartRow {
    /// Kernel, or a few words.
    pub name: String,
    /// Head less base, ns.
    pub delta_ns: i64,
    /// True if the change is larger than the noise of the part.
    pub beyond_noise: bool,
}

/// A kernel on both sides.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct KernelRow {
    /// Short name.
    pub name: String,
    /// Kind of work.
    pub family: String,
    /// Change: `same`, `faster`, `slower`, `more calls`, `fewer calls`, `added` or `gone`.
    pub status: &'static str,
    /// Total time on the base, ns; null where it is not there.
    pub base_ns: Option<i64>,
    /// Total time on the head, ns; null where it is not there.
    pub head_ns: Option<i64>,
    /// Head less base, ns.
    pub delta_ns: i64,
}

/// Shortens a comparison.
pub fn answer(comparison: &Comparison, page: Page) -> CompareAnswer {
    let names = |names: &[String]| names.iter().take(MOST).map(|name| cut(name)).collect();
    CompareAnswer {
        headline: cut_to(&headline(comparison), 1000),
        base: cut(&comparison.base.title),
        head: cut(&comparison.head.title),
        comparable: !comparison.is_incomparable(),
        basis: match comparison.basis {
            Basis::Whole => "whole",
            Basis::Instance => "instance",
            Basis::StepAndToken => "step and token",
        },
        differences: comparison
            .differences
            .iter()
            .take(MOST)
            .map(|difference| DifferenceRow {
                what: cut(&difference.what),
                incomparable: difference.weight == Weight::Incomparable,
                base: difference.base.as_deref().map(cut),
                head: difference.head.as_deref().map(cut),
                meaning: cut_to(&difference.meaning, 600),
            })
            .collect(),
        unchecked: comparison.unchecked.iter().take(MOST_FACTS).map(|fact| cut(fact)).collect(),
        stages: comparison.stages.iter().take(MOST).map(|stage| stage_row(stage, page)).collect(),
        stages_gone: names(&comparison.stages_gone),
        stages_added: names(&comparison.stages_added),
        kernels: page.of(&comparison.kernels).iter().map(kernel_row).collect(),
        kernel_count: comparison.kernels.len(),
        columns: columns([
            (
                "base, head, noise",
                "the unit beside them",
                "of one instance of the stage, from the analyses of both sides",
            ),
            ("delta_pct", "%", "head less base, of the base; above 0 is a loss for times"),
            ("delta_ns", "ns", "head less base; above 0 is a loss"),
            ("base_ns, head_ns", "ns", "sum of durations on the GPU over the whole trace"),
        ]),
    }
}

fn stage_row(stage: &StageChange, page: Page) -> StageRow {
    let whole =
        |name, change: &Change<i64>| change_row(name, "ns", change, |&value| Some(Number::from(value)));
    let real =
        |name, unit, change: &Change<f64>| change_row(name, unit, change, |&value| Number::from_f64(value));
    StageRow {
        name: cut(&stage.name),
        numbers: vec![
            whole("wall", &stage.wall_ns),
            whole("step", &stage.step_ns),
            whole("token", &stage.token_ns),
            whole("without a profiler", &stage.unwatched_ns),
            whole("busy", &stage.busy_ns),
            whole("kernel", &stage.kernel_ns),
            whole("idle", &stage.idle_ns),
            whole("idle: launch", &stage.idle_launch_ns),
            real("launches", "count", &stage.launches),
            real("mfu", "%", &stage.mfu_pct),
            real("mbu", "%", &stage.mbu_pct),
        ],
        parts: page
            .of(&stage.explanation.parts)
            .iter()
            .map(|part| PartRow {
                name: cut(&part.name),
                delta_ns: part.delta_ns,
                beyond_noise: part.beyond_noise,
            })
            .collect(),
        no_parts: stage.explanation.why_not.clone(),
    }
}

fn change_row<T>(
    name: &'static str,
    unit: &'static str,
    change: &Change<T>,
    number: impl Fn(&T) -> Option<Number>,
) -> ChangeRow {
    let value = |side: &Option<T>| side.as_ref().and_then(&number);
    ChangeRow {
        name,
        unit,
        base: value(&change.base),
        head: value(&change.head),
        delta_pct: change.delta_pct.filter(|pct| pct.is_finite()),
        noise: value(&change.noise),
        judgement: match change.judgement {
            Judgement::Same => "same",
            Judgement::Better => "better",
            Judgement::Worse => "worse",
            Judgement::Unknown if change.base.is_some() && change.head.is_some() => {
                "not judged: the sides did different work"
            }
            Judgement::Unknown => "not measured on both sides",
        },
    }
}

fn kernel_row(kernel: &KernelChange) -> KernelRow {
    KernelRow {
        name: cut(&kernel.short_name),
        family: kernel.family.to_string(),
        status: match kernel.status {
            KernelStatus::Same => "same",
            KernelStatus::Faster => "faster",
            KernelStatus::Slower => "slower",
            KernelStatus::MoreCalls => "more calls",
            KernelStatus::FewerCalls => "fewer calls",
            KernelStatus::Added => "added",
            KernelStatus::Gone => "gone",
        },
        base_ns: kernel.base.as_ref().map(|side| side.total_ns),
        head_ns: kernel.head.as_ref().map(|side| side.total_ns),
        delta_ns: kernel.delta_ns,
    }
}
