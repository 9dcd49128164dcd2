//! Small programs played through on made-up GPUs: what holds each back must be what is said first.

use roofgap_analyze::{About, Analysis, Finding, Options, Stage, analyze, model, verdict};
use roofgap_trace::{
    Call, CallClass, Device, DeviceId, GpuOp, HostFrame, HostSample, HostSpan, LaunchShape, MemoryKind,
    OpKind, ProcessId, Range, RangeStyle, StackId, ThreadId, Trace,
};
use std::collections::HashMap;

pub const GEMM: &str = "nvjet_sm90_tst_128x64_64x16_4x1_v_bz_TNT";
pub const NCCL: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
pub const US: i64 = 1_000;

/// A thread that launches, and the devices that work behind it.
pub struct Program {
    pub trace: Trace,
    process: ProcessId,
    thread: ThreadId,
    pub now: i64,
    /// When each device and stream is done with what it was given.
    done: HashMap<(u16, u32), i64>,
    correlation: u32,
}

impl Program {
    pub fn on(devices: u32) -> Self {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "python");
        let thread = trace.add_thread(process, 1, "main");
        for number in 0..devices {
            trace.add_device(Device {
                number,
                name: Some("NVIDIA H200".into()),
                sms: Some(132),
                uuid: Some(number.to_string()),
                ..Device::default()
            });
        }
        Self { trace, process, thread, now: 1_000_000, done: HashMap::new(), correlation: 0 }
    }

    pub fn range(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        let start = self.now;
        self.now += 200;
        body(self);
        self.now += 200;
        let (domain, name) = (self.trace.names.intern("LLM"), self.trace.names.intern(name));
        self.trace.ranges.rows.push(Range {
            start,
            end: self.now,
            domain,
            name,
            process: self.process,
            thread: self.thread,
            end_thread: self.thread,
            style: RangeStyle::PushPop,
            open: false,
        });
    }

    /// Calls a function; one without a file has line 0.
    pub fn frame(&mut self, function: &str, file: &str, line: u32, body: impl FnOnce(&mut Self)) {
        let names = &mut self.trace.names;
        let frame = HostFrame { function: names.intern(function), file: names.intern(file), line };
        let (frame, thread, start) = (self.trace.stacks.intern(frame), self.thread, self.now);
        // A caller begins before what it calls.
        self.now += 10;
        body(self);
        self.trace.stacks.spans.push(HostSpan { thread, start, end: self.now, frame });
    }

    /// Replaces the exact calls by samples of the stacks in them.
    pub fn sampled(&mut self, every: i64) {
        self.trace.stacks.spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
        let spans = std::mem::take(&mut self.trace.stacks.spans);
        let mut at = 0;
        while at < self.now {
            let stacks = &mut self.trace.stacks;
            let around = spans.iter().filter(|span| span.start <= at && at < span.end);
            let stack = around.fold(StackId::default(), |caller, span| stacks.call(caller, span.frame));
            if stack != StackId::default() {
                stacks.samples.push(HostSample { thread: self.thread, at, stack });
            }
            at += every;
        }
    }

    pub fn call(&mut self, name: &str, lasts: i64) -> u32 {
        self.correlation += 1;
        let id = self.trace.names.intern(name);
        self.trace.calls.push(Call {
            start: self.now,
            end: self.now + lasts,
            name: id,
            class: CallClass::from_name(name),
            process: self.process,
            thread: self.thread,
            correlation: self.correlation,
        });
        self.now += lasts;
        self.correlation
    }

    /// Puts an operation behind what its stream has to do; answers when it is done.
    pub fn put(&mut self, kind: OpKind, name: &str, device: u16, lasts: i64, ready: i64) -> i64 {
        let done = self.done.entry((device, 7)).or_insert(0);
        let start = (*done + 1_000).max(ready + 2_000);
        *done = start + lasts;
        let grid = if name == NCCL { 24 } else { 512 };
        let shape = self.trace.ops.intern_shape(LaunchShape {
            grid: [grid, 1, 1],
            block: [128, 1, 1],
            ..LaunchShape::default()
        });
        let memory = match kind {
            OpKind::Copy if name.contains("Device-to-Host") => (MemoryKind::Device, MemoryKind::Pageable),
            OpKind::Copy => (MemoryKind::Pageable, MemoryKind::Device),
            _ => Default::default(),
        };
        let name = self.trace.names.intern(name);
        self.trace.ops.push(GpuOp {
            kind,
            start,
            end: start + lasts,
            name,
            device: DeviceId(device),
            stream: 7,
            process: self.process,
            correlation: self.correlation,
            shape,
            bytes: 8,
            graph_node: 0,
            memory,
        });
        start + lasts
    }

    pub fn kernel(&mut self, name: &str, device: u16, lasts: i64) -> i64 {
        let ready = self.now + 2_000;
        self.call("cudaLaunchKernel", 4_000);
        self.put(OpKind::Kernel, name, device, lasts, ready)
    }

    /// A copy of pageable memory, which holds the thread until it is done.
    pub fn copy(&mut self, name: &str, lasts: i64) {
        let (called, ready) = (self.now, self.now + 2_000);
        self.correlation += 1;
        let end = self.put(OpKind::Copy, name, 0, lasts, ready);
        self.correlation -= 1;
        self.call("cudaMemcpyAsync", end - called + 1_000);
    }

    /// A kernel whose launch call takes long, as the first one does that loads its code.
    pub fn slow_kernel(&mut self, name: &str, lasts: i64) {
        self.call("cudaLaunchKernel", lasts);
        self.put(OpKind::Kernel, name, 0, 100 * US, self.now);
    }

    /// Lets the next kernel of the first device start no earlier than this, as behind an event.
    pub fn blocked_until(&mut self, moment: i64) {
        let done = self.done.entry((0, 7)).or_insert(0);
        *done = (*done).max(moment);
    }

    /// A collective that every device starts when it is done, and that ends on all of them a while after the last one has come.
    pub fn meet(&mut self, devices: u16, lasts: i64) {
        let ready = self.now + 2_000;
        let start = |done: Option<&i64>| (done.copied().unwrap_or(0) + 1_000).max(ready + 2_000);
        let starts: Vec<i64> = (0..devices).map(|device| start(self.done.get(&(device, 7)))).collect();
        let end = starts.iter().copied().max().unwrap_or(0) + lasts;
        for (device, start) in (0..devices).zip(starts) {
            self.call("cudaLaunchKernel", 4_000);
            self.put(OpKind::Kernel, NCCL, device, end - start, ready);
        }
    }

    pub fn wait(&mut self) {
        let done = self.done.values().copied().max().unwrap_or(0);
        self.call("cudaStreamSynchronize", (done - self.now).max(0) + 4_000);
    }

    pub fn decode(&mut self, steps: usize, mut step: impl FnMut(&mut Self)) {
        self.range("decode_all", |program| {
            for _ in 0..steps {
                program.range("decode_step", &mut step);
            }
            program.wait();
        });
    }

    pub fn analysis(mut self) -> Analysis {
        self.trace.sort();
        let analysis = analyze(&self.trace, &Options::default()).analysis;
        for stage in &analysis.stages {
            let share = stage.busy_share().unwrap();
            assert!((0.0..=1.0).contains(&share), "{}: {share}", stage.name);
        }
        for finding in &analysis.findings {
            let name = finding.stage.as_deref().unwrap();
            let stage = analysis.stages.iter().find(|s| s.name == name).unwrap();
            assert!(finding.bound_ns <= stage.elapsed_ns(), "{}", finding.id);
            assert!(finding.bound_pct <= 100.0, "{}", finding.id);
        }
        analysis
    }
}

