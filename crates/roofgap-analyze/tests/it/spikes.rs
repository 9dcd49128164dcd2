//! Steps with a planted cause: each is found with it, and the same work in every step is no spike.

use crate::programs::{GEMM, NCCL, Program, US, decode};
use roofgap_analyze::{Analysis, Spike, SpikeCause};
use roofgap_trace::vitals::{GpuState, GpuUser, GpuVitals};
use roofgap_trace::{Mark, NOT_RUNNING, Range};

const MS: i64 = 1_000 * US;
const STEPS: usize = 24;
const SLOW: usize = 15;

type Plant = fn(&mut Program);

/// Decodes in steps of ten kernels and a collective. `plant` adds to some steps what takes time; `longer` stretches their kernels.
fn program(in_step: impl Fn(usize) -> bool, longer: i64, plant: impl Fn(&mut Program)) -> Program {
    let mut program = Program::on(1);
    let mut at = 0;
    program.decode(STEPS, |p| {
        at += 1;
        let is_planted = in_step(at);
        for _ in 0..10 {
            p.kernel(GEMM, 0, 100 * US * if is_planted { longer } else { 1 });
        }
        p.kernel(NCCL, 0, 20 * US);
        if is_planted {
            plant(p);
        }
        p.kernel(GEMM, 0, 10 * US);
        p.wait();
    });
    program
}

fn planted(plant: impl Fn(&mut Program) + Copy) -> Spike {
    let analysis = program(|at| at == SLOW, 1, plant).analysis();
    let usual = program(|_| true, 1, plant).analysis();
    assert_eq!(decode(&usual).spikes, [], "what every step does is no exception");
    single(&analysis)
}

fn single(analysis: &Analysis) -> Spike {
    let [spike] = &decode(analysis).spikes[..] else { panic!("{:?}", decode(analysis).spikes) };
    assert_eq!(spike.step, SLOW as u64);
    let excess = spike.time_ns - spike.expected_ns;
    assert!(spike.evidence_ns <= excess, "{spike:?}");
    if spike.cause != SpikeCause::Unknown {
        assert!(spike.evidence_ns * 10 > excess * 9, "{spike:?}");
    }
    spike.clone()
}

fn in_code(p: &mut Program, called: &str) {
    p.wait();
    p.frame("step", "app.py", 7, |p| p.frame(called, "", 0, |p| p.now += 40 * MS));
}

#[test]
fn each_cause_is_found_with_its_time() {
    use SpikeCause::*;
    let plants: [(SpikeCause, &str, Plant); 13] = [
        (FirstUse, "cuModuleLoadData", |p| {
            p.now += 60 * MS;
            p.call("cuModuleLoadData", 2 * MS);
        }),
        (FirstUse, "cudaGraphInstantiate", |p| _ = p.call("cudaGraphInstantiate", 30 * MS)),
        (Allocation, "cudaMalloc", |p| {
            // Each is too short to be one that a program makes once.
            for _ in 0..10 {
                (0..40).for_each(|_| _ = p.call("cudaMalloc", 90 * US));
                p.kernel(GEMM, 0, 2 * US);
                (0..40).for_each(|_| _ = p.call("cudaFree", 80 * US));
            }
        }),
        (Allocation, "cudaHostAlloc", |p| _ = p.call("cudaHostAlloc", 50 * MS)),
        (GarbageCollection, "step (app.py:7)", |p| in_code(p, "gc.collect")),
        (Lock, "step (app.py:7)", |p| in_code(p, "futex")),
        (Descheduled, "step (app.py:7)", |p| in_code(p, NOT_RUNNING)),
        // Stopped within a call.
        (Descheduled, "step (app.py:7)", |p| {
            p.wait();
            p.frame("step", "app.py", 7, |p| {
                p.frame(NOT_RUNNING, "", 0, |p| _ = p.call("cudaMalloc", 40 * MS))
            });
        }),
        (Code, "step (app.py:7)", |p| in_code(p, "json.dumps_all")),
        (HostCopy, "[CUDA memcpy Host-to-Device]", |p| p.copy("[CUDA memcpy Host-to-Device]", 30 * MS)),
        (LateRank, NCCL, |p| _ = p.kernel(NCCL, 0, 30 * MS)),
        (SlowKernel, "spin", |p| _ = p.kernel("spin", 0, 50 * MS)),
        (Call, "cuCtxSetLimit", |p| {
            p.wait();
            p.call("cuCtxSetLimit", 20 * MS);
        }),
    ];
    for (cause, what, plant) in plants {
        let spike = planted(plant);
        assert_eq!((spike.cause, spike.what.as_deref()), (cause, Some(what)));
        assert_eq!(spike.missing, None);
    }
}

