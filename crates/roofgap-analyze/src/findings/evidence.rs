//! Evidence of a stage that the analysis does not keep: launch shapes, waits, copies, chains of small kernels, overlap. It is
//! collected in at most three passes over the operations of a stage.

use super::program::is_fused;
use crate::attribution::is_migration;
use crate::names::{Family, family};
use crate::result::CopyKind;
use crate::stages::{Span, StageIndex, StageSpans};
use crate::timeline::{Grouped, IntervalSet, copy_kind};
use roofgap_base::stats::median;
use roofgap_trace::{CallClass, GpuOps, MemoryKind, NameId, Ns, OpKind, ShapeId, ThreadId, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

/// The evidence of one stage.
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
    /// Attention in separate kernels: a product, a softmax among elementwise kernels, and another product.
    pub attention: ChainUse,
    /// Managed memory that moved.
    pub paging: PagingUse,
    /// Number of memsets, and the sum of their durations, ns.
    pub memsets: (u64, Ns),
    /// Launches of whole graphs.
    pub graph_launches: u64,
    /// Devices with work, in the order of their numbers.
    pub devices: Vec<DeviceUse>,
    /// Time in which at least one device computed; `None` on a single device.
    pub any_device_ns: Option<Ns>,
    /// Kernels that talk to other devices, where there are any.
    pub communication: Option<CommunicationUse>,
    /// Longest gap in which the GPU waited for a launch; `None` where there is none.
    pub longest_launch_gap: Option<LaunchGap>,
    /// Gaps in which the launching thread did other work; `None` where there are none.
    pub other_work: Option<OtherWork>,
}

/// Times of managed memory that moves, summed over devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PagingUse {
    /// Time of pieces on their way to the host beside no kernel, ns.
    pub back_ns: Ns,
    /// The same beside kernels, ns.
    pub evicted_ns: Ns,
    /// Time of kernels beside pieces, beyond the median of the same kernels in the same shape at other times, ns.
    pub faulting_ns: Ns,
}

/// Gaps in which the launching thread made no calls for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherWork {
    /// The longest gap.
    pub longest: LaunchGap,
    /// Time of gaps before pieces of managed memory that the CPU asks for, ns.
    pub managed_ns: Ns,
    /// Range or operator in which the thread was then.
    pub within: Option<String>,
}

/// A gap in which the GPU waited for a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchGap {
    /// Its time, ns.
    pub ns: Ns,
    /// Kind of the operation that ended it.
    pub kind: OpKind,
    /// Name of that operation.
    pub name: String,
}

/// Computation on one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Device number.
    pub number: u32,
    /// Time in which a kernel ran that does not talk to other devices.
    pub compute_ns: Ns,
    /// The same from when all devices had begun, at the mean speed of the devices for the same launches, ns.
    pub load_ns: Ns,
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
    /// Of the sum, time in which another kernel ran on the device too.
    pub shared_ns: Ns,
    /// Shortest duration; 0 where unknown.
    pub shortest_ns: Ns,
}

/// Copies between host and device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyUse {
    /// Number of operations.
    pub count: u64,
    /// Number of copies from or to pageable memory.
    pub pageable: u64,
    /// Bytes of these.
    pub pageable_bytes: u64,
    /// Number of copies from the device to the host.
    pub to_host: u64,
    /// Streams that have some of them.
    pub streams: usize,
    /// Bytes.
    pub bytes: u64,
    /// Time with at least one of them, summed over devices.
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

/// Runs of kernels on one stream that one kernel could replace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChainUse {
    /// Runs.
    pub count: u64,
    /// Kernels in them.
    pub kernels: u64,
    /// Sum of their durations.
    pub ns: Ns,
    /// Sum without the longest kernel of each run, and of each part of a run as long as one kernel can replace, ns.
    pub beyond_longest_ns: Ns,
    /// Gaps between kernels of a run that were queued, ns.
    pub gaps_ns: Ns,
    /// Kernels of the longest run.
    pub longest: u64,
}

/// Kernels that talk to other devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommunicationUse {
    /// Number of operations.
    pub count: u64,
    /// Time in which at least one ran, summed over devices.
    pub ns: Ns,
    /// Of that, time in which the device ran nothing else.
    pub exposed_ns: Ns,
    /// Of that, as much as computation of the device without communication beside it can hide.
    pub hideable_ns: Ns,
}

