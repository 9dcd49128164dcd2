//! Every rule has an input in which it must find something, and one next to it in which it must not.

use super::constructed::{MS, analysis, busy, chains, kernel, run, shape, with_tail};
use super::counted::{measured, run_counted};
use super::serving::{batch, percentiles, served, stage as engine_stage};
use super::*;
use crate::counters::testing::Readings;
use crate::counters::{Bound, Pipe};
use crate::findings::OtherWork;
use crate::findings::RULES;
use crate::findings::evidence::{CommunicationUse, CopyUse, DeviceUse, ShapeUse, SyncUse};
use crate::names::Family;
use crate::result::*;
use roofgap_trace::OpKind;

/// Runs the rules with the cause of one, or without it.
type Case = (&'static str, fn(bool) -> Vec<Finding>);

#[test]
fn every_rule_has_its_cause_and_is_silent_without_it() {
    for rule in RULES.iter() {
        let found = |present: bool| {
            let case = CASES.iter().find(|(id, _)| *id == rule.id);
            let (_, case) = case.unwrap_or_else(|| panic!("{} has no case", rule.id));
            case(present).iter().any(|finding| rule.is_about(&finding.id))
        };
        assert!(found(true), "{} does not appear with its cause", rule.id);
        assert!(!found(false), "{} appears without its cause", rule.id);
    }
    assert_eq!(CASES.len(), RULES.len(), "a case for a rule that is gone");
}

/// A stage of 100 ms that is busy 30 ms and otherwise idle for these causes.
fn idle(idle: Idle) -> (Stage, StageEvidence) {
    let (stage, evidence) = busy();
    (Stage { busy_ns: Some(30 * MS), kernel_ns: Some(30 * MS), idle: Some(idle), ..stage }, evidence)
}

fn launches() -> (Stage, StageEvidence) {
    idle(Idle { launch_ns: 65 * MS, ..Idle::default() })
}

/// Launches hold all steps of a training back alike; what a few take beyond the others is something else.
#[test]
fn slow_steps_of_a_training_are_not_due_to_launches() {
    let bound_ms = |kernel_name: &str, slow: [i64; 2]| {
        let (mut stage, evidence) = launches();
        let each_ns = [8; 8].into_iter().chain(slow).map(|ms| ms * MS).collect();
        stage.steps = Some(Steps { count: 10, each_ns, ..Steps::default() });
        stage.kernels = vec![kernel(kernel_name, "other", 30 * MS)];
        let mut program = analysis(stage);
        program.kernels = program.stages[0].kernels.clone();
        let all = findings(&program, &[evidence]);
        one(&all, "launch-bound").bound_ns / MS
    };
    assert_eq!(bound_ms("conv_backward", [18, 28]), 65 - 10 - 20);
    assert_eq!(bound_ms("conv_backward", [9, 14]), 65, "too little to matter");
    assert_eq!(bound_ms("conv_forward", [18, 28]), 65, "steps of other programs differ in their work");
}

#[test]
fn a_gap_that_is_no_limit_is_listed_where_nothing_saves_as_much() {
    let found = |launch_ms: i64, copy_ms: i64| {
        let (mut stage, mut evidence) =
            idle(Idle { launch_ns: launch_ms * MS, copy_ns: copy_ms * MS, ..Idle::default() });
        stage.busy_ns = Some((100 - launch_ms - copy_ms) * MS);
        evidence.host_copies = CopyUse { count: 8, pageable: 8, bytes: 8, ..CopyUse::default() };
        let found = run(stage, evidence);
        found.iter().any(|finding| finding.id == "launch-bound")
    };
    assert!(found(15, 0));
    assert!(!found(15, 14), "the copies save nearly as much");
    assert!(!found(8, 0), "too little");
    assert!(found(30, 28), "a limit");
}

/// The launching thread is in a function for some ms of the idle time.
fn idle_in(function: &str, kind: HostKind, ms: i64) -> Vec<Finding> {
    let (mut stage, mut evidence) = launches();
    let function = HostFunction {
        function: function.to_owned(),
        file: None,
        line: None,
        part: None,
        kind,
        self_ns: ms * MS,
        idle_ns: ms * MS,
        device_wait_ns: 0,
        samples: None,
        interval_ns: None,
        mostly: None,
    };
    stage.idle_detail.host_work_ns = 20 * MS;
    let longest = LaunchGap { ns: 20 * MS, kind: OpKind::Kernel, name: "big_gemm".into() };
    evidence.other_work = Some(OtherWork { longest, managed_ns: 0, within: None });
    let host_idle = Some(HostIdle { idle_ns: 65 * MS, ..HostIdle::default() });
    run(Stage { host: vec![function], host_idle, ..stage }, evidence)
}

#[test]
fn waits_of_a_person_and_of_an_unknown_thread_are_no_findings_of_their_own() {
    let found = |function: &str, kind| {
        let found = idle_in(function, kind, 40);
        (ids(&found).iter().any(|id| id.starts_with("idle-")), ids(&found).contains(&"host-gaps"))
    };
    assert_eq!(found("poll", HostKind::Sleep), (true, false));
    assert_eq!(found("getc", HostKind::Input), (false, false));
    assert_eq!(found("run", HostKind::Descheduled), (true, false));
    assert_eq!(found(roofgap_trace::NOT_RUNNING, HostKind::Descheduled), (false, true));
    let gaps = idle_in(roofgap_trace::NOT_RUNNING, HostKind::Descheduled, 40);
    let gaps = one(&gaps, "host-gaps");
    assert!(gaps.title.contains("the launching thread does not run"), "{}", gaps.title);
    assert_eq!(gaps.confidence, Confidence::Guessed);
}

#[test]
fn a_small_gap_is_left_out_where_a_guess_could_save_more() {
    let found = |blocks: u64| {
        let (mut stage, mut evidence) = idle(Idle { launch_ns: 15 * MS, ..Idle::default() });
        (stage.busy_ns, stage.kernel_ns) = (Some(85 * MS), Some(85 * MS));
        evidence.shapes = vec![shape("serial", blocks, 30 * MS)];
        ids(&run(stage, evidence)).first().map(|id| (*id).to_owned())
    };
    assert_eq!(found(1).as_deref(), Some("small-kernels"));
    assert_eq!(found(1000).as_deref(), Some("launch-bound"));
}

/// A busy stage with one changed piece of evidence.
fn seen(change: fn(&mut StageEvidence)) -> Vec<Finding> {
    let (stage, mut evidence) = busy();
    change(&mut evidence);
    run(stage, evidence)
}

/// A kernel of special functions that uses this much of their pipe, %.
fn piped(pct: f64) -> Vec<Finding> {
    let readings = Readings { sm_pct: Some(85.0), ..Readings::default() }.with_pipe(Pipe::Special, pct);
    counted_with(Bound::Compute, [85.0, 10.0, 60.0], readings)
}

fn counted(bound: Bound, sm: f64, dram: f64, occupancy: f64) -> Vec<Finding> {
    counted_with(bound, [sm, dram, occupancy], Readings::default())
}

fn counted_with(bound: Bound, [sm, dram, occupancy]: [f64; 3], readings: Readings) -> Vec<Finding> {
    let (stage, mut evidence) = busy();
    evidence.shapes[0].name = "scan".into();
    let mut row = CounterRow { l1_pct: Some(60.0), occupancy_pct: Some(occupancy), ..CounterRow::default() };
    (row.sm_pct, row.memory_pct, row.dram_pct) = (Some(sm), Some(dram.max(20.0)), Some(dram));
    let mut row = measured(Some(bound), row);
    (row.row.kernel, row.reached_pct, row.readings) = ("scan".into(), Some(sm.max(dram)), readings);
    run_counted(stage, &evidence, &[row])
}

fn of_devices(compute_ms: [i64; 2], any_ms: i64) -> Vec<Finding> {
    let (stage, mut evidence) = busy();
    let used = |(number, ms): (u32, i64)| DeviceUse { number, compute_ns: ms * MS, load_ns: ms * MS };
    evidence.devices = (0..).zip(compute_ms).map(used).collect();
    evidence.any_device_ns = Some(any_ms * MS);
    run(Stage { device_count: 2, devices_per_instance: 2.0, ..stage }, evidence)
}

/// A compute-bound stage at 1,575 of 1,980 MHz, with a power cap and another process for these shares of the time.
fn limited(cap_pct: f64, other_pct: f64) -> Vec<Finding> {
    let (mut stage, evidence) = busy();
    stage.mfu = Some(Mfu { by_wall_pct: 60.0, ..Mfu::default() });
    let throttle = vec![ThrottleTime { reason: ThrottleReason::PowerCap, pct: cap_pct }];
    stage.vitals =
        Some(StageVitals { samples: 50, sm_mhz: Some(1575.0), throttle, ..StageVitals::default() });
    let other = OtherTenant { pid: 7, name: Some("python".into()), sm_pct: other_pct };
    let gpu = VitalsGpu { max_sm_mhz: Some(1980.0), others: vec![other], ..VitalsGpu::default() };
    let vitals = Vitals { gpus: vec![gpu], ..Vitals::default() };
    let analysis = Analysis { vitals: Some(vitals), ..analysis(stage) };
    findings(&analysis, &[evidence])
}

#[test]
fn the_bound_is_the_missing_share_of_the_clock() {
    let found = limited(90.0, 0.0).remove(0);
    // 98 ms of matrix products at 1,575 of 1,980 MHz.
    assert_eq!((found.id.as_str(), found.bound_ns), ("throttled", 20_045_455));
    assert!(found.title.contains("1575 of 1980 MHz (power cap, 90 % of the samples)"), "{}", found.title);
}

fn of_job(job: Job) -> Vec<Finding> {
    let mut analysis = Analysis { job: Some(job), ..analysis(busy().0) };
    add_of_job(&mut analysis, &Default::default());
    analysis.findings
}

fn served_with(change: impl Fn(&mut Analysis)) -> Vec<Finding> {
    let mut analysis = served();
    change(&mut analysis);
    findings(&analysis, &[])
}

const CASES: &[Case] = &[
    ("graphs-whole", |is| {
        let (mut stage, evidence) = busy();
        let total_ns = if is { 55 } else { 45 } * MS;
        stage.graphs = vec![GraphRow { launches: 8, total_ns, ..GraphRow::default() }];
        let found = run(with_tail(stage), evidence);
        assert_eq!(found[0].id == "graphs-whole", is, "it comes before others");
        found
    }),
    ("idle-*", |is| idle_in("poll", HostKind::Sleep, if is { 40 } else { 1 })),
    ("launch-bound", |is| {
        let (stage, evidence) = if is { launches() } else { busy() };
        run(stage, evidence)
    }),
    ("host-gaps", |is| {
        let (mut stage, mut evidence) = launches();
        stage.idle_detail.host_work_ns = if is { 40 * MS } else { MS };
        let longest = LaunchGap { ns: 20 * MS, kind: OpKind::Kernel, name: "big_gemm".to_owned() };
        evidence.other_work = Some(OtherWork { longest, managed_ns: 0, within: None });
        stage.idle_detail.host_gaps = 2;
        run(stage, evidence)
    }),
    ("data-loading", |is| {
        let (stage, evidence) = launches();
        run(Stage { data_loading_ns: if is { 50 } else { 4 } * MS, ..stage }, evidence)
    }),
    ("sync-in-step", |is| {
        let (stage, mut evidence) = idle(Idle { sync_ns: 60 * MS, ..Idle::default() });
        // One wait ends the stage.
        evidence.syncs = SyncUse { count: 31, inside: if is { 30 } else { 0 }, ..SyncUse::default() };
        run(stage, evidence)
    }),
    ("allocations", |is| {
        let (mut stage, evidence) = launches();
        stage.idle_detail.allocation_ns = if is { 40 * MS } else { MS };
        run(stage, evidence)
    }),
    ("managed-memory", |is| {
        let (mut stage, evidence) = idle(Idle { other_ns: 60 * MS, ..Idle::default() });
        stage.idle_detail.paging_ns = if is { 50 * MS } else { 0 };
        let kind = if is { CopyKind::ManagedToHost } else { CopyKind::DeviceToHost };
        stage.copies = vec![CopyRow { kind, calls: 900, total_ns: 12 * MS, ..CopyRow::default() }];
        run(stage, evidence)
    }),
    ("memsets", |is| {
        let (mut stage, mut evidence) = busy();
        evidence.memsets = (40, 30 * MS);
        let kernel_ns = stage.busy_ns.unwrap() - if is { 30 * MS } else { 0 };
        (stage.kernel_ns, stage.memcpy_ns) = (Some(kernel_ns), None);
        run(stage, evidence)
    }),
    ("late-start", |is| {
        let ns = if is { 60 * MS } else { MS };
        let (mut stage, evidence) = idle(Idle { other_ns: ns, launch_ns: 61 * MS - ns, ..Idle::default() });
        stage.idle_detail.after_launch_ns = ns;
        run(stage, evidence)
    }),
    ("host-copies", |is| {
        let (stage, mut evidence) = idle(Idle { copy_ns: 60 * MS, ..Idle::default() });
        evidence.host_copies = CopyUse {
            count: 9,
            pageable: if is { 9 } else { 0 },
            ns: 2 * MS,
            exposed_ns: MS,
            ..CopyUse::default()
        };
        run(stage, evidence)
    }),
    ("cold-start", |is| {
        let (mut stage, evidence) = launches();
        stage.idle_detail.cold_ns = if is { 60 * MS } else { MS };
        run(stage, evidence)
    }),
    ("host-outside", |is| {
        let (stage, evidence) = busy();
        let projected = if is { 66 * MS } else { 90 * MS };
        let work = Some(65 * MS);
        run(Stage { projected_ns: Some(projected), busy_ns: work, kernel_ns: work, ..stage }, evidence)
    }),
    ("rank-straggler", |is| {
        let late = Straggler { stage: Some("decode".into()), waited_for_ns: 30 * MS, ..Straggler::default() };
        of_job(Job { stragglers: if is { vec![late] } else { Vec::new() }, ..Job::default() })
    }),
    ("expert-imbalance", |is| {
        let stage = Some("decode".into());
        let row = ExpertBalance { stage, bound_ns: is.then_some(20 * MS), ..ExpertBalance::default() };
        of_job(Job { experts: vec![row], ..Job::default() })
    }),
    ("communication-exposed", |is| {
        let (stage, mut evidence) = busy();
        let exposed_ns = if is { 15 * MS } else { MS };
        evidence.communication =
            Some(CommunicationUse { count: 9, ns: 20 * MS, exposed_ns, hideable_ns: exposed_ns });
        run(stage, evidence)
    }),
    ("devices-take-turns", |is| of_devices([45, 45], if is { 88 } else { 50 })),
    ("devices-uneven", |is| of_devices(if is { [90, 40] } else { [66, 64] }, 90)),
    ("context-recomputed", |is| {
        findings(&super::recompute::analysis(|n| if is { n * 10_000 } else { 30_000 + n * 20 }), &[])
    }),
    ("unfused-attention", |is| match is {
        true => seen(|evidence| evidence.attention = chains(50 * MS, 30 * MS, 0)),
        false => seen(|evidence| evidence.chains = chains(50 * MS, 30 * MS, 0)),
    }),
    ("unfused-elementwise", |is| match is {
        true => seen(|evidence| evidence.chains = chains(20 * MS, 13 * MS, MS)),
        false => seen(|evidence| evidence.attention = chains(20 * MS, 13 * MS, MS)),
    }),
    ("tensor-cores-idle", |is| {
        let (stage, evidence) = busy();
        let name = if is { "ampere_sgemm_128x64_tn" } else { "ampere_bf16_s16816gemm_bf16_128x64_tn" };
        run(Stage { kernels: vec![kernel(name, "gemm", 60 * MS)], ..stage }, evidence)
    }),
    ("memory-at-roof", |is| counted(Bound::Dram, 10.0, if is { 92.0 } else { 60.0 }, 60.0)),
    ("memory-below-roof", |is| counted(Bound::Dram, 10.0, if is { 60.0 } else { 92.0 }, 60.0)),
    ("cache-bound", |is| counted(if is { Bound::L1 } else { Bound::Compute }, 50.0, 10.0, 60.0)),
    ("pipe-bound", |is| piped(if is { 85.0 } else { 40.0 })),
    ("low-occupancy", |is| counted(Bound::Latency, 35.0, 20.0, if is { 18.0 } else { 60.0 })),
    ("above-roof", |is| counted(Bound::Latency, if is { 30.0 } else { 90.0 }, 10.0, 60.0)),
    ("small-blocks", |is| {
        let (stage, mut evidence) = busy();
        let threads = if is { 4 } else { 128 };
        evidence.shapes = vec![ShapeUse { threads, ..shape("insert", 4_000_000, 98 * MS) }];
        run(stage, evidence)
    }),
    ("small-kernels", |is| {
        let (stage, mut evidence) = busy();
        // Six blocks of six threads: their number leaves more unused than their size.
        let few = ShapeUse { threads: 6, ..shape("index", 6, 98 * MS) };
        evidence.shapes = vec![if is { few } else { shape("big_gemm", 1000, 98 * MS) }];
        run(stage, evidence)
    }),
    // A touch of a limit is none.
    ("throttled", |is| limited(if is { 90.0 } else { 20.0 }, 0.0)),
    ("clock-ramp", |is| {
        let (mut stage, evidence) = busy();
        let ramp = is.then_some(ClockRamp { pct: 20.0, sm_mhz: 600.0 });
        stage.vitals = Some(StageVitals { sm_mhz: Some(1980.0), ramp, ..StageVitals::default() });
        run(stage, evidence)
    }),
    ("stretched-kernels", |is| {
        let (stage, mut evidence) = busy();
        let shortest_ns = if is { 6_000 } else { 60_000 };
        let slow = ShapeUse { shortest_ns, family: Family::Elementwise, ..shape("add", 1000, 98 * MS) };
        evidence.shapes = vec![slow];
        run(stage, evidence)
    }),
    ("other-tenant", |is| limited(0.0, if is { 40.0 } else { 1.0 })),
    ("ncu-*", |is| {
        let (stage, evidence) = busy();
        let mut row = measured(None, CounterRow::default());
        let speedup_pct = is.then_some(20.0);
        row.advice = vec![NcuRule { rule: "CPIStall".into(), speedup_pct, ..NcuRule::default() }];
        run_counted(stage, &evidence, &[row])
    }),
    ("step-tail", |is| {
        let (stage, evidence) = busy();
        run(if is { with_tail(stage) } else { stage }, evidence)
    }),
    ("gaps-between-steps", |is| {
        served_with(|analysis| analysis.stages[0].between_ns = if is { 500 * MS } else { 0 })
    }),
    ("latency-outside-steps", |is| {
        let itl = if is { 15 * MS } else { 10 * MS };
        served_with(|analysis| analysis.requests.as_mut().unwrap().itl_ns = percentiles(itl, 18 * MS))
    }),
    ("decode-starved", |is| {
        let step = if is { 30 * MS } else { 11 * MS };
        served_with(|analysis| {
            analysis.stages.push(engine_stage("mixed", StageKind::Mixed, vec![step; 10], 80));
        })
    }),
    ("kv-cache-full", |is| {
        let preempted = if is { 16.0 } else { 0.0 };
        served_with(|analysis| {
            let requests = analysis.requests.as_mut().unwrap();
            requests.metrics.insert("vllm:num_preemptions_total".into(), preempted);
        })
    }),
    ("batch-too-small", |is| {
        let flops = if is { 1e14 } else { 9e14 };
        served_with(|analysis| {
            let stage = &mut analysis.stages[0];
            stage.mfu = Some(Mfu { flops, peak_flops_per_s: 1e15, ..Mfu::default() });
            stage.mbu = Some(Mbu { bytes: 4e12, bandwidth_bytes_per_s: 4e12, ..Mbu::default() });
        })
    }),
    ("graphs-not-used", |is| {
        let eager = if is { 0 } else { 40 };
        served_with(|analysis| {
            let batches =
                vec![batch(8, 60, 60, 0), batch(9, 40, eager, if eager > 0 { 0 } else { 200 * MS })];
            analysis.serving = Some(Serving { batches, ..Serving::default() });
        })
    }),
    ("profiler-overhead", |is| {
        let (stage, evidence) = busy();
        let mut analysis = analysis(stage);
        let ratio = if is { 1.6 } else { 1.1 };
        let (tool, stage) = (Profiler::Nsys, "decode".into());
        analysis.overhead =
            vec![Overhead { tool, stage, ratio, interval: None, pairs: None, of_runs: None, stated: false }];
        analysis.sources = vec![SourceInfo { format: "nsys-sqlite".into(), ..SourceInfo::default() }];
        findings(&analysis, &[evidence])
    }),
    ("experts-one-by-one", |is| {
        let (mut stage, evidence) = launches();
        stage.steps = Some(Steps { count: 4, ..Steps::default() });
        (stage.launch_count, stage.kernels[0].calls) = (1200, 1200);
        let model = crate::model::preset(if is { "deepseek_ocr" } else { "llama3_8b" }).unwrap();
        let (analysis, evidence) = (analysis(stage), [evidence]);
        find(Inputs {
            analysis: &analysis,
            evidence: &evidence,
            model: Some(&model),
            counters: &[],
            engine: None,
        })
    }),
];