pub fn decode(analysis: &Analysis) -> &Stage {
    analysis.stages.iter().find(|s| s.name == "decode").unwrap()
}

fn first(analysis: &Analysis) -> &Finding {
    analysis.findings.first().expect("something is found")
}

#[test]
fn kernels_that_fill_the_device_are_no_finding() {
    let mut program = Program::on(1);
    program.decode(8, |p| {
        for _ in 0..64 {
            p.kernel(GEMM, 0, 60 * US);
        }
    });
    let analysis = program.analysis();
    assert_eq!(verdict(decode(&analysis)).label.as_str(), "GPU-bound");
    assert!(analysis.findings.is_empty(), "{:?}", analysis.findings);
}

/// The CPU could run ahead, and waits in every layer instead: the gaps behind the waits are theirs, not the launches'.
#[test]
fn a_wait_in_every_layer() {
    let mut program = Program::on(1);
    program.decode(8, |p| {
        for _ in 0..24 {
            for _ in 0..6 {
                p.kernel(GEMM, 0, 20 * US);
            }
            p.wait();
            p.now += 40 * US;
        }
    });
    let analysis = program.analysis();
    let (stage, first) = (decode(&analysis), first(&analysis));
    assert_eq!(first.id, "sync-in-step");
    let idle = stage.idle.unwrap();
    assert!(idle.launch_ns > 4 * idle.sync_ns, "{idle:?}");
    let causes = stage.causes().unwrap();
    assert_eq!(causes.total_ns(), idle.total_ns());
    assert!(causes.sync_ns > idle.total_ns() * 8 / 10, "{causes:?}");
    assert_eq!(first.bound_ns, causes.sync_ns);
    assert!(first.action.contains(".item()"), "{}", first.action);
    assert_eq!(verdict(stage).label.as_str(), "sync-bound");
    assert!(analysis.findings.iter().all(|f| f.id != "launch-bound"));
}

/// Few launches, the GPU long done with them, and a wait that takes no time: the CPU is what is slow.
#[test]
fn a_slow_cpu_is_not_cured_by_fewer_waits() {
    let mut program = Program::on(1);
    program.decode(8, |p| {
        for _ in 0..10 {
            p.kernel(GEMM, 0, 50 * US);
            p.now += 900 * US;
        }
        p.wait();
    });
    let analysis = program.analysis();
    assert_eq!(first(&analysis).id, "launch-bound");
    assert!(first(&analysis).action.contains("between launches"), "{}", first(&analysis).action);
    assert_eq!(verdict(decode(&analysis)).label.as_str(), "launch-bound");
}

#[test]
fn values_read_back_in_every_layer() {
    let mut program = Program::on(1);
    program.decode(8, |p| {
        for _ in 0..24 {
            for _ in 0..6 {
                p.kernel(GEMM, 0, 10 * US);
            }
            p.copy("[CUDA memcpy Device-to-Host]", 1_500);
            p.wait();
            p.now += 30 * US;
        }
    });
    let analysis = program.analysis();
    assert_eq!(first(&analysis).id, "host-copies");
    assert!(first(&analysis).action.contains(".item()"));
    assert_eq!(verdict(decode(&analysis)).label.as_str(), "copy-bound");
}

#[test]
fn weights_that_come_from_the_host_in_each_step() {
    let mut program = Program::on(1);
    program.decode(8, |p| {
        for _ in 0..16 {
            p.copy("[CUDA memcpy Host-to-Device]", 900 * US);
            p.kernel(GEMM, 0, 20 * US);
        }
    });
    let analysis = program.analysis();
    assert_eq!(first(&analysis).id, "host-copies");
    assert!(first(&analysis).action.contains("Weights"));
    assert_eq!(verdict(decode(&analysis)).label.as_str(), "copy-bound");
}