/// Facts of a kernel by its name.
#[derive(Clone, Copy)]
struct KernelKind {
    family: Family,
    link: Link,
    communication: bool,
}

/// The place of a kernel in a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    /// A compiler can fold it into its neighbours.
    Light,
    /// The same, and it normalises scores.
    Softmax,
    /// A light kernel of exponentials, and one that reduces: together they normalise scores too.
    Exponential,
    Reduction,
    /// A light kernel that fills memory with one value.
    Fill,
    /// A matrix product.
    Product,
    /// It ends a run.
    Other,
}

/// Kinds by name, each looked up once.
#[derive(Default)]
struct KernelKinds(FxHashMap<NameId, KernelKind>);

impl KernelKinds {
    fn look_up(&mut self, trace: &Trace, name: NameId) -> KernelKind {
        *self.0.entry(name).or_insert_with(|| {
            let text = trace.names.get(name);
            let family = family(text);
            let link = match Link::of_family(family) {
                // Kernels of a compiler that it left apart have different data, or one reduces.
                _ if is_fused(text) => Link::Other,
                // A library reduces over all elements in several kernels.
                Link::Reduction if text.contains("cub::") => Link::Other,
                Link::Light if text.contains("FillFunctor") => Link::Fill,
                Link::Light if EXPONENTIALS.iter().any(|part| text.contains(part)) => Link::Exponential,
                link => link,
            };
            KernelKind { family, link, communication: family == Family::Communication }
        })
    }
}

/// Parts of the names of kernels that only compute exponentials.
const EXPONENTIALS: [&str; 2] = ["::exp_kernel", "loop_exponential_"];

impl Link {
    fn of_family(family: Family) -> Self {
        use Family::*;
        match family {
            Elementwise | CopyLayout | Norm | Quantization => Self::Light,
            Reduction => Self::Reduction,
            Softmax => Self::Softmax,
            Gemm | Gemv => Self::Product,
            _ => Self::Other,
        }
    }
}

/// A stream of a device, with the run of light kernels that is still open on it.
#[derive(Clone, Copy, Default)]
struct Lane {
    device: u16,
    /// Time of the matrix product before the run.
    product_ns: Option<Ns>,
    has_softmax: bool,
    has_exponential: bool,
    has_reduction: bool,
    /// Kernels that one kernel could replace, the last of them still open.
    run: ChainUse,
    /// Kernels of the open part, and the longest of them and of all, ns.
    open: u64,
    open_longest_ns: Ns,
    longest_ns: Ns,
    /// Gap before the first kernel, ns.
    first_gap_ns: Ns,
    last_end: Option<Ns>,
    /// Last kernel of the run, and whether one of them follows another one.
    last: Option<NameId>,
    differs: bool,
    /// Kernels of the run that come right after one that fills memory, and whether the last one does.
    after_fills: u64,
    is_fill: bool,
}

/// Two kernels in a row are common and cheap; from three on they are a chain.
const LEAST_CHAIN: u64 = 3;

/// Most kernels that one kernel replaces: the steps of an optimizer for one tensor. Longer runs work on several tensors.
const MOST_FUSED: u64 = 12;

/// Kernels from which on a run of fills, each with some kernels after it, is made of the tries of a tuner, and most kernels of a try.
const MANY_TRIES: u64 = 40;
const MOST_OF_A_TRY: u64 = 5;

/// Kernels that wait in a queue follow one another within some microseconds. A longer gap is one before a launch.
const QUEUED_GAP_NS: Ns = 5_000;

