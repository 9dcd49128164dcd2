//! Batch size and tokens over time, and decode steps by batch size.

use super::steps::{Step, span_ns};
use crate::result::{BatchRow, ServingSlice, StageKind};
use std::collections::BTreeMap;

/// Most slices.
const SLICES: usize = 12;

/// Cuts the span of the steps into slices of equal length.
pub fn slices(steps: &[Step]) -> Vec<ServingSlice> {
    let span = span_ns(steps);
    let Some(first) = steps.iter().map(|step| step.cpu.0).min().filter(|_| span > 0) else {
        return Vec::new();
    };
    let count = SLICES.min(steps.len());
    let length = span / count as i64 + 1;
    let mut groups: Vec<Vec<&Step>> = vec![Vec::new(); count];
    for step in steps {
        let at = ((step.cpu.0 - first) / length) as usize;
        if let Some(group) = groups.get_mut(at) {
            group.push(step);
        }
    }
    let slice = |(at, group): (usize, Vec<&Step>)| {
        let of_kind = |kind: StageKind| group.iter().filter(|step| step.kind == kind).count() as u64;
        let requests = group.iter().map(|step| {
            let scheduled = &step.scheduled;
            Some(scheduled.context.requests? + scheduled.generation.requests?)
        });
        let requests = requests.sum::<Option<u64>>().filter(|_| !group.is_empty());
        ServingSlice {
            start_ns: at as i64 * length,
            length_ns: length,
            prefill_steps: of_kind(StageKind::Prefill),
            mixed_steps: of_kind(StageKind::Mixed),
            decode_steps: of_kind(StageKind::Decode),
            requests_per_step: requests.map(|sum| sum as f64 / group.len() as f64),
            context_tokens: group.iter().map(|step| step.scheduled.context.tokens).sum(),
            generation_tokens: group.iter().map(|step| step.scheduled.generation.tokens).sum(),
        }
    };
    groups.into_iter().enumerate().map(slice).collect()
}

/// Groups the decode steps by the number of requests in them, smallest first.
pub fn batches(steps: &[Step]) -> Vec<BatchRow> {
    let mut groups: BTreeMap<u64, Vec<&Step>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.kind == StageKind::Decode) {
        if let Some(requests) = step.generating() {
            groups.entry(requests).or_default().push(step);
        }
    }
    let row = |(requests, group): (u64, Vec<&Step>)| {
        let by_graph = |step: &&&Step| step.graph_kernels > 0 && step.graph_kernels >= step.eager_kernels;
        let times: Vec<i64> =
            group.iter().filter_map(|step| step.gpu).map(|(start, end)| end - start).collect();
        let eager = group.iter().filter(|step| step.eager_kernels > 0 && !by_graph(step));
        BatchRow {
            requests,
            steps: group.len() as u64,
            graph_steps: group.iter().filter(by_graph).count() as u64,
            mean_ns: times.iter().sum::<i64>().checked_div(times.len() as i64),
            eager_idle_ns: eager
                .filter_map(|step| step.gpu.map(|(start, end)| (end - start - step.busy_ns).max(0)))
                .sum(),
        }
    };
    groups.into_iter().map(row).collect()
}