/// Graphs are in use already: the advice cannot be to use graphs.
#[test]
fn gaps_between_graphs() {
    for whole in [false, true] {
        let mut program = Program::on(1);
        program.decode(16, |p| {
            let ready = p.now + 6_000;
            p.call("cudaGraphLaunch", 12_000);
            for _ in 0..if whole { 1 } else { 200 } {
                let kind = if whole { OpKind::Graph } else { OpKind::Kernel };
                p.put(kind, GEMM, 0, if whole { 800 * US } else { 3 * US }, ready);
            }
            p.now += 2_500 * US;
        });
        let analysis = program.analysis();
        let first = first(&analysis);
        assert_eq!((first.id.as_str(), whole), ("host-gaps", whole));
        assert_eq!(first.evidence["gaps"], 15);
        assert!(first.action.contains("Fewer launches do not shorten it"), "{}", first.action);
    }
}

#[test]
fn gpus_with_unequal_shares() {
    let mut program = Program::on(2);
    program.decode(8, |p| {
        for _ in 0..16 {
            p.kernel(GEMM, 0, 90 * US);
            p.kernel(GEMM, 1, 20 * US);
        }
    });
    let analysis = program.analysis();
    let stage = decode(&analysis);
    assert_eq!((stage.device_count, stage.devices_per_instance), (2, 2.0));
    assert_eq!(first(&analysis).id, "devices-uneven");
    let bound_ns = first(&analysis).bound_ns;
    assert!((bound_ns - 8 * 16 * 35 * US).abs() < 10 * US, "{bound_ns}");
    assert_eq!(verdict(stage).label.as_str(), "uneven");
}

#[test]
fn a_slower_gpu_and_a_part_on_one_gpu_are_no_uneven_load() {
    let findings = |alone: usize, lasts: [i64; 2]| {
        let mut program = Program::on(2);
        program.decode(1, |p| {
            for _ in 0..alone {
                p.kernel(GEMM, 0, 90 * US);
            }
            p.wait();
            for _ in 0..100 {
                p.kernel(GEMM, 0, lasts[0] * US);
                p.kernel(GEMM, 1, lasts[1] * US);
            }
        });
        let analysis = program.analysis();
        let found = analysis.findings.iter().any(|finding| finding.id == "devices-uneven");
        (found, verdict(decode(&analysis)).label.as_str())
    };
    assert!(!findings(0, [90, 68]).0, "a clock of three quarters");
    assert_eq!(findings(100, [90, 90]), (false, "GPU-bound"), "a reference on one of them");
    assert_eq!(findings(0, [90, 20]), (true, "uneven"), "another share of the work");
    // A device that is slower by more than a clock allows is so in every kernel.
    let uneven = |others: i64| {
        let mut program = Program::on(2);
        program.decode(1, |p| {
            for _ in 0..100 {
                p.kernel(GEMM, 0, 90 * US);
                p.kernel(GEMM, 1, 180 * US);
                p.kernel("norm", 0, 30 * US);
                p.kernel("norm", 1, others * US);
            }
        });
        program.analysis().findings.iter().any(|finding| finding.id == "devices-uneven")
    };
    assert_eq!((uneven(60), uneven(30)), (false, true));
}

#[test]
fn work_before_the_gpu_has_begun_happens_once() {
    let found = |kernel: &str, kernels: usize| {
        let mut program = Program::on(1);
        for _ in 0..kernels {
            program.kernel(kernel, 0, 30 * US);
        }
        program.now += 50_000 * US;
        for _ in 0..200 {
            program.kernel(GEMM, 0, 30 * US);
        }
        first(&program.analysis()).id.clone()
    };
    assert_eq!(found("fill", 3), "cold-start");
    assert_eq!(found("fill", 100), "host-gaps");
    assert_eq!(found(GEMM, 3), "host-gaps", "every kernel has run");
}

/// A program writes its state before its first step and after its last one.
#[test]
fn what_the_samples_show_again_at_the_end_is_no_start() {
    let found = |at_the_end: &str| {
        let mut program = Program::on(1);
        program.kernel("fill", 0, 30 * US);
        program.frame("write_state", "model", 0, |program| program.now += 50_000 * US);
        for _ in 0..200 {
            program.kernel(GEMM, 0, 30 * US);
        }
        program.frame(at_the_end, "model", 0, |program| program.now += 50_000 * US);
        program.kernel("fill", 0, 30 * US);
        program.sampled(1_000 * US);
        first(&program.analysis()).bound_ns / 1_000_000
    };
    assert!(found("write_state") > 90 && found("check") <= 50);
}

/// What leads to the recording of a graph is a part of it, up to the last launch before.
#[test]
fn a_graph_that_is_recorded_anew_is_cold() {
    let mut program = Program::on(1);
    for _ in 0..3 {
        (0..30).for_each(|_| _ = program.kernel(GEMM, 0, 30 * US));
        program.now += 50_000 * US;
        program.kernel("fill", 0, 2 * US);
        program.call("cudaStreamBeginCapture", 5 * US);
        program.now += 10_000 * US;
        program.call("cudaGraphInstantiate", 2_000 * US);
    }
    program.kernel(GEMM, 0, 30 * US);
    let analysis = program.analysis();
    assert_eq!(first(&analysis).id, "cold-start");
    assert!(first(&analysis).bound_ns > 3 * 60_000 * US, "{:?}", first(&analysis));
}

/// A library loads its code, and allocates memory after that.
#[test]
fn memory_that_is_allocated_after_code_was_loaded_is_cold() {
    let mut program = Program::on(1);
    program.copy("[CUDA memcpy Host-to-Device]", 10 * US);
    program.call("cuModuleLoadDataEx", 400 * US);
    program.call("cuMemHostAlloc", 30_000 * US);
    for _ in 0..200 {
        program.kernel(GEMM, 0, 5 * US);
    }
    let analysis = program.analysis();
    assert_eq!(first(&analysis).id, "cold-start");
    assert!(first(&analysis).bound_ns > 30_000 * US, "{:?}", first(&analysis));
}