#[test]
fn a_gap_without_stacks_has_no_cause_and_says_what_to_record() {
    let spike = planted(|p| {
        p.wait();
        p.now += 40 * MS;
    });
    assert_eq!((spike.cause, spike.what), (SpikeCause::Unknown, None));
    assert_eq!(spike.missing.as_deref(), Some("stacks of the CPU"));
}

#[test]
fn several_causes_of_which_none_has_half_are_not_one() {
    let spike = planted(|p| {
        p.wait();
        p.call("cudaHostAlloc", 10 * MS);
        p.copy("[CUDA memcpy Host-to-Device]", 10 * MS);
        p.wait();
        in_code(p, "gc.collect");
        p.now += 50 * MS;
        p.kernel(NCCL, 0, 20 * MS);
    });
    assert_eq!((spike.cause, spike.evidence_ns), (SpikeCause::Unknown, 0));
}

/// The annotation of a program marks the collections of Python, which no stack shows.
#[test]
fn a_marked_collection_is_the_cause_of_the_gap_around_it() {
    let mut program = program(
        |at| at == SLOW,
        1,
        |p| {
            p.wait();
            p.now += 40 * MS;
        },
    );
    let trace = &mut program.trace;
    let name = trace.names.intern("roofgap:gc");
    let step =
        trace.ranges.rows.iter().filter(|row| trace.names.get(row.name) == "decode_step").nth(SLOW - 1);
    let step = *step.unwrap();
    trace.ranges.rows.push(Range { start: step.end - 40 * MS, end: step.end - MS, name, ..step });
    let spike = single(&program.analysis());
    assert_eq!(spike.cause, SpikeCause::GarbageCollection);
}

/// Kernels that take three times as long: why, the vitals tell.
#[test]
fn the_vitals_tell_why_kernels_take_longer() {
    let with = |clock: Option<f64>, other: Option<bool>| {
        let mut program = program(|at| at == SLOW, 3, |_| {});
        let slow: Vec<(i64, i64)> = {
            let ops = &program.trace.ops;
            let long = (0..ops.len()).filter(|op| ops.end[*op] - ops.start[*op] == 300 * US);
            long.map(|op| (ops.start[op], ops.end[op])).collect()
        };
        let span = (slow[0].0, slow[slow.len() - 1].1);
        let mut vitals = GpuVitals { uuid: Some("0".into()), ..GpuVitals::default() };
        for at in (0..program.now).step_by(200 * US as usize) {
            let is_slow = (span.0..span.1).contains(&at);
            let sm_mhz = clock.map(|clock| if is_slow { clock } else { 1980.0 });
            vitals.states.push(GpuState { at, sm_mhz, ..GpuState::default() });
        }
        if let Some(own) = other {
            let user =
                GpuUser { pid: 9, of_session: Some(own), sm_pct: Some(60), name: Some("train".into()) };
            vitals.processes.push((span.0, vec![user]));
        }
        if clock.is_some() {
            program.trace.vitals.push(vitals);
        }
        let spike = single(&program.analysis());
        (spike.cause, spike.what, spike.missing)
    };
    let (cause, what, _) = with(Some(660.0), None);
    assert_eq!((cause, what.as_deref()), (SpikeCause::ClockDrop, Some("660 MHz for 1980 MHz")));
    let (cause, what, _) = with(Some(1980.0), Some(false));
    assert_eq!((cause, what.as_deref()), (SpikeCause::OtherTenant, Some("train")));
    // A process of the session is no other program, and without vitals nobody knows.
    assert_eq!(with(Some(1980.0), Some(true)).0, SpikeCause::SlowKernels);
    let (cause, _, missing) = with(None, None);
    assert_eq!((cause, missing.as_deref()), (SpikeCause::SlowKernels, Some("vitals of the GPU")));
}

