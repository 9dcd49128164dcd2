//! The simulated program: its threads launch work, its devices run it, and a tally adds up the expected results.

use crate::event::{Call, CallKind, Events, Kernel, Range, Transfer, TransferKind};
use crate::expected::Expected;
use crate::names::{self, LAYER, Part};
use crate::random::Random;
use crate::spec::{Graphs, Spec};
use crate::tally::{LaunchContext, StageKind, Tally, Work};

/// CPU time of the operator before a call, ns.
const LEAD: i64 = 3_600;
/// CPU time of the operator after a call, ns.
const TAIL: i64 = 800;
/// Layers of the model.
const LAYERS: usize = 24;
/// Kernels that a graph launches.
const GRAPH_NODES: u64 = 40;
/// Id of the first stream of a context.
const FIRST_STREAM: u16 = 7;
/// Time of the first event, ns.
const BEGINNING: i64 = 17_000_000_000;

/// A synthetic program run and its expected analysis.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Specification.
    pub spec: Spec,
    /// Events, ordered by start unless the specification shuffles them.
    pub events: Events,
    /// Expected results of an analysis.
    pub expected: Expected,
}

impl Program {
    /// Simulates the program.
    pub fn run(spec: &Spec) -> Self {
        let mut events = Events::default();
        events.kernels.reserve(spec.kernels as usize);
        events.calls.reserve(spec.kernels as usize + spec.kernels as usize / 50);
        let mut tally = Tally::default();
        let processes = u64::from(spec.processes.max(1));
        for process in 0..processes {
            let share = |all: u64| all / processes + u64::from(process < all % processes);
            let mut host = Host::new(spec, process as u16, &mut events, &mut tally);
            host.left = share(spec.kernels);
            host.orphans = share(spec.orphans);
            host.run();
        }
        if spec.shuffled {
            let mut random = Random::new(spec.seed ^ 0xabcd);
            random.shuffle(&mut events.kernels);
            random.shuffle(&mut events.calls);
            random.shuffle(&mut events.copies);
            random.shuffle(&mut events.sets);
            random.shuffle(&mut events.graphs);
            random.shuffle(&mut events.ranges);
        } else {
            events.kernels.sort_by_key(|e| (e.start, e.process));
            events.calls.sort_by_key(|e| (e.start, e.process));
            events.ranges.sort_by_key(|e| (e.start, e.process));
        }
        Self { spec: spec.clone(), events, expected: tally.finish() }
    }
}

/// A process with a compute thread and a loader thread.
struct Host<'a> {
    spec: &'a Spec,
    process: u16,
    events: &'a mut Events,
    tally: &'a mut Tally,
    random: Random,
    /// Time of the compute thread, ns.
    now: i64,
    context: LaunchContext,
    /// Kernels left to launch.
    left: u64,
    orphans: u64,
    correlation: u32,
    nodes: u64,
    /// Number of kernels before each open range was opened.
    opened: Vec<usize>,
    /// Devices of the process, and the time at which each of their streams is free, ns.
    devices: Vec<(u16, Vec<i64>)>,
}

impl<'a> Host<'a> {
    fn new(spec: &'a Spec, process: u16, events: &'a mut Events, tally: &'a mut Tally) -> Self {
        let (processes, all) = (spec.processes.max(1) as u16, spec.devices.max(1) as u16);
        // Devices are distributed over processes; when there are fewer devices, processes share them.
        let own: Vec<u16> = match processes < all {
            true => (0..all).filter(|d| d % processes == process).collect(),
            false => vec![process % all],
        };
        let streams = vec![0; spec.streams.max(1) as usize];
        Self {
            spec,
            process,
            events,
            tally,
            random: Random::new(spec.seed.wrapping_add(u64::from(process) << 32)),
            now: BEGINNING + i64::from(process) * 1_234_567,
            context: LaunchContext::default(),
            left: 0,
            orphans: 0,
            correlation: 0,
            nodes: 0,
            opened: Vec::new(),
            devices: own.into_iter().map(|d| (d, streams.clone())).collect(),
        }
    }

    fn run(&mut self) {
        let setup = self.left / 100;
        for i in 0..setup {
            self.kernel(Part::Add, i);
        }
        let warmup = self.open();
        self.request(2, false);
        self.close(warmup, true, "warmup");
        while self.left > 0 {
            self.request(64, true);
        }
        self.synchronize();
    }

