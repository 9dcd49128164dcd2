//! Programs with planted causes: cold starts, waits behind a launch, host work, iterations, communication.

use crate::programs::{GEMM, Program, US, decode};
use roofgap_analyze::{ColdKind, StageLimit, SteadyUnit, verdict};

const MS: i64 = 1_000 * US;

/// A step of ten kernels of 100 us, behind which the CPU waits.
fn step(p: &mut Program) {
    for _ in 0..10 {
        p.kernel(GEMM, 0, 100 * US);
    }
    p.wait();
}

/// An operation that was launched in time and waits behind an event says nothing about the CPU.
#[test]
fn time_after_the_launch_returned_is_not_the_launch() {
    let mut program = Program::on(1);
    program.decode(8, |p| {
        p.kernel(GEMM, 0, 100 * US);
        // The next kernel is launched at once, and starts when an event of another stream is done.
        p.now += 150 * US;
        p.blocked_until(p.now + 20 * MS);
        p.kernel(GEMM, 0, 100 * US);
        p.wait();
    });
    let analysis = program.analysis();
    let stage = decode(&analysis);
    let (idle, detail) = (stage.idle.unwrap(), stage.idle_detail);
    assert!(detail.after_launch_ns > 8 * 19 * MS, "{detail:?}");
    assert_eq!(detail.before_launch_ns + detail.in_launch_ns, idle.launch_ns);
    assert!(idle.launch_ns < 8 * MS && idle.other_ns >= detail.after_launch_ns, "{idle:?}");
    assert_eq!(stage.limit, Some(StageLimit::GpuGaps));
    assert!(analysis.findings.iter().all(|finding| finding.id != "launch-bound"));
}

/// One step compiles two kernels. It is in no number of the warm part.
#[test]
fn a_step_that_loads_code_is_cold() {
    let run = |compiles: bool| {
        let mut program = Program::on(1);
        let mut at = 0;
        program.decode(20, |p| {
            at += 1;
            for _ in 0..2 {
                if compiles && at == 8 {
                    p.now += 600 * MS;
                    p.call("cuModuleLoadData", 2 * MS);
                }
                step(p);
            }
        });
        program.analysis()
    };
    let (with, without) = (run(true), run(false));
    let (cold, clean) = (decode(&with).warm(), decode(&without).warm());
    let start = cold.cold_start.as_ref().unwrap();
    assert_eq!((start.instances, start.steps, start.left_out), (0, 1, true));
    assert_eq!(start.causes.len(), 1);
    assert_eq!((start.causes[0].kind, start.causes[0].calls), (ColdKind::ModuleLoad, 2));
    assert_eq!(start.causes[0].call, "cuModuleLoadData");
    assert!(start.causes[0].ns > 1_200 * MS && start.total_ns > 1_200 * MS, "{start:?}");
    let (steady, expected) = (cold.steady.clone().unwrap(), clean.steady.clone().unwrap());
    assert_eq!((steady.unit, steady.count), (SteadyUnit::Step, 19));
    assert!((steady.time_ns - expected.time_ns).abs() <= expected.time_ns / 50, "{steady:?} {expected:?}");
    assert!((cold.elapsed_ns() - clean.elapsed_ns() * 19 / 20).abs() < clean.elapsed_ns() / 50);
    assert_eq!(cold.limit, clean.limit);
    assert_eq!(cold.kernel_count, 19 * 20);
    assert_eq!((clean.cold_start.as_ref(), clean.kernel_count), (None, 20 * 20));
    // The totals stay those of the capture.
    let whole = decode(&with);
    assert_eq!((whole.kernel_count, whole.steps.as_ref().unwrap().count), (20 * 20, 20));
    assert!(whole.elapsed_ns() > 1_200 * MS && whole.steady == cold.steady && whole.limit == cold.limit);
}

/// Two generations, of which the first is cold.
#[test]
fn the_first_of_two_generations_is_cold() {
    let mut program = Program::on(1);
    for generation in 0..2 {
        program.decode(16, |p| {
            step(p);
            p.now += if generation == 0 { 20 * MS } else { 100 * US };
        });
    }
    let analysis = program.analysis();
    assert_eq!(decode(&analysis).instances, 2);
    let stage = decode(&analysis).warm();
    let start = stage.cold_start.as_ref().unwrap();
    assert_eq!((start.instances, start.steps, start.left_out), (1, 0, true));
    assert_eq!((stage.instances, stage.steps.as_ref().unwrap().count), (1, 16));
    assert!(stage.steady.as_ref().unwrap().time_ns < 2 * MS, "{:?}", stage.steady);
    assert!(analysis.findings.iter().all(|finding| finding.id != "step-tail"), "{:?}", analysis.findings);
}

/// A single cold run has nothing to compare with: the time stays, and its cause is the limit.
#[test]
fn a_single_run_whose_first_launch_takes_a_second() {
    let mut program = Program::on(1);
    program.range("prefill", |p| {
        p.slow_kernel(GEMM, 1_340 * MS);
        for _ in 0..100 {
            p.kernel(GEMM, 0, 100 * US);
        }
        p.wait();
    });
    let analysis = program.analysis();
    let stage = &analysis.stages[0];
    assert_eq!(stage.limit, Some(StageLimit::ColdStart), "{}", verdict(stage).why);
    let start = stage.cold_start.as_ref().unwrap();
    assert!(!start.left_out && start.causes[0].kind == ColdKind::FirstLaunch, "{start:?}");
    assert!(start.warm_mean_ns < 20 * MS, "{start:?}");
    assert!(stage.before.cold_ns > 1_300 * MS, "{:?}", stage.before);
}

