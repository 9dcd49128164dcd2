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
pub use gate::{Gate, GateError, Limit};
pub use stage::{METRICS, Metric};

use crate::result::Analysis;
use noise::{Better, GPU_PCT, Odd};

/// Compares two runs and checks gates.
pub fn compare(base: Side<'_>, head: Side<'_>, gates: &[Gate]) -> Comparison {
    let (old, new) = (base.analysis, head.analysis);
    let whole = kernels::whole_graphs(&old.graphs, &new.graphs);
    let kernels = match old.kernels.is_empty() || new.kernels.is_empty() {
        true => Vec::new(),
        false => kernels::changes((&old.kernels, 1), (&new.kernels, 1), whole),
    };
    let (differences, unchecked) = comparability::differences(base, head, &kernels);
    let side = |side: Side<'_>| SideInfo {
        title: side.facts.title.clone(),
        sources: side.analysis.sources.iter().map(|source| source.path.clone()).collect(),
        gpus: comparability::gpus(side.analysis),
        model: side.workload().and_then(|workload| workload.model.clone()),
        mode: side.facts.mode.clone(),
    };
    let only = |one: &Analysis, other: &Analysis| -> Vec<String> {
        let names = one.stages.iter().map(|stage| stage.name.clone());
        names.filter(|name| other.stage(name).is_none()).collect()
    };
    let mut comparison = Comparison {
        schema: COMPARISON_SCHEMA.into(),
        base: side(base),
        head: side(head),
        basis: comparability::basis(&differences, None),
        stages_gone: only(old, new),
        stages_added: only(new, old),
        totals: totals(old, new, kernels::noise_of_sum(&kernels)),
        differences,
        unchecked,
        kernels,
        ..Comparison::default()
    };
    for stage in &old.stages {
        let Some(other) = new.stage(&stage.name) else { continue };
        let mut change = stage::change(base.of_stage(stage), head.of_stage(other));
        comparability::withdraw(&mut change, &comparison.differences, stage, other);
        comparison.stages.push(change);
    }
    if comparison.basis != Basis::Whole || whole.is_some() {
        comparison.totals.values_mut().for_each(|change| change.judgement = Judgement::Unknown);
    }
    comparison.gates = gates.iter().flat_map(|gate| gate::results(gate, &comparison)).collect();
    comparison
}

fn totals(base: &Analysis, head: &Analysis, kernel_noise: f64) -> Numbers {
    let rows: [(&str, fn(&Analysis) -> Option<f64>); 3] = [
        ("kernel_ns", |analysis| Some(analysis.totals.kernel_ns as f64)),
        ("busy_ns", |analysis| analysis.totals.busy_ns.map(|ns| ns as f64)),
        ("kernel_count", |analysis| Some(analysis.totals.kernel_count as f64)),
    ];
    let time_noise = kernel_noise.max(noise::share(base.totals.kernel_ns as f64, GPU_PCT)).ceil();
    let change = |(field, value): (&str, fn(&Analysis) -> Option<f64>)| {
        let [base, head] =
            [base, head].map(|side| Some(side).filter(|side| !side.kernels.is_empty()).and_then(value));
        let noise = match field {
            "kernel_count" => noise::share(base.unwrap_or(0.0), GPU_PCT),
            _ => time_noise,
        };
        (field.to_owned(), noise::change(base, head, noise, Better::Lower, Odd::default()))
    };
    rows.map(change).into()
}

#[cfg(test)]
mod tests;