/// The thread of the backward pass launches after that of the forward pass.
#[test]
fn threads_that_launch_by_turns_hold_faster_kernels_back() {
    let mut program = Program::on(1);
    for pass in 2..4 {
        program.thread = program.trace.add_thread(program.process, pass, "pass");
        for _ in 0..100 {
            program.now += 400 * US;
            program.kernel("ampere_sgemm_128x64_tn", 0, 300 * US);
        }
    }
    let analysis = program.analysis();
    let faster = analysis.findings.iter().find(|found| found.id == "tensor-cores-idle");
    assert_eq!(first(&analysis).id, "launch-bound");
    assert!(faster.is_none_or(|found| found.bound_ns < 3_000 * US), "{faster:?}");
}

#[test]
fn short_allocations_for_each_kernel() {
    let mut program = Program::on(1);
    for _ in 0..40 {
        program.call("cudaMalloc", 40 * US);
        program.call("cudaMalloc", 2 * US);
        program.kernel(GEMM, 0, 10 * US);
        program.wait();
        program.call("cudaFree", 30 * US);
    }
    let analysis = program.analysis();
    assert_eq!(first(&analysis).id, "allocations");
    assert!(analysis.findings.iter().all(|found| found.id != "launch-bound"), "{:?}", analysis.findings);
}

/// A library sets up the device in one of many calls that allocate.
#[test]
fn an_allocation_that_sets_up_the_device_is_not_one_of_many() {
    let found = |setup_ns: i64| {
        let mut program = Program::on(1);
        program.kernel(GEMM, 0, 500 * US);
        program.call("cudaFree", setup_ns);
        for _ in 0..40 {
            program.kernel(GEMM, 0, 500 * US);
            program.wait();
            program.call("cudaFree", 200 * US);
        }
        let analysis = program.analysis();
        let found = analysis.findings.iter().find(|found| found.id == "allocations");
        (first(&analysis).id.clone(), found.map_or(0, |found| found.bound_ns))
    };
    assert_eq!(found(200 * US).0, "allocations");
    let (id, allocations_ns) = found(300_000 * US);
    assert_eq!(id, "allocations", "the start is no part of the loop");
    assert!(allocations_ns < 20_000 * US, "{allocations_ns}");
}

/// A short message in the middle of other work does not explain it.
#[test]
fn a_gap_is_in_a_range_that_has_most_of_it() {
    let action = |message_ns: i64| {
        let mut program = Program::on(1);
        for _ in 0..8 {
            program.kernel(GEMM, 0, 5_000 * US);
            program.wait();
            program.now += (30_000 * US - message_ns) / 2;
            program.range("MPI_Recv", |p| p.now += message_ns);
            program.now += (30_000 * US - message_ns) / 2;
        }
        program.kernel(GEMM, 0, 5_000 * US);
        let analysis = program.analysis();
        assert_eq!(first(&analysis).id, "host-gaps");
        first(&analysis).title.contains("is in MPI_Recv")
    };
    assert!(action(28_000 * US));
    assert!(!action(5_000 * US));
}

#[test]
fn messages_between_launches_are_work_of_the_cpu() {
    let found = |range: &str| {
        let mut program = Program::on(1);
        for _ in 0..40 {
            program.kernel(GEMM, 0, 30 * US);
            program.wait();
            program.range(range, |p| p.now += 300 * US);
        }
        program.analysis().findings.into_iter().map(|finding| finding.id).collect::<Vec<_>>()
    };
    assert_eq!(found("MPI_Sendrecv").first().map(String::as_str), Some("host-gaps"));
    assert!(!found("solve").contains(&"host-gaps".to_owned()));
}

#[test]
fn gpus_that_take_turns() {
    let mut program = Program::on(2);
    program.decode(8, |p| {
        for device in [0, 1] {
            let before = p.done.values().copied().max().unwrap_or(0);
            p.done.insert((device, 7), before);
            for _ in 0..16 {
                p.kernel(GEMM, device, 50 * US);
            }
        }
        p.wait();
    });
    let analysis = program.analysis();
    assert_eq!(first(&analysis).id, "devices-take-turns");
    // Two that work at once need half the time.
    assert_eq!(first(&analysis).bound_ns, 8 * 16 * 50 * US);
}

/// Gaps of two devices at the same time are no more than the stage's time, and no GPU is busy more than all the time.
#[test]
fn two_gpus_side_by_side() {
    let mut program = Program::on(2);
    program.decode(8, |p| {
        for _ in 0..100 {
            p.kernel(GEMM, 0, 5 * US);
            p.kernel(GEMM, 1, 5 * US);
        }
    });
    let analysis = program.analysis();
    let stage = decode(&analysis);
    let share = stage.busy_share().unwrap();
    assert!((0.6..0.64).contains(&share), "{share}");
    let first = first(&analysis);
    assert_eq!(first.id, "launch-bound");
    assert!(first.bound_ns <= stage.wall_ns - stage.busy_ns.unwrap() / 2);
    assert_eq!(first.evidence["busy_pct"].as_f64().unwrap().round(), 62.0);
}

