//! Functions of the CPU in the idle time of the GPU: planted lines come first, with their exact time, and the parts add up.

use crate::programs::{GEMM, Program, US, decode};
use roofgap_analyze::{Analysis, HostFunction, HostKind, Options, Stage, analyze, host_stacks, violations};
use roofgap_trace::NOT_RUNNING;

const STEPS: usize = 20;
const PLANTED_US: i64 = 700;

/// A decoder whose step ends in a function of the program, in which it calls another for a while.
fn planted(function: &str, file: &str, called: &str, samples: Option<i64>) -> Analysis {
    let mut program = Program::on(1);
    program.frame("main", "app.py", 3, |p| {
        p.decode(STEPS, |p| {
            p.frame("step", "app.py", 10, |p| {
                p.frame("nn.Module: Model", "", 0, |p| {
                    p.frame("_call_impl", "torch/nn/modules/module.py", 1, |p| {
                        p.frame("forward", "model.py", 40, |p| {
                            for _ in 0..4 {
                                p.frame("linear", "torch/nn/functional.py", 2, |p| {
                                    p.kernel(GEMM, 0, 20 * US);
                                });
                            }
                        });
                    });
                });
                p.frame(function, file, 118, |p| {
                    p.wait();
                    p.frame(called, "", 0, |p| p.now += PLANTED_US * US);
                });
            });
        });
    });
    if let Some(every) = samples {
        program.sampled(every);
    }
    program.analysis()
}

fn adds_up(stage: &Stage) {
    let (idle, host) = (stage.idle.unwrap(), stage.host_idle.unwrap());
    let outside = if stage.period_ns.is_some() { stage.between_ns } else { stage.before.idle_ns };
    let listed: i64 = stage.host.iter().map(|row| row.self_ns).sum();
    assert_eq!(host.idle_ns, idle.launch_ns + idle.sync_ns + idle.copy_ns + outside, "{}", stage.name);
    assert_eq!(listed + host.others_ns + host.unknown_ns, host.idle_ns, "{}", stage.name);
}

fn first(stage: &Stage) -> &HostFunction {
    stage.host.first().expect("functions are listed")
}

#[test]
fn a_planted_line_is_first_with_its_exact_time() {
    for (function, file, called, kind, finding) in [
        ("sample", "sampler.py", "Tensor.item", HostKind::HiddenSync, "idle-hidden-sync"),
        ("encode", "tokenizer.py", "str.split", HostKind::Tokenizer, "idle-tokenizer"),
        ("pick", "vllm/v1/core/sched/scheduler.py", "sorted", HostKind::Scheduler, "idle-scheduler"),
        ("tidy", "app.py", "collect", HostKind::GarbageCollection, "idle-garbage-collection"),
        ("put", "app.py", "_thread.lock.acquire", HostKind::Lock, "idle-lock"),
        ("nap", "app.py", "sleep", HostKind::Sleep, "idle-sleep"),
        ("report", "logging/__init__.py", "str.format", HostKind::Logging, "idle-logging"),
        ("save", "app.py", "_io.BufferedWriter.write", HostKind::FileAccess, "idle-file-access"),
        ("tell", "zmq/sugar/socket.py", "Frame", HostKind::Messages, "idle-messages"),
        ("count", "app.py", NOT_RUNNING, HostKind::Descheduled, "idle-descheduled"),
    ] {
        let analysis = planted(function, file, called, None);
        let stage = decode(&analysis);
        adds_up(stage);
        let row = first(stage);
        assert_eq!((row.function.as_str(), row.file.as_deref(), row.line), (function, Some(file), Some(118)));
        assert_eq!((row.kind, row.samples, row.interval_ns), (kind, None, None), "{function}");
        // The last step is followed by no launch.
        let mostly = row.mostly.as_ref().unwrap();
        let planted_ns = (STEPS as i64 - 1) * (PLANTED_US * US + 10);
        assert_eq!((mostly.function.as_str(), mostly.ns), (called, planted_ns), "{function}");
        assert!(row.self_ns >= planted_ns && row.self_ns < planted_ns + planted_ns / 50, "{row:?}");
        let found = analysis.findings.iter().find(|found| found.id == finding).unwrap();
        let line = format!("{function} ({}:118), mostly in {called}", file.rsplit('/').next().unwrap());
        assert!(found.title.contains(&line), "{}", found.title);
        // Waits for the device have a rule of their own.
        assert!(found.bound_ns > planted_ns * 8 / 10 && found.action.contains(function), "{found:?}");
        let first = &analysis.findings[0];
        assert!(first.title.contains(&line), "{}", first.title);
        assert!(analysis.findings.iter().all(|found| found.id != "host-gaps"), "{:?}", analysis.findings);
    }
}

#[test]
fn the_line_of_other_code_is_named_by_the_rule_about_launches() {
    let analysis = planted("count", "app.py", "len", None);
    assert!(analysis.findings.iter().all(|found| !found.id.starts_with("idle-")), "{:?}", analysis.findings);
    let first = &analysis.findings[0];
    assert!(first.title.contains("count (app.py:118), mostly in len"), "{}", first.title);
}