impl Lane {
    /// Goes on with the run by a kernel, or ends it.
    fn add(
        &mut self,
        link: Link,
        name: Option<NameId>,
        (start, end): (Ns, Ns),
        evidence: &mut StageEvidence,
    ) {
        self.after_fills += u64::from(self.is_fill && link != Link::Fill);
        self.is_fill = link == Link::Fill;
        let gap = self.last_end.map_or(0, |last| start - last);
        let gap = if (0..=QUEUED_GAP_NS).contains(&gap) { gap } else { 0 };
        let ns = end - start;
        self.last_end = Some(end);
        if !matches!(link, Link::Product | Link::Other) {
            self.has_softmax |= link == Link::Softmax;
            self.has_exponential |= link == Link::Exponential;
            self.has_reduction |= link == Link::Reduction;
            if self.run.kernels == 0 {
                self.first_gap_ns = gap
            } else {
                self.run.gaps_ns += gap;
                self.differs |= self.last != name;
            }
            self.last = name;
            self.run.kernels += 1;
            self.run.ns += ns;
            if self.open == MOST_FUSED {
                self.close();
            }
            self.open += 1;
            self.open_longest_ns = self.open_longest_ns.max(ns);
            return;
        }
        self.close();
        let Self { run, longest_ns, .. } = *self;
        let product_ns = (link == Link::Product).then_some(ns);
        let normalises = self.has_softmax || self.has_exponential && self.has_reduction;
        // A product is part of one attention.
        let mut next = product_ns;
        match self.product_ns.zip(product_ns).filter(|_| normalises) {
            Some((before, after)) => {
                let ns = run.ns + before + after;
                next = None;
                evidence.attention.add(ChainUse {
                    kernels: run.kernels + 2,
                    ns,
                    beyond_longest_ns: ns - longest_ns.max(before).max(after),
                    gaps_ns: self.first_gap_ns + run.gaps_ns + gap,
                    ..run
                });
            }
            // A tuner clears the cache before each try.
            None if run.kernels >= MANY_TRIES && self.after_fills >= run.kernels / MOST_OF_A_TRY => {}
            // One kernel that follows itself again and again is an iteration, as of a stencil or a benchmark.
            None if run.kernels > MOST_FUSED && !self.differs => {}
            None if run.kernels >= LEAST_CHAIN => {
                evidence.chains.add(ChainUse { beyond_longest_ns: run.ns - run.beyond_longest_ns, ..run });
            }
            None => {}
        }
        let Self { device, last_end, .. } = *self;
        *self = Self { device, last_end, product_ns: next, ..Self::default() };
    }

    /// Ends the open part of the run.
    fn close(&mut self) {
        // Until the end of the run the longest kernel of each part is counted.
        self.run.beyond_longest_ns += self.open_longest_ns;
        self.longest_ns = self.longest_ns.max(self.open_longest_ns);
        (self.open, self.open_longest_ns) = (0, 0);
    }
}

impl ChainUse {
    /// Adds a run.
    fn add(&mut self, run: Self) {
        self.count += 1;
        self.kernels += run.kernels;
        self.ns += run.ns;
        self.beyond_longest_ns += run.beyond_longest_ns;
        self.gaps_ns += run.gaps_ns;
        self.longest = self.longest.max(run.kernels);
    }
}

/// Share of kernel time, in %, from which on it matters that kernels run at the same time.
const LEAST_SHARED_PCT: Ns = 1;

/// Speed of a device over the mean of several, as clocks differ. Launches that differ by more have other work.
const CLOCKS: std::ops::Range<f64> = 0.8..1.25;

/// Part of the time of a device, 1 in so many, from which on a kernel shows its speed, and the most difference between such kernels of a
/// device that is slower as a whole.
const MATTERS: f64 = 20.0;
const ALIKE: f64 = 0.15;

/// Times taken, by device.
type Times = FxHashMap<u16, IntervalSet>;

/// The kernels, communication and copies of one device.
#[derive(Default)]
struct DeviceTimes {
    /// Last end of a kernel.
    last_end: Option<Ns>,
    /// Times in which several kernels ran.
    shared: IntervalSet,
    talk: IntervalSet,
    copies: IntervalSet,
    /// `None` where nothing computes.
    compute: Option<ComputeTime>,
}

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
    /// From when all devices had begun.
    beside_others: Coverage,
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
    fn add(&mut self, other: &IntervalSet, (start, end): (Ns, Ns)) {
        self.ns += other.overlap_near(start, end, &mut self.near);
    }
}

/// An operation of the stage.
#[derive(Clone, Copy)]
struct Op {
    row: u32,
    kind: OpKind,
    name: NameId,
    shape: ShapeId,
    device: u16,
    stream: u32,
    start: Ns,
    end: Ns,
}