#[test]
fn communication_that_nothing_hides() {
    let mut program = Program::on(1);
    program.decode(8, |p| {
        for _ in 0..16 {
            p.kernel(GEMM, 0, 30 * US);
            p.kernel(NCCL, 0, 50 * US);
        }
    });
    let analysis = program.analysis();
    assert_eq!(first(&analysis).id, "communication-exposed");
    assert_eq!(first(&analysis).bound_ns, 8 * 16 * 50 * US);
    // There are 30 µs of computation for each 50 µs.
    assert_eq!(first(&analysis).evidence["hideable_ns"], 8 * 16 * 30 * US);
    assert!(
        analysis.findings.iter().all(|f| f.id != "small-kernels"),
        "a collective is meant to use few blocks"
    );
}

/// Nothing waits at the end of prefill: its work runs while decode has begun.
#[test]
fn the_first_step_of_an_engine_begins_after_work_from_before_the_recording() {
    let mut program = Program::on(1);
    program.blocked_until(30_000 * US);
    for number in 0..4 {
        program.range("step[DECODE bs=4]", |program| {
            for _ in 0..20 {
                program.kernel(GEMM, 0, 300 * US);
            }
        });
        if number == 0 {
            // The inputs of the next step arrive at once on a stream of their own.
            let last = program.trace.ops.len();
            program.range("prepare", |program| {
                program.call("cudaMemcpyAsync", 4 * US);
                program.put(OpKind::Copy, "Memcpy HtoD", 0, 2 * US, program.now);
            });
            let (ops, now) = (&mut program.trace.ops, program.now);
            (ops.stream[last], ops.start[last], ops.end[last]) = (8, now, now + 2 * US);
        }
    }
    let analysis = program.analysis();
    let stage = decode(&analysis);
    let steps = stage.steps.as_ref().unwrap();
    assert!(steps.each_ns.iter().all(|ns| (6_000 * US..6_100 * US).contains(ns)), "{:?}", steps.each_ns);
    assert_eq!(stage.period_ns, Some(steps.each_ns.iter().sum()));
    assert!(stage.busy_share().unwrap() > 0.99, "{stage:?}");
    assert!(stage.projected_ns <= stage.period_ns, "{stage:?}");
    assert!(stage.copies.is_empty() && stage.beside_ranges.is_none(), "{stage:?}");
}

#[test]
fn a_stage_that_ends_before_its_work() {
    let mut program = Program::on(1);
    program.range("prefill", |p| {
        for _ in 0..160 {
            p.kernel(GEMM, 0, 400 * US);
        }
    });
    program.decode(8, |p| {
        for _ in 0..60 {
            p.kernel(GEMM, 0, 9 * US);
        }
        p.wait();
    });
    let analysis = program.analysis();
    let prefill = analysis.stages.iter().find(|s| s.name == "prefill").unwrap();
    assert_eq!(prefill.busy_ns, Some(160 * 400 * US));
    assert!(prefill.late_ns > 62_000 * US && prefill.wall_ns < 700 * US);
    assert!(prefill.busy_share().unwrap() > 0.99);
    let words = verdict(prefill);
    assert_eq!(words.label.as_str(), "GPU-bound");
    assert!(words.why.contains("to the end of its GPU work"), "{}", words.why);
    let stage = decode(&analysis);
    assert_eq!(stage.late_ns, 0);
    assert!(stage.queued_ns > 62_000 * US, "{}", stage.queued_ns);
    assert_eq!(verdict(stage).label.as_str(), "queued");
    // Its first step waits long on the CPU for earlier work. On the GPU it takes as long as the others.
    let steps = stage.steps.as_ref().unwrap();
    let on_cpu = steps.cpu.as_ref().unwrap();
    assert!(on_cpu.each_ns[0] > 100 * on_cpu.p50_ns);
    assert!(steps.each_ns[0] < 2 * steps.p50_ns);
    assert!(analysis.findings.is_empty(), "{:?}", analysis.findings);
}

/// Two annotations of one step are one step, and two of one part one note.
#[test]
fn ranges_inside_ranges_of_the_same_meaning() {
    let mut program = Program::on(1);
    program.range("prefill", |p| {
        p.range("sam", |p| {
            p.range("sam", |p| {
                p.kernel(GEMM, 0, 10 * US);
            });
        });
    });
    program.decode(3, |p| {
        p.range("decode_step", |p| {
            p.kernel(GEMM, 0, 10 * US);
        });
    });
    let analysis = program.analysis();
    let steps = decode(&analysis).steps.as_ref().unwrap();
    assert_eq!((steps.count, steps.launches_per_step), (3, Some(1.0)));
    let prefill = analysis.stages.iter().find(|s| s.name == "prefill").unwrap();
    let note = &prefill.notes[0];
    assert_eq!((note.instances, note.kernel_count), (1, 1));
    assert!(note.wall_ns < prefill.wall_ns);
}

/// A model whose work is not known has no MFU, and the reason is the model's, not that none was named.
#[test]
fn a_model_that_is_not_known() {
    let account = serde_json::json!({"schema": "roofgap.workload/1", "tokens": {"prompt": 8, "generated": 8, "batch": 1},
        "model": {"name": "new", "config": {"model_type": "newmodel", "hidden_size": 64}}});
    let mut program = Program::on(1);
    program.decode(8, |p| {
        p.kernel(GEMM, 0, 60 * US);
    });
    program.trace.sort();
    let options = Options { account: Some(serde_json::from_value(account).unwrap()), ..Options::default() };
    let analysis = analyze(&program.trace, &options).analysis;
    assert!(decode(&analysis).mfu.is_none() && decode(&analysis).mbu.is_none());
    let reason = analysis.reasons.iter().find(|r| r.about == About::StageMfu("decode".into())).unwrap();
    assert!(reason.why.contains("num_hidden_layers"), "{}", reason.why);
}