#[test]
fn functions_have_their_class_and_stand_for_the_code_of_pytorch() {
    let analysis = planted("count", "app.py", "len", None);
    let stage = decode(&analysis);
    let model = stage.host.iter().find(|row| row.line == Some(40)).unwrap();
    assert_eq!((model.function.as_str(), model.kind), ("Model.forward", HostKind::Dispatch));
    assert!(stage.host.iter().all(|row| !row.file.as_deref().unwrap().starts_with("torch")));
    let step = stage.host.iter().find(|row| row.function == "step");
    let all = stage.host_idle.unwrap();
    assert!(step.is_none_or(|step| step.idle_ns > all.idle_ns * 9 / 10), "{step:?}");
    assert_eq!((all.unknown_ns, all.not_running_ns, all.samples), (0, None, None));
    assert!(analysis.findings.iter().any(|found| found.id == "launch-bound"));
}

#[test]
fn samples_estimate_what_frames_tell() {
    let exact = planted("encode", "tokenizer.py", "str.split", None);
    let sampled = planted("encode", "tokenizer.py", "str.split", Some(37 * US));
    let (exact, sampled) = (first(decode(&exact)), decode(&sampled));
    adds_up(sampled);
    let row = first(sampled);
    assert_eq!((&row.function, row.line, row.kind), (&exact.function, exact.line, exact.kind));
    let [low, high] = row.interval_ns.unwrap();
    assert!(low <= exact.self_ns && exact.self_ns <= high, "{low} {} {high}", exact.self_ns);
    assert!((row.self_ns - exact.self_ns).abs() < exact.self_ns / 20, "{} {}", row.self_ns, exact.self_ns);
    let of_samples = row.samples.unwrap() as i64 * 37 * US;
    assert!((of_samples - row.self_ns).abs() < row.self_ns / 100, "{of_samples} {}", row.self_ns);
    assert!(sampled.host_idle.unwrap().samples >= row.samples);
    // A sampler that is too slow leaves most of the time unknown or spreads it; the parts add up all the same.
    for every in [1_000_003, 3_000_017] {
        adds_up(decode(&planted("encode", "tokenizer.py", "str.split", Some(every))));
    }
}

fn fixture(name: &str) -> roofgap_trace::Trace {
    let path = format!("{}/../../fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    roofgap_trace::read(&[path.into()]).unwrap().trace
}

/// A real program with six causes, one in each stage.
#[test]
fn planted_causes_of_a_real_program_are_named() {
    let trace = fixture("h200/planted.kineto.json.gz");
    let causes = [
        ("read_back", 11, HostKind::HiddenSync),
        ("nap", 12, HostKind::Sleep),
        ("collect", 13, HostKind::GarbageCollection),
        ("tokenize", 14, HostKind::Tokenizer),
        ("locked", 15, HostKind::Lock),
        ("mask", 17, HostKind::HiddenSync),
    ];
    let mut options = Options::default();
    for (cause, ..) in causes {
        options.stages.set(&format!("{cause}={cause}")).unwrap();
    }
    let analyzed = analyze(&trace, &options);
    let analysis = &analyzed.analysis;
    assert_eq!(violations(analysis), Vec::<String>::new());
    for (cause, line, kind) in causes {
        let stage = analysis.stages.iter().find(|stage| stage.name == cause).unwrap();
        adds_up(stage);
        let row = stage.host.iter().find(|row| row.function == cause).unwrap();
        assert_eq!((row.file.as_deref(), row.line), (Some("planted.py"), Some(line)));
        // A mask as an index, and a lock in a `with`, have no function of their own.
        assert!(row.kind == kind || ["mask", "locked"].contains(&cause), "{row:?}");
        // All stages launch the same work. Reading a value back is short, and alone waits.
        let by_wait = stage.host.iter().max_by_key(|row| row.device_wait_ns);
        let mut others = stage.host.iter().filter(|row| row.function != "work");
        let named = if kind == HostKind::HiddenSync { by_wait } else { others.next() };
        assert_eq!(named.unwrap().function, cause, "{:?}", stage.host);
    }
    let nap = analysis.stages.iter().find(|stage| stage.name == "nap").unwrap();
    let slept = first(nap).mostly.as_ref().unwrap();
    assert_eq!(slept.function, "sleep");
    // Four steps of 2 ms, of which the last is followed by no launch.
    assert!((6_000 * US..6_600 * US).contains(&slept.ns), "{slept:?}");
    // Stacks hold the same time as the table.
    for (stage, stacks) in analysis.stages.iter().zip(host_stacks(&trace, &analyzed.stages)) {
        let all: i64 = stacks.iter().map(|stack| stack.ns).sum();
        assert_eq!(all, stage.host_idle.unwrap().idle_ns, "{}", stage.name);
    }
}

#[test]
fn captures_without_stacks_have_no_functions() {
    for name in ["h200/llama4.sqlite.gz", "h200/llama4.kineto.json.gz"] {
        let trace = fixture(name);
        let analyzed = analyze(&trace, &Options::default());
        assert!(
            analyzed.analysis.stages.iter().all(|stage| stage.host.is_empty() && stage.host_idle.is_none())
        );
        assert!(host_stacks(&trace, &analyzed.stages).is_empty());
    }
}