impl Op {
    fn of(ops: &GpuOps, row: u32) -> Self {
        let at = row as usize;
        Self {
            row,
            kind: ops.kind[at],
            name: ops.name[at],
            shape: ops.shape[at],
            device: ops.device[at].0,
            stream: ops.stream[at],
            start: ops.start[at],
            end: ops.end[at],
        }
    }
}

/// Collects the evidence of one stage. Operations come in the order of their start.
#[derive(Default)]
struct Collector {
    shapes: Grouped<(NameId, ShapeId, u16), ShapeUse>,
    /// By position of the device.
    devices: Vec<DeviceTimes>,
    kernel_ns: Ns,
    /// By device and stream.
    lanes: Grouped<(u16, u32), Lane>,
    /// Start of the first kernel of the device that began last.
    all_begun: Ns,
    /// Time in which any device computed.
    any_compute: Coverage,
    copy_streams: FxHashSet<(u16, u32)>,
    evidence: StageEvidence,
    talks: u64,
}

impl Collector {
    fn device(&mut self, device: u16) -> &mut DeviceTimes {
        let at = usize::from(device);
        if self.devices.len() <= at {
            self.devices.resize_with(at + 1, DeviceTimes::default);
        }
        &mut self.devices[at]
    }

    /// Returns the sum of a kernel in its shape. A shape mostly has one kernel.
    fn shape(&mut self, Op { name, shape, device, .. }: Op) -> &mut ShapeUse {
        let at = self.shapes.position_near(shape.index(), (name, shape, device), ShapeUse::default);
        &mut self.shapes.items[at]
    }

    /// Iterates over kernels in their shapes.
    fn shapes(&self) -> impl Iterator<Item = ((NameId, ShapeId, u16), &ShapeUse)> {
        self.shapes.positions.iter().map(|(key, at)| (*key, &self.shapes.items[*at]))
    }

    fn add(&mut self, op: Op, trace: &Trace, kinds: &mut KernelKinds) {
        let Op { device, start, end, .. } = op;
        match op.kind {
            OpKind::Kernel => {
                let kind = kinds.look_up(trace, op.name);
                let sum = self.shape(op);
                let shortest = if sum.calls == 0 { Ns::MAX } else { sum.shortest_ns };
                sum.shortest_ns = shortest.min(end - start);
                sum.calls += 1;
                sum.total_ns += end - start;
                self.kernel_ns += end - start;
                // The kernel that ends last began before this one, so both run until the first of them ends.
                let times = self.device(device);
                let last_end = times.last_end.unwrap_or(Ns::MIN);
                if start < last_end.min(end) {
                    times.shared.add(start, end.min(last_end));
                }
                let is_first = times.last_end.replace(end.max(last_end)).is_none();
                if kind.communication {
                    times.talk.add(start, end);
                    self.talks += 1;
                }
                if is_first {
                    self.all_begun = start;
                }
                self.chain(op, kind.link);
            }
            OpKind::Copy => {
                let transfer = trace.ops.transfers.get(&op.row);
                let memory = transfer.map(|t| t.memory).unwrap_or_default();
                let host = |kind| matches!(kind, MemoryKind::Pageable | MemoryKind::Pinned);
                if host(memory.0) || host(memory.1) {
                    let copies = &mut self.evidence.host_copies;
                    copies.count += 1;
                    copies.to_host += u64::from(host(memory.1));
                    let bytes = transfer.map_or(0, |t| t.bytes);
                    copies.bytes = copies.bytes.saturating_add(bytes);
                    if memory.0 == MemoryKind::Pageable || memory.1 == MemoryKind::Pageable {
                        copies.pageable += 1;
                        copies.pageable_bytes = copies.pageable_bytes.saturating_add(bytes);
                    }
                    self.device(device).copies.add(start, end);
                    self.copy_streams.insert((device, op.stream));
                    self.chain(op, Link::Other);
                } else {
                    self.lane(op);
                }
            }
            OpKind::Set => {
                let (count, ns) = &mut self.evidence.memsets;
                (*count, *ns) = (*count + 1, *ns + end - start);
                self.lane(op);
            }
            OpKind::Graph => self.chain(op, Link::Other),
        }
    }