/// A step of an engine with a long prompt takes as long as its tokens say.
#[test]
fn more_tokens_are_no_spike() {
    let run = |tokens: u64| {
        let mut program = Program::on(1);
        for at in 1..=STEPS {
            // Some steps show how the time grows.
            let (prompt, lasts) = match at {
                SLOW => (tokens, 40),
                at if at % 6 == 0 => (1000, 10),
                _ => (0, 1),
            };
            let requests = u64::from(prompt > 0);
            program.range(&format!("execute_context_{requests}({prompt})_generation_64(64)"), |p| {
                p.kernel(GEMM, 0, lasts * MS);
                p.wait();
            });
        }
        program.analysis().stages.iter().flat_map(|stage| stage.spikes.clone()).collect::<Vec<Spike>>()
    };
    assert_eq!(run(4000), []);
}

#[test]
fn the_finding_names_the_cause_and_its_remedy() {
    let analysis = program(|at| at == SLOW, 1, |p| in_code(p, "futex")).analysis();
    let found = analysis.findings.iter().find(|finding| finding.id == "step-tail").unwrap();
    assert!(found.title.ends_with("40.0 ms of it waiting for a lock in step (app.py:7)"), "{}", found.title);
    assert!(found.action.starts_with("The thread waits for a lock"), "{}", found.action);
    assert_eq!(found.evidence["cause"].as_str(), Some("lock"));
    assert_eq!(found.evidence["steps_with_cause"].as_u64(), Some(1));
}

/// Marks say which requests are in the steps from there on; their receipts add up to the steps to the nanosecond.
#[test]
fn receipts_add_up_to_the_steps() {
    let mut program = Program::on(1);
    let mark = |p: &mut Program, text: &str| {
        let (domain, name) = (p.trace.names.intern(""), p.trace.names.intern(text));
        let thread = p.trace.calls.thread[0];
        p.trace.ranges.marks.push(Mark { at: p.now, domain, name, thread });
    };
    for at in 0..30 {
        program.range("execute_context_0(0)_generation_3(3)", |p| {
            p.kernel(GEMM, 0, 100 * US + at);
            p.now += 50 * US;
            p.kernel(GEMM, 0, 101 * US);
            match at {
                3 => mark(p, "roofgap:requests a:512p b:1 c:1"),
                20 => mark(p, "roofgap:requests b:1 d:2"),
                _ => {}
            }
            p.wait();
        });
    }
    let analysis = program.analysis();
    let receipts = analysis.serving.unwrap().receipts.unwrap();
    assert_eq!((receipts.steps, receipts.unassigned_steps, receipts.requests), (30, 3, 4));
    let sum: i64 = receipts.each.iter().map(|own| own.busy_ns + own.idle_ns).sum();
    assert_eq!(sum + receipts.others_ns + receipts.unassigned_ns, receipts.busy_ns + receipts.idle_ns);
    let order: Vec<(&str, u64, u64)> =
        receipts.each.iter().map(|own| (own.id.as_str(), own.steps, own.tokens)).collect();
    assert_eq!(order, [("a", 17, 17 * 512), ("d", 10, 20), ("b", 27, 27), ("c", 17, 17)]);
    assert!(receipts.idle_ns > 0 && receipts.each[0].joules.is_none());
    let [a, d, b, c] = &receipts.each[..] else { panic!("{receipts:?}") };
    assert_eq!((a.prompt_end_ns, a.behind_prompts_ns), (Some(a.end_ns), 0));
    assert!(a.prompt_ns > 0 && a.prompt_ns <= a.end_ns - a.start_ns, "{a:?}");
    assert_eq!((b.prompt_end_ns, b.behind_prompts_ns), (None, a.prompt_ns));
    assert_eq!((c.behind_prompts_ns, d.behind_prompts_ns), (a.prompt_ns, 0));
}