    /// Runs prefill, then decodes `tokens` tokens. A warm-up is not counted.
    fn request(&mut self, tokens: usize, counted: bool) {
        if self.left == 0 {
            return;
        }
        self.context.stage = counted.then_some(StageKind::Prefill);
        let prefill = self.open();
        self.load();
        for (name, kernels) in [("sam", 30), ("clip", 40), ("projector", 3)] {
            let note = self.open();
            self.context.note = counted.then_some(name);
            for i in 0..kernels {
                self.kernel(LAYER[i as usize % LAYER.len()], i / 10);
            }
            self.context.note = None;
            self.close(note, false, name);
            if counted {
                self.tally.close_note(StageKind::Prefill, name, note, self.now - TAIL);
            }
        }
        self.layers(7);
        if !self.random.once_in(4) {
            self.synchronize();
        }
        self.close(prefill, true, "prefill");
        if counted {
            self.tally.close_stage(StageKind::Prefill, self.process, prefill, self.now - TAIL);
        }
        self.context.stage = counted.then_some(StageKind::Decode);
        let decode = self.open();
        for token in 0..tokens {
            if self.left == 0 {
                break;
            }
            self.context.step = true;
            let step = self.open();
            if token % 4 == 3 && self.spec.graphs != Graphs::None {
                for _ in 0..LAYERS / 4 {
                    self.graph();
                }
            } else {
                self.layers(token as u64 / 16);
            }
            self.copy_back();
            self.context.step = false;
            self.close(step, true, "decode_step");
            if counted {
                self.tally.close_step(StageKind::Decode, step, self.now - TAIL);
            }
        }
        // The last launches may still run when the range closes.
        self.close(decode, true, "decode_all");
        if counted {
            self.tally.close_stage(StageKind::Decode, self.process, decode, self.now - TAIL);
        }
        self.context.stage = None;
        if self.orphans > 0 {
            self.orphans -= 1;
            self.lost_launch();
        }
    }

    fn layers(&mut self, variant: u64) {
        for layer in 0..LAYERS {
            if self.left == 0 {
                return;
            }
            let range = self.open();
            for (i, part) in LAYER.iter().enumerate() {
                self.kernel(*part, variant + i as u64 % 3);
            }
            self.close(range, false, LAYER_NAMES[layer % LAYER_NAMES.len()]);
        }
    }

    /// Opens a range and returns its start.
    fn open(&mut self) -> i64 {
        let start = self.now;
        self.opened.push(self.events.kernels.len());
        self.now += 300;
        start
    }

    /// Closes a range and advances the time.
    fn close(&mut self, start: i64, llm: bool, name: &'static str) {
        let first = self.opened.pop().unwrap_or(0);
        let inside = self.events.kernels.get(first..).unwrap_or_default();
        let own = self.devices[0].0;
        let gpu = inside.iter().filter(|k| k.device == own && k.stream == FIRST_STREAM).fold(
            None,
            |span: Option<(i64, i64)>, k| {
                let (first, last) = span.unwrap_or((k.start, k.end));
                Some((first.min(k.start), last.max(k.end)))
            },
        );
        self.events.ranges.push(Range {
            start,
            end: self.now,
            llm,
            name,
            gpu,
            process: self.process,
            thread: 0,
        });
        self.now += TAIL;
    }

    /// Adds a call of the compute thread and returns its correlation id.
    fn call(&mut self, kind: CallKind, length: i64) -> u32 {
        self.now += LEAD;
        self.correlation += 1;
        self.events.calls.push(Call {
            start: self.now,
            end: self.now + length,
            kind,
            correlation: self.correlation,
            process: self.process,
            thread: 0,
        });
        self.now += length;
        self.correlation
    }

    /// Schedules an operation launched now; returns device, stream, start and end.
    fn schedule(&mut self, length: i64) -> (u16, u16, i64, i64) {
        let device = match self.devices.len() {
            1 => 0,
            n if self.random.once_in(3) => (self.random.next() % n as u64) as usize,
            _ => 0,
        };
        let (number, streams) = &mut self.devices[device];
        let stream =
            if self.random.once_in(8) { (self.random.next() % streams.len() as u64) as usize } else { 0 };
        let start = streams[stream].max(self.now + 1_200);
        streams[stream] = start + length;
        (*number, FIRST_STREAM + stream as u16, start, start + length)
    }

    fn kernel(&mut self, part: Part, variant: u64) {
        if self.left == 0 {
            return;
        }
        let name = names::pick(part, variant);
        let kind = if part == Part::Gemm { CallKind::DriverLaunch } else { CallKind::Launch };
        let length = self.random.between(2_800, 5_200);
        let correlation = self.call(kind, length);
        self.tally.launch(self.context);
        self.push_kernel(name, correlation, 0);
        self.now += TAIL;
    }