    /// Tells whether kernels run at the same time often enough to matter.
    fn needs_shared(&self) -> bool {
        let shared: Ns = self.devices.iter().map(|times| times.shared.length()).sum();
        shared > 0 && shared >= self.kernel_ns / 100 * LEAST_SHARED_PCT
    }

    /// Notes how long a kernel ran beside others.
    fn add_shared(&mut self, op: Op) {
        if op.kind == OpKind::Kernel {
            let shared_ns = self.device(op.device).shared.overlap(op.start, op.end);
            self.shape(op).shared_ns += shared_ns;
        }
    }

    /// Tells whether compute times matter: there is something to overlap with them, or several devices share the work.
    fn needs_compute(&self) -> bool {
        let several = self.lanes.items.windows(2).any(|pair| pair[0].device != pair[1].device);
        self.talks > 0 || self.evidence.host_copies.count > 0 || several
    }

    /// Adds up the time in which the device computed, after all operations were added.
    fn add_compute(&mut self, op: Op, trace: &Trace, kinds: &mut KernelKinds) {
        let Op { device, start, end, .. } = op;
        let computes = match op.kind {
            OpKind::Kernel => !kinds.look_up(trace, op.name).communication,
            OpKind::Graph => true,
            OpKind::Copy | OpKind::Set => false,
        };
        if !computes {
            return;
        }
        self.any_compute.add(start, end);
        let begun = self.all_begun;
        let DeviceTimes { talk, copies, compute, .. } = self.device(device);
        let time = compute.get_or_insert_default();
        time.beside_others.add(start.max(begun), end.max(begun));
        if let Some(part) = time.all.add(start, end) {
            time.beside_talk.add(talk, part);
            time.beside_copies.add(copies, part);
        }
    }

    /// The position of the stream of an operation; mostly that of the one before.
    fn lane(&mut self, Op { device, stream, .. }: Op) -> usize {
        self.lanes.position_near(0, (device, stream), || Lane { device, ..Lane::default() })
    }

    /// Goes on with the run of a stream, or ends it.
    fn chain(&mut self, op: Op, link: Link) {
        let at = self.lane(op);
        self.lanes.items[at].add(link, Some(op.name), (op.start, op.end), &mut self.evidence);
    }

    /// Iterates over the devices that compute.
    fn computing(&self) -> impl Iterator<Item = (u16, &DeviceTimes, &ComputeTime)> {
        let devices = (0u16..).zip(&self.devices);
        devices.filter_map(|(device, times)| Some((device, times, times.compute.as_ref()?)))
    }

    /// Returns the time of the kernels of a device over what the same launches take on the mean of the devices, as far as a lower clock
    /// explains it, or a device on which several kernels are slower alike.
    fn slowness(&self, device: u16) -> f64 {
        let (mut own_ns, mut usual_ns) = (0.0, 0.0);
        let mut each: Vec<(f64, f64)> = Vec::new();
        for ((name, shape, _), sum) in self.shapes().filter(|((.., on), _)| *on == device) {
            let at = |on: u16| self.shapes.positions.get(&(name, shape, on));
            let devices = self.computing().filter_map(|(on, ..)| Some(&self.shapes.items[*at(on)?]));
            let (calls, ns) = devices.fold((0, 0), |(calls, ns), one| (calls + one.calls, ns + one.total_ns));
            let usual = sum.calls as f64 * ns as f64 / calls.max(1) as f64;
            each.push((sum.total_ns as f64, sum.total_ns as f64 / usual));
            own_ns += sum.total_ns as f64;
            usual_ns += usual;
        }
        let ratio = own_ns / usual_ns;
        each.retain(|(ns, _)| ns * MATTERS >= own_ns);
        let alike = each.len() > 1 && each.iter().all(|(_, other)| (other / ratio - 1.0).abs() <= ALIKE);
        if CLOCKS.contains(&ratio) || alike { ratio } else { 1.0 }
    }

