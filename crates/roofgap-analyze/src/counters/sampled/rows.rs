//! Sampled counters as rows beside those of ncu.

use super::{SampledKernel, divide};

use crate::counters::join::{Joined, Measured};
use crate::counters::readings::{Readings, verdict};
use crate::gpu::GpuFacts;
use crate::result::{About, Analysis, CounterRow, CounterSource, Reason};
use crate::stages::StageIndex;
use roofgap_trace::Trace;

/// Adds the rows of sampled counters, and the numbers of stages. A row of ncu for the same kernel, shape and stage stays alone.
pub fn add(
    joined: &mut Joined,
    trace: &Trace,
    index: &StageIndex,
    analysis: &mut Analysis,
    gpu: Option<&GpuFacts>,
) {
    if trace.sampled.is_empty() {
        return;
    }
    let sampled = divide(trace, index, &analysis.stages, gpu);
    for (stage, measured) in analysis.stages.iter_mut().zip(sampled.stages) {
        if let Some(warm) = &mut stage.warm {
            warm.mbu_measured = measured.clone();
        }
        stage.mbu_measured = measured;
    }
    joined.losses.merge(&sampled.losses);
    let rows: Vec<Measured> = sampled
        .kernels
        .iter()
        .map(|kernel| row(kernel, trace, index, gpu))
        .filter(|row| !by_ncu(joined, row))
        .collect();
    if rows.is_empty() && joined.measured.is_empty() {
        let why = "the samples of counters do not cover the kernels, or another program used the GPU at the same time";
        analysis.reasons.push(Reason::new(About::Counters, why));
    }
    joined.measured.extend(rows);
}

/// Tells whether ncu measured the kernel of a row.
fn by_ncu(joined: &Joined, sampled: &Measured) -> bool {
    let own = &sampled.row;
    joined.measured.iter().any(|other| {
        let row = &other.row;
        let place = row.stage.is_none() || row.stage == own.stage;
        other.matched && place && row.kernel == own.kernel && (row.grid, row.block) == (own.grid, own.block)
    })
}

fn row(kernel: &SampledKernel, trace: &Trace, index: &StageIndex, gpu: Option<&GpuFacts>) -> Measured {
    let most = |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| one.max(other));
    let readings = Readings {
        duration_ns: Some(kernel.duration_ns),
        sm_pct: most(kernel.tensor_pct, kernel.issue_pct),
        memory_pct: most(kernel.dram_pct, kernel.l2_pct),
        dram_pct: kernel.dram_pct,
        l2_pct: kernel.l2_pct,
        dram_bytes: kernel.dram_bytes,
        roof_pct: roof_pct(kernel),
        ..Readings::default()
    };
    let (grid, block) = kernel.shape;
    let blocks = (grid != [0; 3]).then(|| grid.iter().map(|n| u64::from(*n)).product());
    let verdict = verdict(&readings, blocks, gpu.and_then(|gpu| gpu.sms).map(u64::from));
    let others = &kernel.interval.together_with;
    let (bound, reached_pct, reason) = match others.is_empty() {
        true => (verdict.bound, verdict.reached_pct, verdict.reason),
        false => (None, None, together(kernel)),
    };
    Measured {
        row: CounterRow {
            stage: kernel.stage.map(|stage| index.name(stage).to_owned()),
            kernel: trace.names.get(kernel.name).to_owned(),
            grid,
            block,
            source: CounterSource::Sampled,
            samples: kernel.launches,
            bound: bound.map(|bound| bound.to_string()),
            reason: format!(
                "{reason}; sampled while {} launches ran; flops are not sampled",
                kernel.launches
            ),
            sampled: Some(kernel.interval.clone()),
            ..readings.row()
        },
        bound,
        reached_pct,
        representative: Some(true),
        matched: true,
        timeline_calls: kernel.calls,
        timeline_total_ns: kernel.total_ns,
        readings,
        advice: Vec::new(),
    }
}

/// Returns the time at the roof, % of the time of a launch. Its floating-point operations are at most the executed instructions, and those of
/// the tensor pipe take as long as that is active; where neither exceeds the share of the bandwidth, memory is the roof.
fn roof_pct(kernel: &SampledKernel) -> Option<f64> {
    let reached = kernel.dram_pct?.max(kernel.tensor_pct?);
    Some(reached.min(100.0)).filter(|reached| *reached >= kernel.issue_pct.unwrap_or(f64::INFINITY))
}

fn together(kernel: &SampledKernel) -> String {
    let others = &kernel.interval.together_with;
    let named: Vec<&str> = others.iter().take(2).map(|name| name.get(..60).unwrap_or(name)).collect();
    let more = match others.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let dram = kernel.together_dram_pct.map_or(String::new(), |pct| format!("; together DRAM {pct:.1} %"));
    format!("the samples do not tell it apart from {}{more}{dram}", named.join(", "))
}
