//! The program that is played: its threads launch, its devices run, and every number is added up on the way.

use crate::event::{Call, CallKind, Copy, Events, Graph, Kernel, Range, Set};
use crate::expected::Expected;
use crate::names::{self, LAYER, Part};
use crate::random::Random;
use crate::spec::{Graphs, Spec};
use crate::tally::{Place, StageKind, Tally, Work};

/// Time on the CPU before a call, in which an operator of the framework begins.
const LEAD: i64 = 3_600;
/// Time on the CPU after a call, in which it ends.
const TAIL: i64 = 800;
/// Layers of the model.
const LAYERS: usize = 24;
/// Kernels that a graph launches.
const GRAPH_NODES: u64 = 40;
/// The number that CUDA gives the first stream of a context.
const FIRST_STREAM: u16 = 7;
/// When the first event happens.
const BEGINNING: i64 = 17_000_000_000;

/// A synthetic program run and its expected analysis.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Specification.
    pub spec: Spec,
    /// The events, in the order of their start or in none.
    pub events: Events,
    /// Expected results of an analysis.
    pub expected: Expected,
}

impl Program {
    /// Plays the program.
    pub fn run(spec: &Spec) -> Self {
        let mut events = Events::default();
        events.kernels.reserve(spec.kernels as usize);
        events
            .calls
            .reserve(spec.kernels as usize + spec.kernels as usize / 50);
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
        Self {
            spec: spec.clone(),
            events,
            expected: tally.finish(),
        }
    }
}

/// One process: a thread that computes and a thread that loads.
struct Host<'a> {
    spec: &'a Spec,
    process: u16,
    events: &'a mut Events,
    tally: &'a mut Tally,
    random: Random,
    /// The computing thread's time.
    now: i64,
    place: Place,
    /// Kernels still to be launched.
    left: u64,
    orphans: u64,
    correlation: u32,
    nodes: u64,
    /// Number of kernels before each open range was opened.
    opened: Vec<usize>,
    /// The devices it uses, and when each of their streams is free again.
    devices: Vec<(u16, Vec<i64>)>,
}

