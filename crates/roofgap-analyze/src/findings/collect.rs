//! Collects the evidence of each stage in one pass over its operations.

use super::evidence::{ChainUse, CommunicationUse, DeviceUse, ShapeUse, StageEvidence, SyncUse};
use crate::names::{Family, family};
use crate::stages::{Span, StageIndex, StageSpans};
use crate::timeline::IntervalSet;
use roofgap_trace::{CallClass, MemoryKind, NameId, Ns, OpKind, ShapeId, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// Facts of a kernel by its name.
#[derive(Clone, Copy)]
struct Kind {
    family: Family,
    /// A compiler can fold it into its neighbours.
    light: bool,
    communication: bool,
}

/// Kinds by name, each looked up once.
#[derive(Default)]
pub struct Kinds(Vec<Option<Kind>>);

impl Kinds {
    fn of(&mut self, trace: &Trace, name: NameId) -> Kind {
        if let Some(Some(kind)) = self.0.get(name.index()) {
            return *kind;
        }
        let family = family(trace.names.get(name));
        let kind = Kind { family, light: light(family), communication: family == Family::Communication };
        if self.0.len() <= name.index() {
            self.0.resize(name.index() + 1, None);
        }
        if let Some(slot) = self.0.get_mut(name.index()) {
            *slot = Some(kind);
        }
        kind
    }
}

/// Kernels that a compiler can fold into one another.
fn light(family: Family) -> bool {
    use Family::*;
    matches!(family, Elementwise | CopyLayout | Reduction | Norm | Softmax | Quantization)
}

/// A stream of a device, with the run of light kernels that is still open on it.
#[derive(Clone, Copy)]
struct Lane {
    device: u16,
    stream: u32,
    kernels: u64,
    ns: Ns,
    longest_ns: Ns,
}

impl Lane {
    /// Ends the run. Two kernels in a row are common and cheap; from three on it is a chain.
    fn close(&mut self, chains: &mut ChainUse) {
        if self.kernels >= 3 {
            chains.count += 1;
            chains.kernels += self.kernels;
            chains.ns += self.ns;
            chains.beyond_longest_ns += self.ns - self.longest_ns;
            chains.longest = chains.longest.max(self.kernels);
        }
        (self.kernels, self.ns, self.longest_ns) = (0, 0, 0);
    }
}

/// Sums over the launches of a kernel in one shape.
#[derive(Clone, Copy, Default)]
struct ShapeSum {
    calls: u64,
    ns: Ns,
    longest_ns: Ns,
    /// Time in which another kernel ran on the device too.
    shared_ns: Ns,
}

/// Share of kernel time, in %, from which on it matters that kernels run at the same time.
const LEAST_SHARED_PCT: Ns = 1;

/// Times taken, by device.
type Times = FxHashMap<u16, IntervalSet>;

/// Length of a union of intervals that come in the order of their start.
#[derive(Default)]
struct Coverage {
    until: Option<Ns>,
    ns: Ns,
}

impl Coverage {
    /// Adds an interval and returns its part that was not covered; `None` if all was.
    fn add(&mut self, start: Ns, end: Ns) -> Option<(Ns, Ns)> {
        let from = self.until.map_or(start, |until| until.max(start));
        self.until = Some(from.max(end));
        self.ns += (end - from).max(0);
        (from < end).then_some((from, end))
    }
}

/// Time in which a device computed, and the part of it beside communication and beside copies.
#[derive(Default)]
struct ComputeTime {
    all: Coverage,
    beside_talk: Beside,
    beside_copies: Beside,
}

/// Time covered by both of two sets.
#[derive(Default)]
struct Beside {
    ns: Ns,
    near: usize,
}

impl Beside {
    fn add(&mut self, other: Option<&IntervalSet>, (start, end): (Ns, Ns)) {
        self.ns += other.map_or(0, |set| set.overlap_near(start, end, &mut self.near));
    }
}

pub struct Collector<'t, 'k> {
    trace: &'t Trace,
    kinds: &'k mut Kinds,
    shapes: FxHashMap<(NameId, ShapeId, u16), ShapeSum>,
    /// Last end of a kernel, by device.
    last_end: FxHashMap<u16, Ns>,
    /// Times in which several kernels ran on a device.
    shared: Times,
    kernel_ns: Ns,
    lanes: Vec<Lane>,
    /// Position in `lanes` by device and stream.
    lane_of: FxHashMap<(u16, u32), usize>,
    last_lane: usize,
    compute: FxHashMap<u16, ComputeTime>,
    /// Time in which any device computed.
    any_compute: Coverage,
    talk: Times,
    copies: Times,
    found: StageEvidence,
    talks: u64,
}

impl<'t, 'k> Collector<'t, 'k> {
    pub fn new(trace: &'t Trace, kinds: &'k mut Kinds) -> Self {
        Self {
            trace,
            kinds,
            shapes: FxHashMap::default(),
            last_end: FxHashMap::default(),
            shared: Times::default(),
            kernel_ns: 0,
            lanes: Vec::new(),
            lane_of: FxHashMap::default(),
            last_lane: 0,
            compute: FxHashMap::default(),
            any_compute: Coverage::default(),
            talk: Times::default(),
            copies: Times::default(),
            found: StageEvidence::default(),
            talks: 0,
        }
    }

    /// Operations come in the order of their start.
    pub fn add(&mut self, op: usize) {
        let ops = &self.trace.ops;
        let (Some(&kind), Some(&start), Some(&end), Some(&device), Some(&stream)) =
            (ops.kind.get(op), ops.start.get(op), ops.end.get(op), ops.device.get(op), ops.stream.get(op))
        else {
            return;
        };
        match kind {
            OpKind::Kernel => {
                let Some(&name) = ops.name.get(op) else { return };
                let kind = self.kinds.of(self.trace, name);
                let shape = ops.shape.get(op).copied().unwrap_or_default();
                let sum = self.shapes.entry((name, shape, device.0)).or_default();
                sum.calls += 1;
                sum.ns += end - start;
                sum.longest_ns = sum.longest_ns.max(end - start);
                self.kernel_ns += end - start;
                // The kernel that ends last began before this one, so both run until the first of them ends.
                let last_end = self.last_end.entry(device.0).or_insert(Ns::MIN);
                if start < (*last_end).min(end) {
                    self.shared.entry(device.0).or_default().add(start, end.min(*last_end));
                }
                *last_end = end.max(*last_end);
                if kind.communication {
                    self.talks += 1;
                    self.talk.entry(device.0).or_default().add(start, end);
                }
                self.chain(device.0, stream, kind.light.then_some(end - start));
            }
            OpKind::Copy => {
                let transfer = u32::try_from(op).ok().and_then(|row| ops.transfers.get(&row));
                let memory = transfer.map(|t| t.memory).unwrap_or_default();
                let host = |kind| matches!(kind, MemoryKind::Pageable | MemoryKind::Pinned);
                if host(memory.0) || host(memory.1) {
                    let copies = &mut self.found.host_copies;
                    copies.count += 1;
                    copies.ns += end - start;
                    copies.to_host += u64::from(host(memory.1));
                    copies.bytes = copies.bytes.saturating_add(transfer.map_or(0, |t| t.bytes));
                    if memory.0 == MemoryKind::Pageable || memory.1 == MemoryKind::Pageable {
                        copies.pageable += 1;
                    }
                    self.copies.entry(device.0).or_default().add(start, end);
                    self.chain(device.0, stream, None);
                } else {
                    self.lane(device.0, stream);
                }
            }
            OpKind::Set => {
                self.lane(device.0, stream);
            }
            OpKind::Graph => self.chain(device.0, stream, None),
        }
    }

    /// Tells whether kernels run at the same time often enough to matter.
    pub fn needs_shared(&self) -> bool {
        let shared: Ns = self.shared.values().map(IntervalSet::length).sum();
        shared > 0 && shared >= self.kernel_ns / 100 * LEAST_SHARED_PCT
    }

    /// Notes how long a kernel ran beside others.
    pub fn add_shared(&mut self, op: usize) {
        let ops = &self.trace.ops;
        let (Some(OpKind::Kernel), Some(&start), Some(&end), Some(&device), Some(&name)) =
            (ops.kind.get(op), ops.start.get(op), ops.end.get(op), ops.device.get(op), ops.name.get(op))
        else {
            return;
        };
        let shape = ops.shape.get(op).copied().unwrap_or_default();
        if let (Some(sum), Some(shared)) =
            (self.shapes.get_mut(&(name, shape, device.0)), self.shared.get(&device.0))
        {
            sum.shared_ns += shared.overlap(start, end);
        }
    }

    /// Tells whether compute times matter: there is something to overlap with them, or several devices share the work.
    pub fn needs_compute(&self) -> bool {
        let one = |lane: &Lane| self.lanes.first().is_some_and(|first| first.device == lane.device);
        !self.talk.is_empty() || !self.copies.is_empty() || !self.lanes.iter().all(one)
    }

    /// Adds up the time in which the device computed, after all operations were added. They come in the order of their start.
    pub fn add_compute(&mut self, op: usize) {
        let ops = &self.trace.ops;
        let (Some(&kind), Some(&start), Some(&end), Some(&device), Some(&name)) =
            (ops.kind.get(op), ops.start.get(op), ops.end.get(op), ops.device.get(op), ops.name.get(op))
        else {
            return;
        };
        let computes = match kind {
            OpKind::Kernel => !self.kinds.of(self.trace, name).communication,
            OpKind::Graph => true,
            OpKind::Copy | OpKind::Set => false,
        };
        if !computes {
            return;
        }
        self.any_compute.add(start, end);
        let time = self.compute.entry(device.0).or_default();
        if let Some(part) = time.all.add(start, end) {
            time.beside_talk.add(self.talk.get(&device.0), part);
            time.beside_copies.add(self.copies.get(&device.0), part);
        }
    }

    /// The stream of an operation; mostly that of the one before.
    fn lane(&mut self, device: u16, stream: u32) -> Option<&mut Lane> {
        let same = |lane: &Lane| lane.device == device && lane.stream == stream;
        if !self.lanes.get(self.last_lane).is_some_and(same) {
            self.last_lane = *self.lane_of.entry((device, stream)).or_insert_with(|| {
                self.lanes.push(Lane { device, stream, kernels: 0, ns: 0, longest_ns: 0 });
                self.lanes.len() - 1
            });
        }
        self.lanes.get_mut(self.last_lane)
    }

    /// Goes on with a run by a light kernel of this length, or ends it.
    fn chain(&mut self, device: u16, stream: u32, light: Option<Ns>) {
        let mut chains = self.found.chains;
        let Some(lane) = self.lane(device, stream) else {
            return;
        };
        match light {
            Some(ns) => {
                lane.kernels += 1;
                lane.ns += ns;
                lane.longest_ns = lane.longest_ns.max(ns);
            }
            None => {
                lane.close(&mut chains);
                self.found.chains = chains;
            }
        }
    }

    pub fn finish(mut self) -> StageEvidence {
        let mut chains = self.found.chains;
        for lane in &mut self.lanes {
            lane.close(&mut chains);
        }
        self.found.chains = chains;
        if self.needs_compute() {
            let length = |times: &Times| times.values().map(IntervalSet::length).sum::<Ns>();
            let hidden = |beside: fn(&ComputeTime) -> Ns| self.compute.values().map(beside).sum::<Ns>();
            if self.talks > 0 {
                let ns = length(&self.talk);
                // Computation that has communication beside it hides that already.
                let hideable = self.talk.iter().filter_map(|(device, talk)| {
                    let time = self.compute.get(device)?;
                    let hidden = time.beside_talk.ns;
                    Some((talk.length() - hidden).min(time.all.ns - hidden))
                });
                self.found.communication = Some(CommunicationUse {
                    count: self.talks,
                    ns,
                    exposed_ns: ns - hidden(|time| time.beside_talk.ns),
                    hideable_ns: hideable.sum(),
                });
            }
            self.found.host_copies.exposed_ns = length(&self.copies) - hidden(|time| time.beside_copies.ns);
            let number = |device: &u16| self.trace.devices.get(usize::from(*device)).map_or(0, |d| d.number);
            let uses = self
                .compute
                .iter()
                .map(|(device, time)| DeviceUse { number: number(device), compute_ns: time.all.ns });
            self.found.devices = uses.collect();
            self.found.devices.sort_by_key(|device| device.number);
            self.found.any_device_ns = (self.compute.len() > 1).then_some(self.any_compute.ns);
        }
        self.found.streams = self.lanes.len() as u64;
        let trace = self.trace;
        let mut shapes: Vec<ShapeUse> = self
            .shapes
            .iter()
            .map(|(&(name, shape, device), sum)| {
                let shape = trace.ops.shapes.get(shape.index()).copied().unwrap_or_default();
                let device = trace.devices.get(usize::from(device));
                ShapeUse {
                    name: trace.names.get(name).to_owned(),
                    family: self.kinds.of(trace, name).family,
                    sms: device.and_then(|device| device.sms),
                    compute_capability: device.and_then(|device| device.compute_capability),
                    blocks: blocks_of(shape.grid),
                    threads: threads_of(shape.block),
                    registers: shape.registers,
                    shared_bytes: shape.static_shared.saturating_add(shape.dynamic_shared),
                    calls: sum.calls,
                    total_ns: sum.ns,
                    longest_ns: sum.longest_ns,
                    shared_ns: sum.shared_ns,
                }
            })
            .collect();
        shapes.sort_by(|a, b| {
            b.total_ns.cmp(&a.total_ns).then_with(|| (&a.name, a.blocks).cmp(&(&b.name, b.blocks)))
        });
        self.found.shapes = shapes;
        self.found
    }
}

/// Blocks of a grid; what a broken input overstates stays at the most.
pub fn blocks_of(grid: [u32; 3]) -> u64 {
    grid.iter().fold(1, |product, side| product.saturating_mul(u64::from(*side)))
}

/// Threads of a block.
pub fn threads_of(block: [u32; 3]) -> u32 {
    block.iter().fold(1, |product, side| product.saturating_mul(*side))
}

/// Collects the evidence of every stage, in the order of the index, from the operations of each.
pub fn evidence(trace: &Trace, index: &StageIndex, members: &[Vec<u32>]) -> Vec<StageEvidence> {
    let mut kinds = Kinds::default();
    (0..index.len())
        .map(|stage| {
            let stage = index.warm(stage);
            let of_stage = members.get(stage).into_iter().flatten().map(|op| *op as usize);
            let of_stage: Vec<usize> = of_stage.filter(|op| index.holds(stage, *op)).collect();
            let members = || of_stage.iter().copied();
            let mut collector = Collector::new(trace, &mut kinds);
            members().for_each(|op| collector.add(op));
            // Times of kernels are compared with those of all copies and communication, which are few and known by now.
            if collector.needs_compute() {
                members().for_each(|op| collector.add_compute(op));
            }
            if collector.needs_shared() {
                members().for_each(|op| collector.add_shared(op));
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
    let columns = calls.class.iter().zip(&calls.thread).zip(&calls.start).zip(&calls.end).zip(&calls.name);
    for ((((class, thread), start), end), name) in columns {
        if *class != CallClass::Sync {
            continue;
        }
        let within = |lists: &FxHashMap<ThreadId, IntervalSet>| {
            lists.get(thread).is_some_and(|union| union.encloses(*start, *end))
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
    let most = names.into_iter().max_by_key(|(name, count)| (*count, std::cmp::Reverse(*name)));
    found.most_common = most.map(|(name, _)| trace.names.get(name).to_owned());
    found
}
