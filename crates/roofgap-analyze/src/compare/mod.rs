//! Compares two analyses: what changed, what explains it, and which gates fail.
//!
//! - [`comparison`]: the result, field by field as in the JSON;
//! - [`gate`]: limits on a change, parsed from text and checked against a comparison;
//! - `comparability`: the sides, whether they can be compared at all, and on what basis;
//! - `noise`: how much a number may move by itself;
//! - `kernels`: which kernels correspond, and how each changed;
//! - `stage`: [`METRICS`], the one table of numbers for gates, reports and agents; the change of a stage, and the parts that add up
//!   to it.

pub mod comparison;
pub mod gate;

mod comparability;
mod kernels;
mod noise;
mod stage;

pub use comparability::{OTHER_CLOCK, Side, SideFacts};
pub use comparison::*;
pub use gate::{Gate, Limit, TOTAL};
pub use stage::{METRICS, Metric};

use crate::result::{Analysis, Stage, Totals};
use stage::StageSide;

/// Compares two runs and checks gates.
pub fn compare(base: Side<'_>, head: Side<'_>, gates: &[Gate]) -> Comparison {
    let sides = [base, head];
    let analyses = sides.map(|side| side.analysis);
    let traces = analyses.map(whole_trace);
    let [old, new] = traces.each_ref();
    let mut total = stage::change(StageSide::new(old, &[]), StageSide::new(new, &[]));
    // The launches of a whole trace are not counted.
    total.numbers.remove("launches");
    let (differences, unchecked) = comparability::differences(sides, &total.kernels);
    comparability::withdraw(&mut total, &differences, [old, new]);
    let [base_info, head_info] = sides.map(|Side { analysis, facts }| SideInfo {
        title: facts.title.clone(),
        sources: analysis.sources.iter().map(|source| source.path.clone()).collect(),
        gpus: comparability::gpus(analysis),
        model: analysis.workload.as_ref().and_then(|workload| workload.model.clone()),
        mode: facts.mode.clone(),
    });
    let [old, new] = analyses;
    let only = |one: &Analysis, other: &Analysis| -> Vec<String> {
        let names = one.stages.iter().map(|stage| stage.name.clone());
        names.filter(|name| other.stage(name).is_none()).collect()
    };
    let change = |stage: &Stage| {
        let other = new.stage(&stage.name)?;
        let mut change = stage::change(base.of_stage(stage), head.of_stage(other));
        comparability::withdraw(&mut change, &differences, [stage, other]);
        Some(change)
    };
    let mut comparison = Comparison {
        schema: COMPARISON_SCHEMA.into(),
        base: base_info,
        head: head_info,
        basis: total.basis,
        stages: old.stages.iter().filter_map(change).collect(),
        stages_gone: only(old, new),
        stages_added: only(new, old),
        total,
        differences,
        unchecked,
        gates: Vec::new(),
    };
    comparison.gates = gates.iter().flat_map(|gate| gate::results(gate, &comparison)).collect();
    comparison
}

/// Returns what is known of a whole trace as a stage.
fn whole_trace(analysis: &Analysis) -> Stage {
    let Totals { kernel_ns, busy_ns, stages_wall_ns, .. } = analysis.totals;
    let has_kernels = !analysis.kernels.is_empty();
    Stage {
        name: gate::TOTAL.to_owned(),
        instances: 1,
        wall_ns: stages_wall_ns.unwrap_or(0),
        kernel_ns: has_kernels.then_some(kernel_ns),
        busy_ns: busy_ns.filter(|_| has_kernels),
        kernels: analysis.kernels.clone(),
        graphs: analysis.graphs.clone(),
        ..Stage::default()
    }
}

#[cfg(test)]
mod tests;
