//! Compares two analyses: what changed, what explains it, and which gates fail.
//!
//! - [`comparison`]: the result, field by field as in the JSON;
//! - [`METRICS`]: the numbers of a stage: one table for gates, reports and agents;
//! - [`gate`]: limits on a change, parsed from text and checked against a comparison;
//! - `comparability`: the sides, whether they can be compared at all, and on what basis;
//! - `noise`: how much a number may move by itself;
//! - `kernels`: which kernels correspond, and how each changed;
//! - `stage`: the change of a stage, and the parts that add up to it.

pub mod comparison;
pub mod gate;

mod comparability;
mod kernels;

mod noise;
mod stage;

pub use comparability::{OTHER_CLOCK, Side, SideFacts};
pub use comparison::*;
pub use gate::{Gate, GateError, Limit};

pub use noise::Floors;

use crate::result::{Analysis, Stage};
use stage::StageSide;

/// Options of a comparison.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompareOptions {
    /// Gates to check.
    pub gates: Vec<Gate>,
    /// Lower limits of noise.
    pub floors: Floors,
}

/// Compares two runs.
pub fn compare(base: Side<'_>, head: Side<'_>, options: &CompareOptions) -> Comparison {
    let floors = &options.floors;
    let kernels = kernels::of_whole(base.analysis, head.analysis, floors);
    let (mut differences, unchecked) = comparability::differences(base, head);
    differences.extend(comparability::covered_work(base, head, &kernels));
    differences.extend(comparability::common_kernels(base, head, &kernels));
    differences.sort_by_key(|difference| difference.weight);
    let mut stages = Vec::new();
    let mut stages_gone = Vec::new();
    for stage in &base.analysis.stages {
        match head.analysis.stage(&stage.name) {
            Some(other) => {
                let mut change = stage::change(side_of(base, stage), side_of(head, other), floors);
                change.basis = comparability::stage_basis(&differences, stage);
                let whole = kernels::whole_graphs(&stage.graphs, &other.graphs).is_some();
                comparability::withdraw(&mut change, &differences, whole);
                stages.push(change);
            }
            None => stages_gone.push(stage.name.clone()),
        }
    }
    let added = head.analysis.stages.iter().map(|stage| stage.name.clone());
    let stages_added = added.filter(|name| base.analysis.stage(name).is_none()).collect();
    let basis = comparability::whole_basis(&differences);
    let mut totals = totals(base.analysis, head.analysis, kernels::noise_of_sum(&kernels), floors);
    let whole_graphs = kernels::whole_graphs(&base.analysis.graphs, &head.analysis.graphs);
    if basis != Basis::Whole || whole_graphs.is_some() {
        for judgement in [
            &mut totals.kernel_ns.judgement,
            &mut totals.busy_ns.judgement,
            &mut totals.kernel_count.judgement,
        ] {
            *judgement = Judgement::Unknown;
        }
    }
    let mut comparison = Comparison {
        schema: COMPARISON_SCHEMA.into(),
        base: info(base),
        head: info(head),
        basis,
        differences,
        unchecked,
        stages,
        stages_gone,
        stages_added,
        totals,
        kernels,
        gates: Vec::new(),
    };
    comparison.gates = options.gates.iter().flat_map(|gate| gate::results(gate, &comparison)).collect();
    comparison
}

fn side_of<'a>(side: Side<'a>, stage: &'a Stage) -> StageSide<'a> {
    StageSide { stage, repeats: side.facts.unwatched.get(&stage.name).map_or(&[], Vec::as_slice) }
}

fn info(side: Side<'_>) -> SideInfo {
    SideInfo {
        title: side.facts.title.clone(),
        sources: side.analysis.sources.iter().map(|source| source.path.clone()).collect(),
        gpus: comparability::gpus(side.analysis),
        model: side.analysis.workload.as_ref().and_then(|workload| workload.model.clone()),
        mode: side.facts.mode.clone(),
    }
}

fn totals(base: &Analysis, head: &Analysis, kernel_noise: f64, floors: &Floors) -> TotalsChange {
    let measured = |analysis: &Analysis| (!analysis.kernels.is_empty()).then_some(analysis.totals.kernel_ns);
    let count = |analysis: &Analysis| measured(analysis).map(|_| analysis.totals.kernel_count as f64);
    let noise = kernel_noise.max(noise::share(base.totals.kernel_ns, floors.gpu_pct));
    let busy = |analysis: &Analysis| measured(analysis).and(analysis.totals.busy_ns);
    let count_noise = count(base).unwrap_or(0.0) * floors.gpu_pct / 100.0;
    let no_odd = noise::Odd::default();
    TotalsChange {
        kernel_ns: noise::time(measured(base), measured(head), noise, no_odd),
        busy_ns: noise::time(busy(base), busy(head), noise, no_odd),
        kernel_count: noise::number(count(base), count(head), count_noise, Better::Lower, no_odd),
    }
}

#[cfg(test)]
mod tests;