#[test]
fn devices_that_worked_are_listed_in_order() {
    let mut program = Program::on(4);
    program.trace.devices.reverse();
    program.decode(1, |p| {
        p.kernel("first", 3, 1_000);
        p.kernel("second", 1, 1_000);
    });
    let analysis = program.analysis();
    let numbers: Vec<u32> = analysis.devices.iter().map(|device| device.id).collect();
    assert_eq!(numbers, [0, 2]);

    let nothing_ran = Program::on(2).analysis();
    assert_eq!(nothing_ran.devices.len(), 2);
}

pub const LOADER: &str = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";

/// Steps of a training loop as the PyTorch profiler names them: a batch, kernels, and the CPU ahead of neither.
fn training(steps: usize, loader: &str) -> Program {
    let mut program = Program::on(1);
    for step in 0..steps {
        program.range(&format!("ProfilerStep#{step}"), |p| {
            p.range(loader, |p| p.now += 5_000 * US);
            for _ in 0..20 {
                p.kernel(GEMM, 0, 30 * US);
            }
            p.wait();
        });
    }
    program
}

#[test]
fn a_training_loop_that_waits_for_data() {
    let analysis = training(4, LOADER).analysis();
    let [all] = analysis.stages.as_slice() else {
        panic!("{:?}", analysis.stages);
    };
    let found = first(&analysis);
    assert_eq!(found.id, "data-loading");
    // Loading takes as long without the wait before it.
    assert!((19_900 * US..20_100 * US).contains(&found.bound_ns), "{}", found.bound_ns);
    assert_eq!(found.bound_ns, all.data_loading_ns + all.before.data_loading_ns);
    assert!(found.action.contains("num_workers"), "{}", found.action);
    assert!(analysis.findings.iter().all(|f| f.id != "launch-bound"));
    let words = verdict(all);
    assert_eq!(words.label.as_str(), "data loading");
    assert!(words.why.ends_with("data loader"), "{}", words.why);

    // As long a gap outside of the loader is work of the host before the first operation of a step.
    let analysis = training(4, "read_file").analysis();
    assert_eq!(first(&analysis).id, "host-outside");
    assert!(analysis.findings.iter().all(|f| f.id != "data-loading"));
    assert_eq!(analysis.stages[0].data_loading_ns, 0);
}

/// The last step of a capture has no successor: its GPU work alone is no period.
#[test]
fn a_last_step_without_a_successor_does_not_shorten_the_mean() {
    let analysis = training(3, LOADER).analysis();
    let steps = analysis.stages[0].steps.as_ref().unwrap();
    let cpu = steps.cpu.as_ref().unwrap();
    assert_eq!((steps.count, steps.each_ns.len()), (3, 3));
    assert!((steps.mean_ns - cpu.mean_ns).abs() < cpu.mean_ns / 100, "{steps:?}");
    // The steps add up to the time in which they ran.
    let sums = [&steps.each_ns, &cpu.each_ns].map(|each| each.iter().sum::<i64>());
    assert_eq!(sums[0], sums[1]);
    // A single step takes as long as its range.
    let analysis = training(1, LOADER).analysis();
    let steps = analysis.stages[0].steps.as_ref().unwrap();
    assert_eq!(steps.each_ns, steps.cpu.as_ref().unwrap().each_ns);
    // Where the GPU works all the time, the last step is like the others.
    let mut program = Program::on(1);
    program.decode(4, |p| {
        for _ in 0..64 {
            p.kernel(GEMM, 0, 60 * US);
        }
    });
    let analysis = program.analysis();
    let steps = decode(&analysis).steps.as_ref().unwrap();
    assert_eq!(steps.mean_ns, steps.each_ns.iter().sum::<i64>() / 4);
}

/// The GPU runs earlier work at the beginning of the first step, and then waits for it, or does not.
#[test]
fn a_first_step_that_the_gpu_waits_for_takes_as_long_as_its_range() {
    let first_ns = |earlier_ns: i64| {
        let mut program = Program::on(1);
        program.kernel(GEMM, 0, earlier_ns);
        for step in 0..3 {
            program.range(&format!("ProfilerStep#{step}"), |p| {
                p.now += 5_000 * US;
                p.kernel(GEMM, 0, 500 * US);
                p.wait();
            });
        }
        let analysis = program.analysis();
        let steps = analysis.stages[0].steps.as_ref().unwrap();
        (steps.each_ns[0], steps.cpu.as_ref().unwrap().each_ns[0])
    };
    let (on_gpu, on_cpu) = first_ns(3_000 * US);
    assert!(on_gpu >= on_cpu, "{on_gpu} {on_cpu}");
    let (on_gpu, on_cpu) = first_ns(6_000 * US);
    assert!(on_gpu < on_cpu / 2, "{on_gpu} {on_cpu}");
}

#[test]
fn one_gap_is_not_averaged_over_all_launches() {
    let paused = |steps: usize| {
        let mut program = Program::on(1);
        let mut step = 0;
        program.decode(steps, |p| {
            step += 1;
            for _ in 0..20 {
                p.kernel(GEMM, 0, 30 * US);
            }
            if step == 4 {
                p.now += 400_000 * US;
            }
        });
        program.analysis()
    };
    // One step in eight is a pause, and no part of what holds the others back.
    let analysis = paused(8);
    assert_eq!(
        (first(&analysis).id.as_str(), first(&analysis).evidence["slowest_step"].as_u64()),
        ("step-tail", Some(4))
    );
    assert!(analysis.findings.iter().all(|found| found.id != "launch-bound"));
    assert_eq!(verdict(decode(&analysis)).label.as_str(), "GPU-bound");
    let analysis = paused(7);
    let found = first(&analysis);
    assert_eq!(found.id, "host-gaps");
    assert!(
        found.title.contains("idle for 398 ms") && found.title.contains("other work before nvjet"),
        "{}",
        found.title
    );
}

