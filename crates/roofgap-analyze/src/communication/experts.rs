//! Time of the experts of a mixture before each collective.

use crate::names::is_expert;
use roofgap_trace::{Ns, OpKind, Trace};

/// Marks the names of kernels that compute experts; `None` without any.
pub fn expert_names(trace: &Trace) -> Option<Vec<bool>> {
    let mut seen = vec![false; trace.names.len()];
    let kernels = trace.ops.kind.iter().zip(&trace.ops.name);
    for (_, name) in kernels.filter(|(kind, _)| **kind == OpKind::Kernel) {
        if let Some(seen) = seen.get_mut(name.index()) {
            *seen = true;
        }
    }
    let mut any = false;
    for (id, text) in trace.names.iter() {
        if let Some(seen) = seen.get_mut(id.index()).filter(|seen| **seen) {
            *seen = is_expert(text);
            any |= *seen;
        }
    }
    any.then_some(seen)
}

/// Sums the time of expert kernels from each of some moments, in order, to the next, for the later of the two; empty without such kernels.
/// Operations are in the order of their start.
pub fn times_before(trace: &Trace, moments: impl Iterator<Item = Ns>) -> Vec<Ns> {
    let Some(experts) = expert_names(trace) else {
        return Vec::new();
    };
    let ops = &trace.ops;
    let is_expert = |op: usize| {
        ops.kind[op] == OpKind::Kernel && experts.get(ops.name[op].index()).copied().unwrap_or(false)
    };
    let mut op = 0;
    let before = |moment: Ns| {
        let mut sum = 0;
        while op < ops.len() && ops.start[op] < moment {
            if is_expert(op) {
                sum += ops.duration(op);
            }
            op += 1;
        }
        sum
    };
    moments.map(before).collect()
}