    fn push_kernel(&mut self, name: u16, correlation: u32, node: u64) {
        self.left -= 1;
        let about = names::kinds().get(usize::from(name)).map_or(1_000, |k| k.length);
        let length = about + self.random.between(0, about / 4);
        let (device, stream, start, end) = self.schedule(length);
        let work = Work::Kernel { name };
        self.tally.operation(self.context, self.process, device, work, start, end);
        self.events.kernels.push(Kernel {
            start,
            end,
            node,
            correlation,
            number: self.events.kernels.len() as u32 + 1,
            name,
            process: self.process,
            device,
            stream,
        });
    }

    /// Launches a graph: one call, and many kernels or one operation.
    fn graph(&mut self) {
        if self.left == 0 {
            return;
        }
        let correlation = self.call(CallKind::GraphLaunch, 9_000);
        self.tally.launch(self.context);
        if self.spec.graphs == Graphs::Whole {
            let (device, stream, start, end) = self.schedule(110_000);
            self.tally.operation(self.context, self.process, device, Work::Graph, start, end);
            self.events.graphs.push(Transfer {
                kind: TransferKind::Graph,
                start,
                end,
                bytes: 0,
                correlation,
                process: self.process,
                device,
                stream,
            });
        } else {
            for i in 0..GRAPH_NODES.min(self.left) {
                self.nodes += 1;
                let name = names::pick(LAYER[i as usize % LAYER.len()], i / 10);
                self.push_kernel(name, correlation, (17 << 32) + self.nodes);
            }
        }
        self.now += TAIL;
    }

    /// Copies an image to the device on the loader thread, outside any stage.
    fn load(&mut self) {
        self.correlation += 1;
        let (start, end) = (self.now + 500, self.now + 9_500);
        let (process, correlation) = (self.process, self.correlation);
        let (device, stream) = (self.devices[0].0, 20);
        self.events.calls.push(Call { start, end, kind: CallKind::Copy, correlation, process, thread: 1 });
        self.events.ranges.push(Range {
            start: start - 200,
            end: end + 200,
            llm: false,
            name: "load",
            gpu: None,
            process,
            thread: 1,
        });
        let (begin, finish) = (end + 700, end + 700 + self.random.between(20_000, 60_000));
        self.tally.operation(LaunchContext::default(), process, device, Work::Copy, begin, finish);
        self.events.copies.push(Transfer {
            kind: TransferKind::ToDevice,
            start: begin,
            end: finish,
            bytes: 3 * 1024 * 1024,
            correlation,
            process,
            device,
            stream,
        });
    }

    /// Sets a flag, copies the token back and waits for it.
    fn copy_back(&mut self) {
        let set = self.transfer(TransferKind::Set, CallKind::Set, 2_500, 2_100, 4);
        self.events.sets.push(set);
        let copy = self.transfer(TransferKind::ToHost, CallKind::Copy, 4_000, 2_300, 8);
        self.events.copies.push(copy);
        if !self.random.once_in(3) {
            self.synchronize();
        }
    }

    /// Launches a copy or a set; `call_ns` and `length` are the durations of the call and of the operation.
    fn transfer(
        &mut self,
        kind: TransferKind,
        call: CallKind,
        call_ns: i64,
        length: i64,
        bytes: u64,
    ) -> Transfer {
        let correlation = self.call(call, call_ns);
        self.tally.launch(self.context);
        let (device, stream, start, end) = self.schedule(length);
        let work = if kind == TransferKind::Set { Work::Set } else { Work::Copy };
        self.tally.operation(self.context, self.process, device, work, start, end);
        Transfer { kind, start, end, bytes, correlation, process: self.process, device, stream }
    }

    /// Waits until the first device is idle.
    fn synchronize(&mut self) {
        self.call(CallKind::Query, 1_400);
        let free = self.devices[0].1.iter().copied().max().unwrap_or(0);
        let length = (free - self.now - LEAD).max(0) + 1_500;
        self.call(CallKind::Synchronize, length);
        self.now += TAIL;
    }

    /// Adds a kernel without a launch record.
    fn lost_launch(&mut self) {
        if self.left == 0 {
            return;
        }
        self.correlation += 1;
        let correlation = self.correlation;
        self.tally.orphan();
        self.push_kernel(names::pick(Part::Add, 0), correlation, 0);
    }
}

const LAYER_NAMES: [&str; 8] =
    ["layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "layers.5", "layers.6", "layers.7"];
