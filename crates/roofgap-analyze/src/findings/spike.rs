//! The cause of a slow step: what took the time that its work does not explain.

use crate::host;
use crate::names::{Family, family};
use crate::result::{ColdKind, HostKind, Tail};
use crate::timeline::{HostGap, StageMeter, StepPeriod, StepPeriods};
use roofgap_base::stats::median;
use roofgap_trace::{CallClass, Ns};
use std::cmp::Reverse;

/// Part of the time beyond the expected one, 1 in so many, from which on a gap is looked at.
const LEAST: Ns = 10;

/// A part of the time that the work of a step does not explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpikePart {
    pub kind: SpikeKind,
    pub ns: Ns,
    /// Call, function, range or kernel.
    pub what: String,
}

/// What took the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpikeKind {
    /// The CPU loads code, captures a graph or launches a kernel for the first time.
    Cold,
    Allocation,
    /// The CPU waits for the device, which runs nothing.
    Wait,
    Copy,
    /// Another call of the driver.
    Call,
    /// CPU work without a call, of a kind where stacks tell it.
    Code(Option<HostKind>),
    /// The same kernels take longer.
    Kernels,
    Communication,
}

/// Returns what took the time of the slowest step of a stage, most time first.
pub fn spike(meter: &StageMeter<'_>, stage: usize, tail: &Tail) -> Vec<SpikePart> {
    let periods = StepPeriods::measure(meter.trace, meter.index, meter.activity, stage);
    let slowest = periods.each.iter().find(|step| step.time_ns == tail.slowest_ns);
    let Some((step, span)) = slowest.and_then(|step| Some((step, step.span?))) else {
        return Vec::new();
    };
    let least = (tail.slowest_ns - tail.expected_ns) / LEAST;
    let mut parts = Vec::new();
    let mut add = |kind: SpikeKind, ns: Ns, what: String| {
        if let Some(known) = parts.iter_mut().find(|part: &&mut SpikePart| part.kind == kind) {
            known.ns += ns;
        } else if ns >= least {
            parts.push(SpikePart { kind, ns, what });
        }
    };
    let usual = median(&mut periods.each.iter().map(|step| step.gpu_ns).collect::<Vec<Ns>>());
    let longer = step.gpu_ns - usual.unwrap_or(0);
    if longer >= least
        && let Some(kernel) = longest_kernel(meter, step.device, span)
    {
        let talks = family(kernel) == Family::Communication;
        let kind = if talks { SpikeKind::Communication } else { SpikeKind::Kernels };
        add(kind, longer, kernel.to_owned());
    }
    let mut code = Vec::new();
    for (gap, call) in gaps(meter, step, span, least) {
        let trace = meter.trace;
        let cold = meter.host.cold_calls().during(trace, gap, call);
        if let Some(cold) = &cold {
            let allocates = cold.kind == ColdKind::Allocation;
            let kind = if allocates { SpikeKind::Allocation } else { SpikeKind::Cold };
            add(kind, cold.ns, trace.names.get(cold.call).to_owned());
        }
        let rest = gap.1 - gap.0 - cold.map_or(0, |cold| cold.ns);
        let inside = longest_call(meter, gap, call).filter(|(_, ns)| 2 * ns >= rest);
        match inside {
            _ if rest < least => {}
            Some((row, ns)) => {
                let name = trace.names.get(trace.calls.name[row]);
                let kind = match trace.calls.class[row] {
                    CallClass::Sync => SpikeKind::Wait,
                    CallClass::Copy => SpikeKind::Copy,
                    _ if name.contains("Alloc") || name.contains("Free") => SpikeKind::Allocation,
                    _ => SpikeKind::Call,
                };
                add(kind, ns.min(rest), name.to_owned());
            }
            None => {
                let thread = trace.calls.thread.get(call as usize).copied();
                code.push(HostGap { thread, start: gap.1 - rest, end: gap.1, waits: false });
            }
        }
    }
    let ns = code.iter().map(|gap| gap.end - gap.start).sum();
    let (what, kind) = host::function_in(meter.trace, code).unzip();
    add(SpikeKind::Code(kind), ns, what.unwrap_or_default());
    parts.sort_by_key(|part| Reverse(part.ns));
    parts
}

/// Returns the longest kernel that a device ran in a span of time.
fn longest_kernel<'a>(meter: &StageMeter<'a>, device: usize, (begin, end): (Ns, Ns)) -> Option<&'a str> {
    let ops = &meter.trace.ops;
    let inside = (0..ops.len())
        .filter(|op| ops.device[*op].index() == device && ops.start[*op] < end && ops.end[*op] > begin);
    let longest = inside.max_by_key(|op| ops.duration(*op))?;
    Some(meter.trace.names.get(ops.name[longest]))
}

/// Lists the gaps of a step on its device that are long enough, each with the call that launched the operation after it.
fn gaps(
    meter: &StageMeter<'_>,
    step: &StepPeriod,
    (begin, end): (Ns, Ns),
    least: Ns,
) -> Vec<((Ns, Ns), u32)> {
    let ops = &meter.trace.ops;
    let (mut covered, mut list) = (begin, Vec::new());
    for op in (0..ops.len()).filter(|op| ops.device[*op].index() == step.device && ops.end[*op] > begin) {
        let until = ops.start[op].min(end);
        if until - covered >= least {
            list.push(((covered, until), meter.index.call_of_op(op)));
        }
        covered = covered.max(ops.end[op]);
        if covered >= end {
            break;
        }
    }
    list
}

/// Returns the call that takes most of a gap on the thread that ends it, and its time there, ns.
fn longest_call(meter: &StageMeter<'_>, gap: (Ns, Ns), call: u32) -> Option<(usize, Ns)> {
    let calls = &meter.trace.calls;
    let thread = calls.thread.get(call as usize)?;
    let overlap = |row: usize| (row, calls.end[row].min(gap.1) - calls.start[row].max(gap.0));
    let own = (0..calls.len()).filter(|row| calls.thread[*row] == *thread).map(overlap);
    own.max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0)
}
