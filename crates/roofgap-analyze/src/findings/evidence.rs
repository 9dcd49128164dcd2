//! What the trace shows of a stage beside the analysis: launch shapes, waits, copies, chains of small kernels, overlap.

use crate::attribute::{Contexts, Launches, NO_CALL};
use crate::instances::{NO_INSTANCE, StageRanges, Warmup, place_contexts};
use crate::interval::Union;
use crate::names::family;
use crate::stages::StageSet;
use roofgap_trace::{CallClass, MemoryKind, NameId, Ns, OpKind, ShapeId, ThreadId, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

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
    /// Kernels that talk to other devices, where there are any.
    pub communication: Option<CommunicationUse>,
}

/// Launches of one kernel in one shape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShapeUse {
    /// The kernel as the tool gave it.
    pub name: String,
    /// Its family.
    pub family: &'static str,
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

/// Collects the evidence of every stage that occurs.
pub fn evidence(
    trace: &Trace,
    launches: &Launches,
    contexts: &Contexts,
    stages: &StageSet,
) -> Vec<StageEvidence> {
    let warmup = Warmup::of(trace, stages);
    let mut families = Families::default();
    stages
        .stages
        .iter()
        .filter_map(|rule| {
            let ranges = StageRanges::find(trace, rule, &warmup, stages);
            if ranges.instances.is_empty() {
                return None;
            }
            let place = place_contexts(contexts, &ranges.instances, trace.ranges.rows.len());
            let inside = |op: usize| {
                let call = launches.call_of_op.get(op).copied().unwrap_or(NO_CALL);
                let context = contexts.of_call.get(call as usize);
                context
                    .and_then(|context| place.get(*context as usize))
                    .is_some_and(|instance| *instance != NO_INSTANCE)
            };
            let mut collector = Collector::new(trace, &mut families);
            for op in (0..trace.ops.len()).filter(|&op| inside(op)) {
                collector.add(op);
            }
            let mut found = collector.finish();
            found.stage.clone_from(&rule.name);
            found.syncs = syncs(trace, &ranges);
            Some(found)
        })
        .collect()
}

/// Families of kernel names, each looked up once.
#[derive(Default)]
struct Families(FxHashMap<NameId, &'static str>);

impl Families {
    fn of(&mut self, trace: &Trace, name: NameId) -> &'static str {
        self.0
            .entry(name)
            .or_insert_with(|| family(trace.names.get(name)))
    }
}

/// Kernels that a compiler can fold into one another.
fn light(family: &str) -> bool {
    matches!(
        family,
        "elementwise" | "copy/layout" | "reduction" | "norm" | "softmax"
    )
}

/// A run of light kernels that is still open on a stream.
#[derive(Clone, Copy, Default)]
struct Run {
    kernels: u64,
    ns: Ns,
    longest_ns: Ns,
}

struct Collector<'t, 'f> {
    trace: &'t Trace,
    families: &'f mut Families,
    shapes: FxHashMap<(NameId, ShapeId, u16), (u64, Ns)>,
    runs: FxHashMap<(u16, u32), Run>,
    streams: FxHashSet<(u16, u32)>,
    compute: FxHashMap<u16, Vec<(Ns, Ns)>>,
    talk: FxHashMap<u16, Vec<(Ns, Ns)>>,
    copies: FxHashMap<u16, Vec<(Ns, Ns)>>,
    found: StageEvidence,
    talks: u64,
}

impl<'t, 'f> Collector<'t, 'f> {
    fn new(trace: &'t Trace, families: &'f mut Families) -> Self {
        Self {
            trace,
            families,
            shapes: FxHashMap::default(),
            runs: FxHashMap::default(),
            streams: FxHashSet::default(),
            compute: FxHashMap::default(),
            talk: FxHashMap::default(),
            copies: FxHashMap::default(),
            found: StageEvidence::default(),
            talks: 0,
        }
    }

    /// Operations come in the order of their start.
    fn add(&mut self, op: usize) {
        let ops = &self.trace.ops;
        let (Some(&kind), Some(&start), Some(&end), Some(&device), Some(&stream)) = (
            ops.kind.get(op),
            ops.start.get(op),
            ops.end.get(op),
            ops.device.get(op),
            ops.stream.get(op),
        ) else {
            return;
        };
        let lane = (device.0, stream);
        self.streams.insert(lane);
        match kind {
            OpKind::Kernel => {
                let Some(&name) = ops.name.get(op) else { return };
                let family = self.families.of(self.trace, name);
                let shape = ops.shape.get(op).copied().unwrap_or_default();
                let use_ = self.shapes.entry((name, shape, device.0)).or_default();
                *use_ = (use_.0 + 1, use_.1 + (end - start));
                if family == "communication" {
                    self.talks += 1;
                    self.talk.entry(device.0).or_default().push((start, end));
                } else {
                    self.compute.entry(device.0).or_default().push((start, end));
                }
                self.chain(lane, light(family), end - start);
            }
            OpKind::Copy => {
                let transfer = u32::try_from(op).ok().and_then(|row| ops.transfers.get(&row));
                let memory = transfer.map(|t| t.memory).unwrap_or_default();
                let host = |kind| matches!(kind, MemoryKind::Pageable | MemoryKind::Pinned);
                if host(memory.0) || host(memory.1) {
                    let copies = &mut self.found.host_copies;
                    copies.count += 1;
                    copies.ns += end - start;
                    copies.bytes += transfer.map_or(0, |t| t.bytes);
                    if memory.0 == MemoryKind::Pageable || memory.1 == MemoryKind::Pageable {
                        copies.pageable += 1;
                    }
                    self.copies.entry(device.0).or_default().push((start, end));
                    self.chain(lane, false, 0);
                }
            }
            OpKind::Set => {}
            OpKind::Graph => self.compute.entry(device.0).or_default().push((start, end)),
        }
    }

