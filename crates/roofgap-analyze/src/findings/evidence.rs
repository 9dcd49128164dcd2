//! What the trace shows of a stage beside the analysis: launch shapes, waits, copies, chains of small kernels, overlap.

use super::collect::{Collector, Kinds};
use crate::names::Family;
use crate::stages::{Span, StageIndex, StageSpans};
use crate::timeline::IntervalSet;
use roofgap_trace::{CallClass, NameId, Ns, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// What the trace shows of one stage.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StageEvidence {
    /// The stage.
    pub stage: String,
    /// Kernels by name and launch shape, most time first.
    pub shapes: Vec<ShapeUse>,
    /// Copies between host and device.
    pub host_copies: CopyUse,
    /// Calls that wait for the device.
    pub syncs: SyncUse,
    /// Runs of kernels that only move and combine elements.
    pub chains: ChainUse,
    /// Streams with work.
    pub streams: u64,
    /// Launches of whole graphs.
    pub graph_launches: u64,
    /// Devices with work, in the order of their numbers.
    pub devices: Vec<DeviceUse>,
    /// Time in which at least one device computed; `None` on a single device.
    pub any_device_ns: Option<Ns>,
    /// Kernels that talk to other devices, where there are any.
    pub communication: Option<CommunicationUse>,
}

/// Computation on one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Its number.
    pub number: u32,
    /// Time in which a kernel ran that does not talk to other devices.
    pub compute_ns: Ns,
}

/// Launches of one kernel in one shape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShapeUse {
    /// The kernel as the tool gave it.
    pub name: String,
    /// Kernel family.
    pub family: Family,
    /// Multiprocessors of its device.
    pub sms: Option<u32>,
    /// Compute capability of its device.
    pub compute_capability: Option<(u32, u32)>,
    /// Blocks.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory of a block, bytes.
    pub shared_bytes: u32,
    /// Launches.
    pub calls: u64,
    /// Sum of durations.
    pub total_ns: Ns,
}

/// Copies between host and device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyUse {
    /// How many.
    pub count: u64,
    /// How many of them from or to memory that the system may page out.
    pub pageable: u64,
    /// How many of them from the device to the host.
    pub to_host: u64,
    /// Bytes.
    pub bytes: u64,
    /// Sum of their durations on the device.
    pub ns: Ns,
    /// Of that, time in which the device ran nothing else.
    pub exposed_ns: Ns,
}

/// Calls that wait for the device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncUse {
    /// Inside the stage.
    pub count: u64,
    /// Inside its steps, where it has steps; else all but one for each instance, which ends it.
    pub inside: u64,
    /// Time spent in them.
    pub ns: Ns,
    /// The call that occurs most.
    pub most_common: Option<String>,
}

/// Runs of three kernels or more on one stream that only move and combine elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChainUse {
    /// Runs.
    pub count: u64,
    /// Kernels in them.
    pub kernels: u64,
    /// Sum of their durations.
    pub ns: Ns,
    /// What is left of that sum without the longest kernel of each run.
    pub beyond_longest_ns: Ns,
    /// Kernels of the longest run.
    pub longest: u64,
}

/// Kernels that talk to other devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommunicationUse {
    /// How many.
    pub count: u64,
    /// Time in which at least one ran, summed over devices.
    pub ns: Ns,
    /// Of that, time in which the device ran nothing else.
    pub exposed_ns: Ns,
}

/// Collects the evidence of every stage, in the order of the index.
pub(crate) fn evidence(trace: &Trace, index: &StageIndex) -> Vec<StageEvidence> {
    let mut kinds = Kinds::default();
    (0..index.len())
        .map(|stage| {
            let members = || (0..trace.ops.len()).filter(|&op| index.holds(stage, op));
            let mut collector = Collector::new(trace, &mut kinds);
            members().for_each(|op| collector.add(op));
            // Rare, so a second pass is cheaper than keeping the times of every kernel.
            if collector.needs_compute() {
                members().for_each(|op| collector.add_compute(op));
            }
            let mut found = collector.finish();
            found.stage = index.name(stage).to_owned();
            found.syncs = syncs(trace, index.spans(stage));
            let calls = index.contexts().of_call.iter().zip(&trace.calls.class);
            let graphs = calls.filter(|(context, class)| {
                **class == CallClass::GraphLaunch && index.instance_of_context(stage, **context).is_some()
            });
            found.graph_launches = graphs.count() as u64;
            found
        })
        .collect()
}

fn syncs(trace: &Trace, spans: &StageSpans) -> SyncUse {
    let by_thread = |spans: &[Span]| {
        let rows = spans.iter().filter_map(|span| span.range);
        IntervalSet::by_thread(rows.filter_map(|row| trace.ranges.rows.get(row as usize)))
    };
    let stage = by_thread(&spans.instances);
    let steps = by_thread(&spans.steps);
    let calls = &trace.calls;
    let mut found = SyncUse::default();
    let mut names: FxHashMap<NameId, u64> = FxHashMap::default();
    let mut in_steps = 0;
    let columns = calls
        .class
        .iter()
        .zip(&calls.thread)
        .zip(&calls.start)
        .zip(&calls.end)
        .zip(&calls.name);
    for ((((class, thread), start), end), name) in columns {
        if *class != CallClass::Sync {
            continue;
        }
        let within = |lists: &FxHashMap<ThreadId, IntervalSet>| {
            lists
                .get(thread)
                .is_some_and(|union| union.encloses(*start, *end))
        };
        if within(&stage) {
            found.count += 1;
            found.ns += end - start;
            *names.entry(*name).or_default() += 1;
            in_steps += u64::from(within(&steps));
        }
    }
    found.inside = if spans.steps.is_empty() {
        found.count.saturating_sub(spans.instances.len() as u64)
    } else {
        in_steps
    };
    let most = names
        .into_iter()
        .max_by_key(|(name, count)| (*count, std::cmp::Reverse(*name)));
    found.most_common = most.map(|(name, _)| trace.names.get(name).to_owned());
    found
}