    fn finish(mut self, trace: &Trace, kinds: &mut KernelKinds) -> StageEvidence {
        for lane in &mut self.lanes.items {
            lane.add(Link::Other, None, (0, 0), &mut self.evidence);
        }
        let mut evidence = self.evidence.clone();
        evidence.host_copies.streams = self.copy_streams.len();
        if self.needs_compute() {
            let length = |set: fn(&DeviceTimes) -> &IntervalSet| {
                self.devices.iter().map(|times| set(times).length()).sum::<Ns>()
            };
            let hidden =
                |beside: fn(&ComputeTime) -> Ns| self.computing().map(|(.., time)| beside(time)).sum::<Ns>();
            if self.talks > 0 {
                let ns = length(|times| &times.talk);
                // Computation that has communication beside it hides that already.
                let hideable = self.computing().map(|(_, times, time)| {
                    let hidden = time.beside_talk.ns;
                    (times.talk.length() - hidden).min(time.all.ns - hidden)
                });
                evidence.communication = Some(CommunicationUse {
                    count: self.talks,
                    ns,
                    exposed_ns: ns - hidden(|time| time.beside_talk.ns),
                    hideable_ns: hideable.sum(),
                });
            }
            evidence.host_copies.ns = length(|times| &times.copies);
            evidence.host_copies.exposed_ns = evidence.host_copies.ns - hidden(|time| time.beside_copies.ns);
            let uses = self.computing().map(|(device, _, time)| DeviceUse {
                number: trace.devices.get(usize::from(device)).map_or(0, |device| device.number),
                compute_ns: time.all.ns,
                load_ns: (time.beside_others.ns as f64 / self.slowness(device)) as Ns,
            });
            evidence.devices = uses.collect();
            evidence.devices.sort_by_key(|device| device.number);
            evidence.any_device_ns = (evidence.devices.len() > 1).then_some(self.any_compute.ns);
        }
        let mut shapes: Vec<ShapeUse> = self
            .shapes()
            .map(|((name, shape, device), sum)| {
                let shape = trace.ops.shapes.get(shape.index()).copied().unwrap_or_default();
                let device = trace.devices.get(usize::from(device));
                ShapeUse {
                    name: trace.names.get(name).to_owned(),
                    family: kinds.look_up(trace, name).family,
                    sms: device.and_then(|device| device.sms),
                    compute_capability: device.and_then(|device| device.compute_capability),
                    blocks: blocks_of(shape.grid),
                    threads: threads_of(shape.block),
                    registers: shape.registers,
                    shared_bytes: shape.static_shared.saturating_add(shape.dynamic_shared),
                    ..sum.clone()
                }
            })
            .collect();
        shapes.sort_by(|a, b| {
            b.total_ns.cmp(&a.total_ns).then_with(|| (&a.name, a.blocks).cmp(&(&b.name, b.blocks)))
        });
        evidence.shapes = shapes;
        evidence
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
    let mut kinds = KernelKinds::default();
    (0..index.len())
        .map(|stage| {
            let of_stage = members.get(stage).map_or(&[][..], Vec::as_slice);
            let stage = index.warm(stage);
            let of_stage = index.held(stage, of_stage);
            let members = || of_stage.iter().map(|op| Op::of(&trace.ops, *op));
            let mut collector = Collector::default();
            members().for_each(|op| collector.add(op, trace, &mut kinds));
            // Times of kernels are compared with those of all copies and communication, which are few and known by now.
            if collector.needs_compute() {
                members().for_each(|op| collector.add_compute(op, trace, &mut kinds));
            }
            if collector.needs_shared() {
                members().for_each(|op| collector.add_shared(op));
            }
            let mut evidence = collector.finish(trace, &mut kinds);
            evidence.paging = paging(trace, &of_stage);
            evidence.stage = index.name(stage).to_owned();
            evidence.syncs = syncs(trace, index.spans(stage));
            let calls = index.contexts().of_call.iter().zip(&trace.calls.class);
            let graphs = calls.filter(|(context, class)| {
                **class == CallClass::GraphLaunch && index.instance_of_context(stage, **context).is_some()
            });
            evidence.graph_launches = graphs.count() as u64;
            evidence
        })
        .collect()
}

/// Measures the managed memory that moves during a stage.
fn paging(trace: &Trace, members: &[u32]) -> PagingUse {
    let ops = &trace.ops;
    let members = || members.iter().map(|op| *op as usize);
    let (mut pieces, mut to_host, mut kernels) = (Times::default(), Times::default(), Times::default());
    let add = |times: &mut Times, op: usize| {
        times.entry(ops.device[op].0).or_default().add(ops.start[op], ops.end[op]);
    };
    for op in members().filter(|op| is_migration(trace, *op)) {
        add(&mut pieces, op);
        if copy_kind(trace.names.get(ops.name[op])) == CopyKind::ManagedToHost {
            add(&mut to_host, op);
        }
    }
    if pieces.is_empty() {
        return PagingUse::default();
    }
    // Durations apart from pieces, and kernels beside them.
    let mut shapes: FxHashMap<(NameId, ShapeId), (Vec<Ns>, Vec<usize>)> = FxHashMap::default();
    for op in members().filter(|op| ops.kind[*op] == OpKind::Kernel) {
        add(&mut kernels, op);
        let moves =
            pieces.get(&ops.device[op].0).is_some_and(|set| set.overlap(ops.start[op], ops.end[op]) > 0);
        let shape = ops.shape.get(op).copied().unwrap_or_default();
        let (apart, beside) = shapes.entry((ops.name[op], shape)).or_default();
        if moves { beside.push(op) } else { apart.push(ops.duration(op)) }
    }
    // Kernels that wait at the same time lose it once.
    let mut beyond: FxHashMap<u16, Vec<(Ns, Ns)>> = FxHashMap::default();
    for (apart, beside) in shapes.values_mut() {
        let usual = median(apart).unwrap_or(Ns::MAX);
        for op in beside.iter().copied().filter(|op| ops.duration(*op) > usual) {
            beyond.entry(ops.device[op].0).or_default().push((ops.start[op] + usual, ops.end[op]));
        }
    }
    let overlap = |(device, set): (&u16, &IntervalSet)| {
        let kernels = kernels.get(device);
        let each = set.intervals().iter();
        each.map(|(start, end)| kernels.map_or(0, |kernels| kernels.overlap(*start, *end))).sum::<Ns>()
    };
    let evicted_ns = to_host.iter().map(overlap).sum();
    PagingUse {
        back_ns: to_host.values().map(IntervalSet::length).sum::<Ns>() - evicted_ns,
        evicted_ns,
        faulting_ns: beyond.into_values().map(|list| IntervalSet::of(list).length()).sum(),
    }
}

fn syncs(trace: &Trace, spans: &StageSpans) -> SyncUse {
    // A span without a range is on all threads.
    let times = |spans: &[Span]| {
        let unmarked = spans.iter().filter(|span| span.range.is_none()).map(|span| (span.start, span.end));
        let by_thread = IntervalSet::by_thread(spans.iter().filter_map(|span| span.range_in(trace)));
        (by_thread, IntervalSet::of(unmarked.collect()))
    };
    let (stage, steps) = (times(&spans.instances), times(&spans.steps));
    let calls = &trace.calls;
    let mut syncs = SyncUse::default();
    let mut names: FxHashMap<NameId, u64> = FxHashMap::default();
    let mut in_steps = 0;
    let columns = calls.class.iter().zip(&calls.thread).zip(&calls.start).zip(&calls.end).zip(&calls.name);
    for ((((class, thread), start), end), name) in columns {
        if *class != CallClass::Sync {
            continue;
        }
        let within = |(lists, anywhere): &(FxHashMap<ThreadId, IntervalSet>, IntervalSet)| {
            lists.get(thread).is_some_and(|union| union.encloses(*start, *end))
                || anywhere.encloses(*start, *end)
        };
        if within(&stage) {
            syncs.count += 1;
            syncs.ns += end - start;
            *names.entry(*name).or_default() += 1;
            in_steps += u64::from(within(&steps));
        }
    }
    syncs.inside = if spans.steps.is_empty() {
        syncs.count.saturating_sub(spans.instances.len() as u64)
    } else {
        in_steps
    };
    let most = names.into_iter().max_by_key(|(name, count)| (*count, std::cmp::Reverse(*name)));
    syncs.most_common = most.map(|(name, _)| trace.names.get(name).to_owned());
    syncs
}