    fn chain(&mut self, lane: (u16, u32), light: bool, ns: Ns) {
        let run = self.runs.entry(lane).or_default();
        if light {
            run.kernels += 1;
            run.ns += ns;
            run.longest_ns = run.longest_ns.max(ns);
        } else {
            let ended = std::mem::take(run);
            close(ended, &mut self.found.chains);
        }
    }

    fn finish(mut self) -> StageEvidence {
        for run in self.runs.values() {
            close(*run, &mut self.found.chains);
        }
        let union = |lists: &FxHashMap<u16, Vec<(Ns, Ns)>>| -> FxHashMap<u16, Union> {
            lists
                .iter()
                .map(|(device, list)| (*device, Union::of(list.clone())))
                .collect()
        };
        if !self.talk.is_empty() || !self.copies.is_empty() {
            let compute = union(&self.compute);
            let exposed = |busy: &FxHashMap<u16, Union>| -> (Ns, Ns) {
                let mut sum = (0, 0);
                for (device, own) in busy {
                    sum.0 += own.length();
                    for &(start, end) in own.intervals() {
                        let hidden = compute.get(device).map_or(0, |other| other.overlap(start, end));
                        sum.1 += end - start - hidden;
                    }
                }
                sum
            };
            let (ns, exposed_ns) = exposed(&union(&self.talk));
            if self.talks > 0 {
                self.found.communication = Some(CommunicationUse {
                    count: self.talks,
                    ns,
                    exposed_ns,
                });
            }
            self.found.host_copies.exposed_ns = exposed(&union(&self.copies)).1;
        }
        self.found.streams = self.streams.len() as u64;
        let trace = self.trace;
        let mut shapes: Vec<ShapeUse> = self
            .shapes
            .iter()
            .map(|(&(name, shape, device), &(calls, total_ns))| {
                let shape = trace.ops.shapes.get(shape.index()).copied().unwrap_or_default();
                let device = trace.devices.get(usize::from(device));
                ShapeUse {
                    name: trace.names.get(name).to_owned(),
                    family: self.families.of(trace, name),
                    sms: device.and_then(|device| device.sms),
                    compute_capability: device.and_then(|device| device.compute_capability),
                    blocks: blocks_of(shape.grid),
                    threads: threads_of(shape.block),
                    registers: shape.registers,
                    shared_bytes: shape.static_shared.saturating_add(shape.dynamic_shared),
                    calls,
                    total_ns,
                }
            })
            .collect();
        shapes.sort_by(|a, b| {
            b.total_ns
                .cmp(&a.total_ns)
                .then_with(|| (&a.name, a.blocks).cmp(&(&b.name, b.blocks)))
        });
        self.found.shapes = shapes;
        self.found
    }
}

/// Blocks of a grid; what a broken input overstates stays at the most.
pub(super) fn blocks_of(grid: [u32; 3]) -> u64 {
    grid.iter()
        .fold(1, |product, side| product.saturating_mul(u64::from(*side)))
}

/// Threads of a block.
pub(super) fn threads_of(block: [u32; 3]) -> u32 {
    block
        .iter()
        .fold(1, |product, side| product.saturating_mul(*side))
}

/// Two kernels in a row are common and cheap; from three on it is a chain.
fn close(run: Run, chains: &mut ChainUse) {
    if run.kernels >= 3 {
        chains.count += 1;
        chains.kernels += run.kernels;
        chains.ns += run.ns;
        chains.beyond_longest_ns += run.ns - run.longest_ns;
        chains.longest = chains.longest.max(run.kernels);
    }
}

fn syncs(trace: &Trace, ranges: &StageRanges) -> SyncUse {
    let union = |rows: &[u32]| -> FxHashMap<ThreadId, Union> {
        let mut lists: FxHashMap<ThreadId, Vec<(Ns, Ns)>> = FxHashMap::default();
        for range in rows.iter().filter_map(|&row| trace.ranges.rows.get(row as usize)) {
            lists
                .entry(range.thread)
                .or_default()
                .push((range.start, range.end));
        }
        lists
            .into_iter()
            .map(|(thread, list)| (thread, Union::of(list)))
            .collect()
    };
    let stage = union(&ranges.instances);
    let steps = union(&ranges.steps);
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
        let within = |lists: &FxHashMap<ThreadId, Union>| {
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
    found.inside = if ranges.steps.is_empty() {
        found.count.saturating_sub(ranges.instances.len() as u64)
    } else {
        in_steps
    };
    let most = names
        .into_iter()
        .max_by_key(|(name, count)| (*count, std::cmp::Reverse(*name)));
    found.most_common = most.map(|(name, _)| trace.names.get(name).to_owned());
    found
}