/// The headline repeats the remedy, so it must be that of the action.
#[test]
fn the_remedy_is_that_of_the_action() {
    let eager = |gap: i64| {
        let mut program = Program::on(1);
        program.decode(8, |p| {
            for _ in 0..20 {
                p.kernel(GEMM, 0, 30 * US);
                p.now += gap;
            }
        });
        program.analysis()
    };
    let (short, long) = (eager(100 * US), eager(900 * US));
    assert_eq!(first(&short).evidence["remedy"], "CUDA graphs");
    assert!(first(&short).action.contains("CUDA graph"));
    assert_eq!(first(&long).evidence["remedy"], "less CPU work between launches");
    assert!(!first(&long).action.contains("CUDA graph"));
}

#[test]
fn a_graph_beside_many_launches_is_not_the_work() {
    let play = |graphs: usize, kernels: usize| {
        let mut program = Program::on(1);
        for _ in 0..graphs {
            let ready = program.now + 6_000;
            program.call("cudaGraphLaunch", 12_000);
            for _ in 0..20 {
                program.put(OpKind::Kernel, GEMM, 0, 3 * US, ready);
            }
            program.now += 500 * US;
        }
        for _ in 0..kernels {
            program.kernel(GEMM, 0, 20 * US);
            program.now += 80 * US;
        }
        program.analysis()
    };
    let one = play(1, 400);
    assert_eq!(first(&one).evidence["graph_launches"], 1);
    assert!(!first(&one).action.contains("already"), "{}", first(&one).action);
    let many = play(20, 10);
    let action = &first(&many).action;
    assert!(action.contains("already"), "{action}");
    assert!(!action.contains("token") && !action.contains("sample"), "{action}");
}

#[test]
fn a_capture_without_kernels_has_no_limit_of_kernels() {
    let copies = |lasts: i64, gap: i64| {
        let mut program = Program::on(1);
        for _ in 0..3 {
            program.copy("[CUDA memcpy Host-to-Device]", lasts);
            program.now += gap;
        }
        program.analysis()
    };
    let idle = copies(10 * US, 900 * US);
    let words = verdict(&idle.stages[0]);
    assert_eq!(words.label.as_str(), "not measured");
    assert_eq!(words.why, "no kernels were recorded, only 3 copies");
    assert!(idle.findings.iter().all(|f| f.id != "launch-bound"), "{:?}", idle.findings);
    let busy = copies(900 * US, 10 * US);
    assert_eq!(verdict(&busy.stages[0]).label.as_str(), "copy-bound");

    let mut program = Program::on(1);
    let ready = program.now;
    program.call("cudaMemsetAsync", 4_000);
    program.put(OpKind::Set, "[CUDA memset]", 0, 2_000, ready);
    let set = program.analysis();
    assert_eq!(verdict(&set.stages[0]).why, "no kernels were recorded, only 1 memory set");
}

#[test]
fn a_gap_without_launch_records_has_no_cause() {
    let mut program = Program::on(1);
    for _ in 0..80 {
        program.kernel(GEMM, 0, 30 * US);
        program.now += 90 * US;
    }
    program.trace.calls = Default::default();
    let analysis = program.analysis();
    let words = verdict(&analysis.stages[0]);
    assert!(words.why.contains("the cause is unknown"), "{}", words.why);
    assert!(!words.why.contains("was launched"), "{}", words.why);
}

#[test]
fn calls_without_records_of_the_gpu_are_named() {
    let kernels = |trace: &Trace| {
        let analysis = analyze(trace, &Options::default()).analysis;
        let reason = analysis.reasons.into_iter().find(|r| r.about == About::Kernels);
        reason.unwrap().why
    };
    let mut program = Program::on(1);
    for _ in 0..3 {
        program.kernel(GEMM, 0, 30 * US);
    }
    program.copy("[CUDA memcpy Host-to-Device]", 10 * US);
    program.trace.ops = Default::default();
    let why = kernels(&program.trace);
    assert!(
        why.contains("4 calls that start GPU work were traced, but there are no records of the GPU"),
        "{why}"
    );
    program.trace.calls = Default::default();
    let why = kernels(&program.trace);
    assert!(why.ends_with("no GPU work was recorded"), "{why}");
}

/// A machine that is busy while a program measures its peak gives a peak that the program exceeds. That is no fault of the model.
/// A camera gives ten frames a second, whatever their work: no time is lost. A fixed sleep is.
#[test]
fn a_sleep_that_keeps_a_rate_is_no_loss() {
    let ids = |paced: bool| -> Vec<String> {
        let mut program = Program::on(1);
        program.decode(20, |p| {
            let turn = (p.now / (100_000 * US) + 1) * 100_000 * US;
            p.kernel(GEMM, 0, 20_000 * US);
            p.now += (p.trace.calls.len() as i64 * 7919 % 20_000) * US;
            p.frame("clock_nanosleep", "", 0, |p| p.now = if paced { turn } else { p.now + 60_000 * US });
        });
        program.analysis().findings.into_iter().map(|finding| finding.id).collect()
    };
    assert_eq!((ids(false), ids(true)), (vec!["idle-sleep".to_owned()], vec![]));
}

/// The recording of kernels stops before that of calls: what comes before is as certain as ever.
#[test]
fn launches_without_kernels_leave_what_came_before_certain() {
    let limit = |launched_early: bool| {
        let mut program = Program::on(1);
        let lost = |program: &mut Program| {
            for _ in 0..100 {
                program.call("cudaLaunchKernel", 1_000);
            }
        };
        if launched_early {
            lost(&mut program);
        }
        for _ in 0..200 {
            program.kernel(GEMM, 0, 20 * US);
            program.now += 80 * US;
        }
        if !launched_early {
            lost(&mut program);
        }
        let analysis = program.analysis();
        verdict(&analysis.stages[0]).label.as_str().to_owned()
    };
    assert_eq!((limit(false).as_str(), limit(true).as_str()), ("launch-bound", "not measured"));
}