impl<'a> Host<'a> {
    fn new(spec: &'a Spec, process: u16, events: &'a mut Events, tally: &'a mut Tally) -> Self {
        let (processes, all) = (spec.processes.max(1) as u16, spec.devices.max(1) as u16);
        // More devices than processes are shared out; otherwise processes share devices.
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
            place: Place::default(),
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

    /// Prefill, then decode of some tokens. Inside a warm-up nothing counts.
    fn request(&mut self, tokens: usize, counted: bool) {
        if self.left == 0 {
            return;
        }
        self.place.stage = counted.then_some(StageKind::Prefill);
        let prefill = self.open();
        self.load();
        for (name, kernels) in [("sam", 30), ("clip", 40), ("projector", 3)] {
            let note = self.open();
            self.place.note = counted.then_some(name);
            for i in 0..kernels {
                self.kernel(LAYER[i as usize % LAYER.len()], i / 10);
            }
            self.place.note = None;
            self.close(note, false, name);
            if counted {
                self.tally
                    .close_note(StageKind::Prefill, name, note, self.now - TAIL);
            }
        }
        self.layers(7);
        if !self.random.once_in(4) {
            self.synchronize();
        }
        self.close(prefill, true, "prefill");
        if counted {
            self.tally
                .close_stage(StageKind::Prefill, self.process, prefill, self.now - TAIL);
        }
        self.place.stage = counted.then_some(StageKind::Decode);
        let decode = self.open();
        for token in 0..tokens {
            if self.left == 0 {
                break;
            }
            self.place.step = true;
            let step = self.open();
            if token % 4 == 3 && self.spec.graphs != Graphs::None {
                for _ in 0..LAYERS / 4 {
                    self.graph();
                }
            } else {
                self.layers(token as u64 / 16);
            }
            self.copy_back();
            self.place.step = false;
            self.close(step, true, "decode_step");
            if counted {
                self.tally.close_step(StageKind::Decode, step, self.now - TAIL);
            }
        }
        // What was launched last may still run when the range is closed.
        self.close(decode, true, "decode_all");
        if counted {
            self.tally
                .close_stage(StageKind::Decode, self.process, decode, self.now - TAIL);
        }
        self.place.stage = None;
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

    /// Opens a range at this moment.
    fn open(&mut self) -> i64 {
        let start = self.now;
        self.opened.push(self.events.kernels.len());
        self.now += 300;
        start
    }

    /// Closes a range; a little time passes after it.
    fn close(&mut self, start: i64, llm: bool, name: &'static str) {
        let first = self.opened.pop().unwrap_or(0);
        let inside = self.events.kernels.get(first..).unwrap_or_default();
        let own = self.devices[0].0;
        let gpu = inside
            .iter()
            .filter(|k| k.device == own && k.stream == FIRST_STREAM)
            .fold(None, |span: Option<(i64, i64)>, k| {
                let (first, last) = span.unwrap_or((k.start, k.end));
                Some((first.min(k.start), last.max(k.end)))
            });
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

    /// A call of the computing thread; the correlation id that it got.
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

    /// When something that was launched just now runs: on which device and stream, from when to when.
    fn schedule(&mut self, length: i64) -> (u16, u16, i64, i64) {
        let device = match self.devices.len() {
            1 => 0,
            n if self.random.once_in(3) => (self.random.next() % n as u64) as usize,
            _ => 0,
        };
        let (number, streams) = &mut self.devices[device];
        let stream = if self.random.once_in(8) {
            (self.random.next() % streams.len() as u64) as usize
        } else {
            0
        };
        let start = streams[stream].max(self.now + 1_200);
        streams[stream] = start + length;
        (*number, FIRST_STREAM + stream as u16, start, start + length)
    }

    fn kernel(&mut self, part: Part, variant: u64) {
        if self.left == 0 {
            return;
        }
        let name = names::pick(part, variant);
        let kind = if part == Part::Gemm {
            CallKind::DriverLaunch
        } else {
            CallKind::Launch
        };
        let length = self.random.between(2_800, 5_200);
        let correlation = self.call(kind, length);
        self.tally.launch(self.place);
        self.push_kernel(name, correlation, 0);
        self.now += TAIL;
    }

    fn push_kernel(&mut self, name: u16, correlation: u32, node: u64) {
        self.left -= 1;
        let about = names::kinds().get(usize::from(name)).map_or(1_000, |k| k.length);
        let length = about + self.random.between(0, about / 4);
        let (device, stream, start, end) = self.schedule(length);
        let work = Work::Kernel { name };
        self.tally
            .operation(self.place, self.process, device, work, start, end);
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

    /// A graph: one call, many kernels or one operation.
    fn graph(&mut self) {
        if self.left == 0 {
            return;
        }
        let correlation = self.call(CallKind::GraphLaunch, 9_000);
        self.tally.launch(self.place);
        if self.spec.graphs == Graphs::Whole {
            let (device, stream, start, end) = self.schedule(110_000);
            self.tally
                .operation(self.place, self.process, device, Work::Graph, start, end);
            self.events.graphs.push(Graph {
                start,
                end,
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

    /// The other thread copies an image to the device while this one works: part of no stage.
    fn load(&mut self) {
        self.correlation += 1;
        let (start, end) = (self.now + 500, self.now + 9_500);
        let (process, correlation) = (self.process, self.correlation);
        let (device, stream) = (self.devices[0].0, 20);
        self.events.calls.push(Call {
            start,
            end,
            kind: CallKind::Copy,
            correlation,
            process,
            thread: 1,
        });
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
        self.tally
            .operation(Place::default(), process, device, Work::Copy, begin, finish);
        self.events.copies.push(Copy {
            start: begin,
            end: finish,
            bytes: 3 * 1024 * 1024,
            to_device: true,
            correlation,
            process,
            device,
            stream,
        });
    }

    /// Sets a flag, copies the token back and waits for it.
    fn copy_back(&mut self) {
        let correlation = self.call(CallKind::Set, 2_500);
        self.tally.launch(self.place);
        let (device, stream, start, end) = self.schedule(2_100);
        self.tally
            .operation(self.place, self.process, device, Work::Set, start, end);
        self.events.sets.push(Set {
            start,
            end,
            bytes: 4,
            correlation,
            process: self.process,
            device,
            stream,
        });
        let correlation = self.call(CallKind::Copy, 4_000);
        self.tally.launch(self.place);
        let (device, stream, start, end) = self.schedule(2_300);
        self.tally
            .operation(self.place, self.process, device, Work::Copy, start, end);
        self.events.copies.push(Copy {
            start,
            end,
            bytes: 8,
            to_device: false,
            correlation,
            process: self.process,
            device,
            stream,
        });
        if !self.random.once_in(3) {
            self.synchronize();
        }
    }

    /// Waits until the first device has done everything.
    fn synchronize(&mut self) {
        self.call(CallKind::Query, 1_400);
        let free = self.devices[0].1.iter().copied().max().unwrap_or(0);
        let length = (free - self.now - LEAD).max(0) + 1_500;
        self.call(CallKind::Synchronize, length);
        self.now += TAIL;
    }

    /// A kernel whose launch the profiler did not record.
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

const LAYER_NAMES: [&str; 8] = [
    "layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "layers.5", "layers.6", "layers.7",
];