/// Many first launches of some tenths of a millisecond, each of another kernel, are a start; the same launches again are not.
#[test]
fn first_launches_that_load_code_are_a_start_and_later_ones_are_not() {
    let cold_ns = |kernels: usize| {
        let mut program = Program::on(1);
        program.range("prefill", |p| {
            for launch in 0..100 {
                p.slow_kernel(&format!("kernel_{}", launch % kernels), 300 * US);
            }
            p.wait();
        });
        let stage = program.analysis().stages.remove(0);
        stage.before.cold_ns + stage.idle_detail.cold_ns
    };
    assert!(cold_ns(100) > 15 * MS, "{}", cold_ns(100));
    assert!(cold_ns(1) < MS, "{}", cold_ns(1));
}

/// Work that starts some microseconds after each launch is launch latency: fewer launches save it, too.
#[test]
fn launch_latency_does_not_hide_that_launches_are_the_limit() {
    let mut program = Program::on(1);
    program.decode(8, |p| {
        for _ in 0..50 {
            // Launched, then started 8 us after the call returned.
            p.blocked_until(p.now + 12 * US);
            p.kernel(GEMM, 0, 2 * US);
            p.now += 6 * US;
        }
        p.wait();
    });
    let analysis = program.analysis();
    let detail = decode(&analysis).idle_detail;
    assert!(detail.after_launch_ns > 0, "{detail:?}");
    assert!(analysis.findings.iter().all(|finding| finding.id != "late-start"), "{:?}", analysis.findings);
}

/// What the CPU does before the first operation of a step belongs to the step.
#[test]
fn host_work_before_the_first_operation() {
    let mut program = Program::on(1);
    for number in 0..3 {
        program.range(&format!("ProfilerStep#{number}"), |p| {
            p.now += 10 * MS;
            step(p);
        });
    }
    // The profiler opens a step that never runs.
    program.range("ProfilerStep#3", |_| {});
    let analysis = program.analysis();
    let stage = &analysis.stages[0];
    let steps = stage.steps.as_ref().unwrap();
    assert_eq!(steps.count, 3);
    let step_ns = stage.step_ns().unwrap();
    assert!((step_ns - 11 * MS).abs() < MS / 4, "{step_ns} {:?}", steps.each_ns);
    assert_eq!(stage.limit, Some(StageLimit::Host), "{}", verdict(stage).why);
    assert!(
        stage.before.idle_ns > 9 * MS && stage.idle_detail.host_first_ns > 17 * MS,
        "{:?}",
        stage.idle_detail
    );
    assert!((stage.elapsed_ns() - 33 * MS).abs() < MS);
}

/// Iterations by the names that frameworks and people give them.
#[test]
fn iterations_have_many_names() {
    let iterate = |run: &dyn Fn(&mut Program, usize)| {
        let mut program = Program::on(1);
        for number in 0..6 {
            run(&mut program, number);
        }
        let analysis = program.analysis();
        let stage = &analysis.stages[0];
        (stage.steps.as_ref().map_or(0, |steps| steps.count), stage.step_ns().unwrap_or(0))
    };
    let named = |name: fn(usize) -> String| iterate(&move |p, number| p.range(&name(number), step));
    let (count, step_ns) = named(|number| format!("token_{number}"));
    assert_eq!(count, 6);
    assert_eq!(named(|_| "forward pass".to_owned()), (count, step_ns));
    let (unnamed, found_ns) = named(|_| "anything".to_owned());
    assert!(unnamed == count && (found_ns - step_ns).abs() < step_ns / 1_000, "{unnamed} {found_ns}");
    let (count, after) = iterate(&|p, _| {
        step(p);
        p.range("Optimizer.step#SGD.step", step);
    });
    assert!(count == 6 && (after - 2 * step_ns).abs() < step_ns / 5, "{count} {after} {step_ns}");
    let (count, whole) = iterate(&|p, _| {
        p.range("## Call CompiledFxGraph f00 ##", step);
        step(p);
    });
    assert!(count == 6 && (whole - 2 * step_ns).abs() < step_ns / 5, "{count} {whole} {step_ns}");
}

/// Two GPUs that reduce after every product: one of them comes late.
#[test]
fn communication_that_nothing_hides() {
    let run = |devices: u32, late: i64| {
        let mut program = Program::on(devices);
        program.decode(8, |p| {
            for _ in 0..16 {
                for device in 0..devices as u16 {
                    p.kernel(GEMM, device, 50 * US + if device == 1 { late } else { 0 });
                }
                p.meet(devices as u16, 100 * US);
            }
        });
        program.analysis()
    };
    let even = run(2, 0);
    let stage = decode(&even);
    let own = stage.communication.unwrap();
    assert_eq!(own.kernels, 2 * 8 * 16);
    assert_eq!(own.exposed_ns, own.total_ns);
    assert_eq!(stage.limit, Some(StageLimit::Communication), "{}", verdict(stage).why);
    assert!(own.waiting_ns.unwrap() < own.exposed_ns / 10, "{own:?}");
    let uneven = run(2, 400 * US);
    let own = decode(&uneven).communication.unwrap();
    // The first GPU waits 400 us for the second one, and the transfer takes 100 us on each.
    let share = own.waiting_ns.unwrap() as f64 / own.exposed_ns as f64;
    assert!((0.6..0.72).contains(&share), "{own:?}");
    let alone = run(1, 0);
    let stage = decode(&alone);
    assert_eq!(stage.communication.unwrap().waiting_ns, None);
    assert!(verdict(stage).why.contains("one rank does not tell"), "{}", verdict(stage).why);
}