#[test]
fn a_measured_peak_that_is_too_low_is_no_peak() {
    let config: serde_json::Value =
        serde_json::from_str(model::preset_config("qwen3_0_6b").unwrap()).unwrap();
    let account = |flops_per_s: f64| {
        let stages = serde_json::json!([{"name": "prefill", "wall_ns": 1_000_000_000_i64}, {"name": "decode", "wall_ns": 2_000_000_000_i64}]);
        let account = serde_json::json!({"schema": "roofgap.workload/1", "model": {"name": "m", "config": config},
            "tokens": {"prompt": 512, "generated": 8, "batch": 1, "vision": 0}, "device": {"kind": "cpu", "name": "a CPU"},
            "peak": {"flops_per_s": flops_per_s, "bytes_per_s": 1e12, "how": "measured on this CPU"},
            "repeats": [{"warmup": false, "stages": stages}]});
        let options =
            Options { account: Some(serde_json::from_value(account).unwrap()), ..Options::default() };
        analyze(&Trace::default(), &options).analysis
    };
    let known = account(1e13);
    assert!(known.stages[0].mfu.as_ref().unwrap().by_wall_pct < 100.0);
    let busy = account(1e10);
    assert_eq!(busy.stages[0].mfu, None);
    assert!(busy.whole.as_ref().is_none_or(|whole| whole.mfu.is_none()), "{:?}", busy.whole);
    let why = busy.reason(&About::StageMfu("prefill".into())).unwrap();
    assert!(why.contains("measured on this machine") && !why.contains("model does not"), "{why}");
}

/// Each kernel of the capture runs once: what its first launch costs is no way to judge the next.
#[test]
fn a_pass_of_kernels_that_run_for_the_first_time_is_cold() {
    let remedy = |passes: usize| {
        let mut program = Program::on(1);
        for _ in 0..passes {
            for layer in 0..40 {
                program.kernel(&format!("layer_{layer}"), 0, 5 * US);
                program.now += 60 * US;
            }
        }
        let analysis = program.analysis();
        let first = first(&analysis);
        assert_eq!(first.id, "launch-bound");
        let remedy = first.evidence.get("remedy").and_then(|remedy| remedy.as_str());
        (remedy.map(str::to_owned), first.action.contains("Record it warm"))
    };
    assert_eq!(remedy(1), (Some("a warm-up".to_owned()), true));
    assert!(!remedy(3).1);
}

/// A program of its own kernels launches in microseconds: what takes many times as long is other work.
#[test]
fn a_program_that_launches_fast_works_in_shorter_gaps() {
    let first_of = |process: &str, pause: i64| {
        let mut program = Program::on(1);
        let name = program.trace.names.intern(process);
        program.trace.processes[0].name = name;
        for launch in 0..200 {
            program.kernel(GEMM, 0, 2 * US);
            program.now += if launch % 10 == 0 { pause } else { 3 * US };
        }
        first(&program.analysis()).id.clone()
    };
    assert_eq!(first_of("solver", 400 * US), "host-gaps");
    assert_eq!(first_of("solver", 40 * US), "launch-bound");
    assert_eq!(first_of("python", 400 * US), "launch-bound");
}

/// Few operations show nothing, but the compiler that ran before them does.
#[test]
fn a_compiler_before_a_few_operations_is_told() {
    let analysis = |compiles: i64| {
        let mut program = Program::on(1);
        program.copy("[CUDA memcpy Host-to-Device]", 300 * US);
        program.now += compiles;
        program.call("cuModuleLoadDataEx", 500 * US);
        program.kernel(GEMM, 0, 5 * US);
        program.wait();
        program.analysis()
    };
    let cold = analysis(100_000 * US);
    assert_eq!((first(&cold).id.as_str(), cold.findings.len()), ("cold-start", 1));
    assert_eq!(verdict(&cold.stages[0]).label.as_str(), "cold start");
    let short = analysis(0);
    assert!(short.findings.is_empty());
    let why = verdict(&short.stages[0]).why;
    assert!(why.starts_with("too little GPU work to judge: 2 operations"), "{why}");
}

/// One GPU after the other is set up while none works: that time counts once.
#[test]
fn a_start_of_several_gpus_counts_once() {
    let once_ns = |devices: u16| {
        let mut program = Program::on(devices.into());
        for device in 0..devices {
            program.kernel("fill", device, 10 * US);
        }
        program.now += 100 * US;
        program.call("cuModuleLoadData", 80_000 * US);
        for _ in 0..40 {
            for device in 0..devices {
                program.kernel(GEMM, device, 1_000 * US);
            }
        }
        let analysis = program.analysis();
        let cold = analysis.stages[0].cold_start.as_ref().unwrap();
        cold.causes.iter().map(|cause| cause.ns).sum::<i64>() / 1_000_000
    };
    assert_eq!((once_ns(1), once_ns(2)), (80, 80));
}

/// Launches between allocations cannot be recorded as a graph, so the memory comes first.
#[test]
fn launches_between_allocations_are_not_first() {
    let mut program = Program::on(1);
    for _ in 0..60 {
        program.call("cudaMalloc", 150 * US);
        for _ in 0..4 {
            program.kernel(GEMM, 0, 30 * US);
            program.wait();
            program.now += 35 * US;
        }
        program.call("cudaFree", 20 * US);
    }
    let analysis = program.analysis();
    let ids: Vec<&str> = analysis.findings.iter().map(|finding| finding.id.as_str()).collect();
    assert_eq!(ids.first(), Some(&"allocations"), "{ids:?}");
}
