use super::*;
use crate::findings::evidence::{ChainUse, CommunicationUse, CopyUse, ShapeUse, SyncUse};
use crate::names::Family;
use crate::result::*;
use roofgap_trace::OpKind;

pub(super) const MS: i64 = 1_000_000;

/// 100 ms of wall, the GPU busy all the time with one stream of large kernels: nothing to find.
pub(super) fn busy() -> (Stage, StageEvidence) {
    let stage = Stage {
        name: "decode".into(),
        instances: 1,
        wall_ns: 100 * MS,
        projected_ns: Some(99 * MS),
        kernel_ns: Some(98 * MS),
        busy_ns: Some(98 * MS),
        kernel_count: 1000,
        launch_count: 1000,
        idle: Some(Idle { launch_ns: MS, ..Idle::default() }),
        kernels: vec![kernel("big_gemm", "gemm", 98 * MS)],
        ..Stage::default()
    };
    let evidence = StageEvidence {
        stage: "decode".into(),
        shapes: vec![shape("big_gemm", 1000, 98 * MS)],
        ..StageEvidence::default()
    };
    (stage, evidence)
}

pub(super) fn kernel(name: &str, family: &str, total_ns: i64) -> Kernel {
    Kernel {
        name: name.into(),
        short_name: name.into(),
        family: Family::named(family).unwrap(),
        total_ns,
        calls: 1000,
        ..Kernel::default()
    }
}

pub(super) fn shape(name: &str, blocks: u64, total_ns: i64) -> ShapeUse {
    ShapeUse {
        name: name.into(),
        family: Family::Gemm,
        sms: Some(132),
        compute_capability: Some((9, 0)),
        blocks,
        threads: 384,
        registers: 168,
        shared_bytes: 1024,
        calls: 1000,
        total_ns,
        ..ShapeUse::default()
    }
}

pub(super) fn analysis(stage: Stage) -> Analysis {
    let device = DeviceInfo { name: Some("NVIDIA H200".into()), ..DeviceInfo::default() };
    Analysis { stages: vec![stage], devices: vec![device], ..Analysis::default() }
}

pub(super) fn run(stage: Stage, evidence: StageEvidence) -> Vec<Finding> {
    findings(&analysis(stage), &[evidence])
}

#[test]
fn a_busy_stage_has_no_finding() {
    let (stage, evidence) = busy();
    assert_eq!(ids(&run(stage, evidence)), Vec::<&str>::new());
}

#[test]
fn nothing_is_found_without_data() {
    let stage = Stage { name: "decode".into(), wall_ns: 100 * MS, ..Stage::default() };
    assert_eq!(ids(&findings(&analysis(stage), &[])), Vec::<&str>::new());
    assert_eq!(ids(&findings(&Analysis::default(), &[])), Vec::<&str>::new());
}

#[test]
fn gaps_for_launches() {
    let (mut stage, evidence) = busy();
    stage.busy_ns = Some(30 * MS);
    stage.kernel_ns = Some(30 * MS);
    stage.idle = Some(Idle { launch_ns: 60 * MS, sync_ns: 5 * MS, ..Idle::default() });
    stage.steps = Some(Steps { count: 10, ..Steps::default() });
    let mut served = analysis(stage.clone());
    served.engine = Some(EngineInfo { name: "vLLM".into(), ..EngineInfo::default() });
    let with_engine = findings(&served, std::slice::from_ref(&evidence));
    let action = &one(&with_engine, "launch-bound").action;
    assert!(action.contains("leave out --enforce-eager") && !action.contains("torch"), "{action}");
    // What is compiled is not eager.
    served.kernels = vec![kernel("triton_poi_fused_add_3", "elementwise", 30 * MS)];
    served.stages[0].kernels = served.kernels.clone();
    let action = one(&findings(&served, std::slice::from_ref(&evidence)), "launch-bound").action.clone();
    assert!(!action.contains("--enforce-eager") && !action.contains("only move or combine"), "{action}");
    assert!(action.contains("capture graphs for them too (--max-cudagraph-capture-size"), "{action}");
    let mut waits = evidence.clone();
    waits.syncs.inside = 70;
    let own = findings(&analysis(stage.clone()), &[waits]);
    let action = &one(&own, "launch-bound").action;
    assert!(action.contains("CUDA graph") && action.contains("cannot hold the 7 waits"), "{action}");
    let mut torch = analysis(stage);
    torch.operators = vec![Operator { name: "aten::mm".into(), ..Operator::default() }];
    let all = findings(&torch, &[evidence]);
    let found = one(&all, "launch-bound");
    assert!(found.action.contains("torch.compile"), "{}", found.action);
    assert_eq!((found.bound_ns, found.bound_pct), (60 * MS, 60.0));
    assert_eq!(found.evidence["launches_per_step"], 100.0);
    assert_eq!(found.evidence["mean_kernel_ns"], 30_000.0);
    assert!(found.action.contains("40.0 ms"), "{}", found.action);
}

#[test]
fn waits_inside_a_step() {
    let (mut stage, mut evidence) = busy();
    stage.busy_ns = Some(40 * MS);
    stage.idle = Some(Idle { launch_ns: 10 * MS, sync_ns: 45 * MS, ..Idle::default() });
    stage.steps = Some(Steps { count: 10, ..Steps::default() });
    evidence.syncs =
        SyncUse { count: 31, inside: 30, ns: 50 * MS, most_common: Some("cudaStreamSynchronize".into()) };
    let all = run(stage.clone(), evidence.clone());
    let found = one(&all, "sync-in-step");
    assert_eq!(found.bound_ns, 45 * MS);
    assert_eq!(found.evidence["sync_calls_per_step"], 3.0);
    assert!(!ids(&all).contains(&"launch-bound"), "the waits are the larger cause");
    // One wait at the end of the stage is no finding.
    evidence.syncs.inside = 0;
    assert!(!ids(&run(stage.clone(), evidence.clone())).contains(&"sync-in-step"));
    // In a whole trace a wait for each kernel is told from 10 % on, another from 20 % on.
    stage = Stage { kind: StageKind::Whole, busy_ns: Some(85 * MS), steps: None, ..stage };
    stage.idle = Some(Idle { sync_ns: 15 * MS, ..Idle::default() });
    let mut told = |inside: u64| {
        evidence.syncs.inside = inside;
        ids(&run(stage.clone(), evidence.clone())).contains(&"sync-in-step")
    };
    assert_eq!((told(501), told(500)), (true, false));
    // Directives wait at the end of each construct.
    evidence.syncs.inside = 501;
    let told = |kernels: &str| {
        let kernels = vec![kernel(kernels, "other", 85 * MS)];
        let analysis = Analysis { kernels, ..analysis(stage.clone()) };
        one(&findings(&analysis, std::slice::from_ref(&evidence)), "sync-in-step").action.clone()
    };
    for name in ["main_42_gpu", "nvkernel__Z3addPd_F1L12_2", "__omp_offloading_fd00_main_l9"] {
        assert!(told(name).contains("`async`"), "{name}");
    }
    assert!(!told("render_gpu").contains("`async`"));
}

#[test]
fn pageable_copies() {
    let (mut stage, mut evidence) = busy();
    stage.idle = Some(Idle { copy_ns: 5 * MS, ..Idle::default() });
    evidence.host_copies = CopyUse {
        count: 20,
        pageable: 8,
        to_host: 8,
        streams: 1,
        bytes: 4096,
        pageable_bytes: 4000,
        ns: 2 * MS,
        exposed_ns: MS,
    };
    let all = run(stage.clone(), evidence.clone());
    let found = one(&all, "host-copies");
    assert_eq!(found.bound_ns, 6 * MS);
    assert!(found.action.contains("pinned"));
    // In less than a millisecond they must be a fifth of the time.
    let mut short = evidence.clone();
    (short.host_copies.exposed_ns, short.host_copies.ns) = (50_000, 50_000);
    let told = |copy_ns: i64| {
        let idle = Some(Idle { copy_ns, ..Idle::default() });
        let brief = Stage {
            wall_ns: 900_000,
            projected_ns: Some(900_000),
            busy_ns: Some(700_000),
            idle,
            gpu_op_count: 99,
            ..stage.clone()
        };
        ids(&run(brief, short.clone())).contains(&"host-copies")
    };
    assert_eq!((told(120_000), told(140_000)), (false, true));
    evidence.host_copies.count = 2_036;
    evidence.host_copies.pageable = 2_034;
    let title = one(&run(stage.clone(), evidence.clone()), "host-copies").title.clone();
    assert!(title.contains("2,036 times") && title.contains("2,034 of them"), "{title}");
    evidence.host_copies.count = 20;
    // A few pinned copies are how it should be; one for each step is not.
    (evidence.host_copies.pageable, evidence.host_copies.pageable_bytes) = (0, 0);
    assert!(!ids(&run(stage.clone(), evidence.clone())).contains(&"host-copies"));
    stage.steps = Some(Steps { count: 10, ..Steps::default() });
    let action = |stage: Stage| one(&run(stage, evidence.clone()), "host-copies").action.clone();
    assert!(action(stage.clone()).contains("pinned already"));
    assert!(action(Stage { kind: StageKind::Decode, ..stage }).contains("out of the step"));
}

#[test]
fn pinned_copies_that_take_much_of_the_time() {
    let (mut stage, mut evidence) = busy();
    stage.idle = Some(Idle::default());
    evidence.host_copies = CopyUse {
        count: 2,
        pageable: 0,
        to_host: 0,
        streams: 1,
        bytes: 1 << 30,
        pageable_bytes: 0,
        ns: 60 * MS,
        exposed_ns: 50 * MS,
    };
    let all = run(stage.clone(), evidence.clone());
    let found = one(&all, "host-copies");
    assert_eq!(found.bound_ns, 50 * MS);
    assert!(found.action.contains("copies overlap"), "{}", found.action);
    // The link needs 70 of 100 ms for one direction, and carries the other beside it.
    let to_device = CopyRow {
        kind: CopyKind::HostToDevice,
        total_ns: 80 * MS,
        bytes: Some(7_000_000),
        ..CopyRow::default()
    };
    let at_peak = CopyRow { peak_bytes_per_s: Some(1e8), ..to_device };
    let linked = Stage { copies: vec![at_peak], device_count: 1, kind: StageKind::Whole, ..stage.clone() };
    assert_eq!(one(&run(linked, evidence.clone()), "host-copies").bound_ns, 30 * MS);
    // One pageable copy among many pinned ones is not what takes the time.
    evidence.host_copies.count = 100;
    evidence.host_copies.pageable = 1;
    let action =
        |evidence: &StageEvidence| one(&run(stage.clone(), evidence.clone()), "host-copies").action.clone();
    assert!(action(&evidence).contains("pinned already"));
    let flags = CopyUse { to_host: 90, bytes: 400, ..evidence.host_copies };
    assert!(
        action(&StageEvidence { host_copies: flags, ..evidence.clone() }).contains("Decide on the device")
    );
    evidence.host_copies.streams = 4;
    assert!(action(&evidence).contains("on several streams, yet they take turns"));
}

/// The same delay after each of many waits is no other program on the GPU.
#[test]
fn work_that_starts_late_after_each_wait() {
    let action = |waits: u64| {
        let (mut stage, mut evidence) = busy();
        (stage.busy_ns, stage.kernel_ns) = (Some(40 * MS), Some(40 * MS));
        stage.idle = Some(Idle { other_ns: 60 * MS, ..Idle::default() });
        stage.idle_detail.after_launch_ns = 60 * MS;
        evidence.syncs.count = waits;
        one(&run(stage, evidence), "late-start").action.clone()
    };
    assert!(action(300).contains("Wait less often") && action(10).starts_with("Record the program alone"));
}

#[test]
fn kernels_too_small_for_the_device() {
    let (stage, mut evidence) = busy();
    evidence.shapes = vec![shape("big_gemm", 1000, 58 * MS), shape("little", 33, 40 * MS)];
    let all = run(stage, evidence);
    let found = one(&all, "small-kernels");
    // Three quarters of the device are empty for 40 ms.
    assert_eq!(found.bound_ns, 30 * MS);
    assert_eq!(found.evidence["largest_blocks"], 33);
    assert!(found.title.ends_with(": 41 % of kernel time"), "{}", found.title);
}

/// 66 blocks of 128 threads: half of the multiprocessors have one of the 16 blocks that they could hold.
#[test]
fn a_long_kernel_could_have_all_the_warps_that_the_device_holds() {
    let (stage, mut evidence) = busy();
    let narrow =
        ShapeUse { threads: 128, registers: 32, shared_bytes: 0, calls: 1, ..shape("long", 66, 64 * MS) };
    evidence.shapes = vec![narrow];
    let bound =
        |evidence: &StageEvidence| one(&run(stage.clone(), evidence.clone()), "small-kernels").bound_ns;
    assert_eq!(bound(&evidence), 62 * MS);
    // Latency is most of a short one.
    evidence.shapes[0].calls = 2_000;
    assert_eq!(bound(&evidence), 32 * MS);
    (evidence.shapes[0].calls, evidence.shapes[0].blocks) = (1, 121);
    assert!(bound(&evidence) < 6 * MS, "nearly each multiprocessor has a block");
    (evidence.shapes[0].compute_capability, evidence.shapes[0].blocks) = (None, 66);
    assert_eq!(bound(&evidence), 32 * MS, "nothing is known of the device");
}

#[test]
fn a_kernel_does_not_get_shorter_than_the_shortest() {
    let (stage, mut evidence) = busy();
    // 33 of 132 multiprocessors, in launches of 4 and of 40 us.
    for (calls, bound_ns) in [(10_000, 10 * MS), (1_000, 30 * MS)] {
        let small = ShapeUse { calls, ..shape("little", 33, 40 * MS) };
        evidence.shapes = vec![shape("big_gemm", 1000, 58 * MS), small];
        assert_eq!(one(&run(stage.clone(), evidence.clone()), "small-kernels").bound_ns, bound_ns);
    }
}

#[test]
fn small_kernels_beside_others_leave_nothing_unused() {
    let (stage, mut evidence) = busy();
    let mut little = shape("little", 33, 60 * MS);
    little.shared_ns = 20 * MS;
    evidence.shapes = vec![shape("big_gemm", 1000, 38 * MS), little.clone()];
    let all = run(stage.clone(), evidence.clone());
    let found = one(&all, "small-kernels");
    assert_eq!(found.bound_ns, 30 * MS);
    assert_eq!(found.evidence["small_kernel_ns"], 40 * MS);
    assert!(found.title.ends_with("alone on the GPU for 41 % of kernel time"), "{}", found.title);
    little.shared_ns = 59 * MS;
    evidence.shapes[1] = little;
    assert!(!ids(&run(stage, evidence)).contains(&"small-kernels"));
}

#[test]
fn memory_by_the_model_where_there_are_no_counters() {
    let (mut stage, evidence) = busy();
    stage.steps = Some(Steps { count: 10, ..Steps::default() });
    stage.mbu = Some(Mbu { by_busy_pct: Some(80.0), bytes: 1e9, ..Mbu::default() });
    let all = run(stage.clone(), evidence.clone());
    assert_eq!(ids(&all), ["memory-at-roof"]);
    assert!(all[0].title.contains("is memory-bound: while busy"), "{}", all[0].title);
    stage.mbu = Some(Mbu { by_busy_pct: Some(25.0), bytes: 1e9, floor_step_ns: Some(5), ..Mbu::default() });
    let all = run(stage.clone(), evidence.clone());
    assert_eq!(ids(&all), ["memory-below-roof"]);
    assert_eq!(all[0].evidence["floor_step_ns"], 5);
    // Its arithmetic takes longer than its bytes: better access to memory gains nothing.
    stage.mfu = Some(Mfu { by_wall_pct: 64.0, ..Mfu::default() });
    assert_eq!(ids(&run(stage.clone(), evidence.clone())), Vec::<&str>::new());
    stage.mfu = None;
    // A GPU that is mostly idle is not memory-bound, whatever its bandwidth does.
    stage.busy_ns = Some(10 * MS);
    assert!(!ids(&run(stage, evidence)).iter().any(|id| id.starts_with("memory")));
}

#[test]
fn matrix_products_on_cuda_cores() {
    let (mut stage, evidence) = busy();
    stage.kernels = vec![kernel("ampere_sgemm_128x64_tn", "gemm", 60 * MS)];
    let all = run(stage.clone(), evidence.clone());
    let found = one(&all, "tensor-cores-idle");
    // 494.7 against 66.9 TFLOP/s on an H200.
    assert_eq!(found.bound_ns / MS, 51);
    // GeForce does TF32 as fast as fp32, and bf16 twice as fast.
    let mut geforce = analysis(stage.clone());
    geforce.devices[0].name = Some("NVIDIA GeForce RTX 4090".into());
    geforce.devices[0].memory_bytes = None;
    let all = findings(&geforce, std::slice::from_ref(&evidence));
    let found = one(&all, "tensor-cores-idle");
    assert_eq!(found.bound_ns / MS, 30);
    assert!(found.action.contains("bf16 2.0 times as fast"), "{}", found.action);
    // Launches of a few blocks leave most of the GPU unused.
    let mut few = evidence.clone();
    few.shapes = vec![shape("ampere_sgemm_128x64_tn", 65, 60 * MS)];
    assert!(!ids(&run(stage.clone(), few.clone())).contains(&"tensor-cores-idle"));
    few.shapes[0].blocks = 66;
    one(&run(stage.clone(), few), "tensor-cores-idle");
    // Without knowing the device there is no bound, so no finding.
    let mut unknown = analysis(stage);
    unknown.devices[0].name = Some("NVIDIA X900".into());
    assert_eq!(ids(&findings(&unknown, &[evidence])), Vec::<&str>::new());
}

pub(super) fn chains(ns: i64, beyond_longest_ns: i64, gaps_ns: i64) -> ChainUse {
    ChainUse { count: 100, kernels: 700, ns, beyond_longest_ns, gaps_ns, longest: 11 }
}

#[test]
fn chains_of_elementwise_kernels() {
    let (stage, mut evidence) = busy();
    evidence.chains = chains(20 * MS, 13 * MS, MS);
    let all = run(stage, evidence);
    let found = one(&all, "unfused-elementwise");
    assert_eq!(found.bound_ns, 14 * MS);
    let terms: Vec<i64> = found.terms.iter().map(|term| term.ns).collect();
    assert_eq!(terms, [20 * MS, -7 * MS, MS]);
    assert_eq!(found.evidence["longest_chain"], 11);
}

#[test]
fn a_chain_that_unpacks_weights_is_another_remedy() {
    let action = |family: &str| {
        let (mut stage, mut evidence) = busy();
        evidence.chains = chains(20 * MS, 13 * MS, MS);
        stage.kernels.push(kernel("kDequantizeBlockwise", family, 12 * MS));
        one(&run(stage, evidence), "unfused-elementwise").action.clone()
    };
    assert!(action("quantization").contains("low-bit") && !action("elementwise").contains("low-bit"));
}

/// A benchmark repeats one kernel on the same data.
#[test]
fn one_kernel_again_and_again_is_no_chain() {
    let with = |others: u64| {
        let (stage, mut evidence) = busy();
        evidence.chains = ChainUse { kernels: 1000 - others, ..chains(98 * MS, 90 * MS, 0) };
        run(stage, evidence).iter().any(|finding| finding.id == "unfused-elementwise")
    };
    assert!(!with(0) && with(1));
}

#[test]
fn experts_need_a_model_that_has_them() {
    let (mut stage, evidence) = busy();
    stage.steps = Some(Steps { count: 4, ..Steps::default() });
    stage.idle = Some(Idle { launch_ns: 60 * MS, ..Idle::default() });
    stage.launch_count = 1200;
    // 300 products a step: 12 layers of 8, and 11 layers of 6 experts with 3.
    stage.kernels[0].calls = 1200;
    let analysis = analysis(stage);
    let with = |name: Option<&str>| {
        let model = name.map(|name| crate::model::preset(name).unwrap());
        find(Inputs {
            analysis: &analysis,
            evidence: std::slice::from_ref(&evidence),
            model: model.as_ref(),
            counters: &[],
            engine: None,
        })
    };
    let all = with(Some("deepseek_ocr"));
    let found = one(&all, "experts-one-by-one");
    // (198 - 33) launches of 300 would vanish.
    assert_eq!(found.bound_ns, 33 * MS);
    assert!(!ids(&with(None)).contains(&"experts-one-by-one"));
    assert!(!ids(&with(Some("llama3_8b"))).contains(&"experts-one-by-one"));
}

#[test]
fn communication_that_is_not_hidden() {
    let (stage, mut evidence) = busy();
    evidence.communication =
        Some(CommunicationUse { count: 64, ns: 20 * MS, exposed_ns: 15 * MS, hideable_ns: 15 * MS });
    let all = run(stage.clone(), evidence.clone());
    let found = one(&all, "communication-exposed");
    assert_eq!((found.bound_ns, found.evidence["hidden_pct"].as_f64()), (15 * MS, Some(25.0)));
    assert!(found.title.starts_with("15.0 ms of 20.0 ms of"), "{}", found.title);
    assert!(found.action.contains("Or communicate less"), "{}", found.action);
    assert!(found.title.ends_with("waiting for other ranks is unknown"), "{}", found.title);

    // Little of it can hide behind computation, so the first thing is to communicate less.
    evidence.communication =
        Some(CommunicationUse { count: 64, ns: 90 * MS, exposed_ns: 90 * MS - 1, hideable_ns: 8 * MS });
    let all = run(stage.clone(), evidence.clone());
    let found = one(&all, "communication-exposed");
    assert_eq!(found.bound_ns, 90 * MS - 1);
    assert!(found.title.starts_with("the 90.0 ms of"), "{}", found.title);
    assert!(found.action.starts_with("First communicate less"), "{}", found.action);
    assert!(found.action.contains("computation of 8.00 ms to hide it behind"), "{}", found.action);

    // On two devices, title and evidence are both means of them.
    let two = Stage { devices_per_instance: 2.0, ..stage };
    let all = run(two, evidence);
    let found = one(&all, "communication-exposed");
    assert_eq!(found.evidence["communication_ns"], 45 * MS);
    assert!(found.title.starts_with("the 45.0 ms of"), "{}", found.title);
}

#[test]
fn waits_for_other_ranks_are_not_hidden_by_computation() {
    let (stage, mut evidence) = busy();
    evidence.communication =
        Some(CommunicationUse { count: 64, ns: 60 * MS, exposed_ns: 60 * MS, hideable_ns: 38 * MS });
    let with = |waited: Option<i64>| {
        let mut analysis = analysis(stage.clone());
        analysis.findings = run(stage.clone(), evidence.clone());
        let waited = waited.map(|ns| ("decode".to_owned(), ns));
        add_of_job(&mut analysis, &waited.into_iter().collect());
        analysis.findings
    };
    assert_eq!(one(&with(None), "communication-exposed").bound_ns, 60 * MS);
    let all = with(Some(50 * MS));
    let found = one(&all, "communication-exposed");
    assert_eq!((found.bound_ns, &found.evidence["waited_ns"]), (10 * MS, &(50 * MS).into()));
    assert!(found.title.ends_with("; 50.0 ms of that are waits for other ranks"), "{}", found.title);
    assert!(found.action.contains("ranks that are late"), "{}", found.action);
    let none = with(Some(0));
    assert_eq!(one(&none, "communication-exposed").bound_ns, 60 * MS);
    assert!(one(&none, "communication-exposed").title.ends_with("no rank waits for another"));
    // All of it is waiting: overlap gains nothing.
    assert!(!ids(&with(Some(60 * MS))).contains(&"communication-exposed"));
}

/// A stage of 15 steps of which some took up to 25 ms for 5.
pub(super) fn with_tail(stage: Stage) -> Stage {
    let tail = Tail { units: 2, beyond_ns: 20 * MS, slowest: 4, slowest_ns: 25 * MS, expected_ns: 5 * MS };
    let steady = Steady {
        unit: SteadyUnit::Step,
        count: 15,
        time_ns: 5 * MS,
        median_ns: 5 * MS,
        spread_ns: 0,
        unprofiled_ns: None,
        tail: Some(tail),
    };
    Stage { steady: Some(steady), ..stage }
}

#[test]
fn a_long_tail_of_steps() {
    let (stage, evidence) = busy();
    let mut stage = with_tail(stage);
    let all = run(stage.clone(), evidence.clone());
    let found = one(&all, "step-tail");
    assert_eq!((found.bound_ns, found.evidence["slowest_step"].as_u64()), (20 * MS, Some(4)));
    let with_chains = StageEvidence { chains: chains(20 * MS, 13 * MS, MS), ..evidence.clone() };
    let all = |stage: &Stage| run(stage.clone(), with_chains.clone());
    let leads = |stage: &Stage| ids(&all(stage)).first() == Some(&"step-tail");
    assert!(leads(&stage));
    stage.steady.as_mut().unwrap().tail.as_mut().unwrap().units = 1;
    assert_eq!(ids(&all(&stage)).last(), Some(&"step-tail"), "one step that nothing explains");
    let spike = Spike {
        step: 4,
        start_ns: None,
        unix_ns: None,
        time_ns: 25 * MS,
        expected_ns: 5 * MS,
        cause: SpikeCause::GarbageCollection,
        evidence_ns: 20 * MS,
        what: None,
        missing: None,
    };
    stage.spikes = vec![spike];
    assert!(leads(&stage), "one step with a cause");
    stage.steady.as_mut().unwrap().count = 5;
    assert!(!ids(&all(&stage)).contains(&"step-tail"), "too few steps to have a tail");
}

/// Code is loaded in the only instance: that is said, and not that launches are slow.
#[test]
fn a_cold_stage_is_not_launch_bound() {
    let (mut stage, evidence) = busy();
    (stage.busy_ns, stage.kernel_ns) = (Some(10 * MS), Some(10 * MS));
    stage.idle = Some(Idle { launch_ns: 80 * MS, ..Idle::default() });
    stage.idle_detail.cold_ns = 75 * MS;
    let all = run(stage.clone(), evidence.clone());
    assert_eq!((ids(&all), all[0].bound_ns), (vec!["cold-start"], 75 * MS));
    stage.idle_detail.cold_ns = MS;
    assert_eq!(ids(&run(stage, evidence)), ["launch-bound"]);
}

#[test]
fn watching_that_costs_too_much() {
    let (stage, evidence) = busy();
    let stage = with_tail(stage);
    let mut analysis = analysis(stage);
    let (tool, interval) = (Profiler::Nsys, None);
    let nsys = |ratio| Overhead {
        tool,
        stage: "decode".into(),
        ratio,
        interval,
        pairs: None,
        of_runs: None,
        stated: false,
    };
    let source = |format: &str| SourceInfo { format: format.into(), ..SourceInfo::default() };
    analysis.overhead = vec![nsys(1.6)];
    analysis.sources = vec![source("native")];
    assert_eq!(
        ids(&findings(&analysis, std::slice::from_ref(&evidence))),
        ["step-tail"],
        "the times are those of the native collector"
    );
    analysis.sources = vec![source("nsys-sqlite")];
    let all = findings(&analysis, std::slice::from_ref(&evidence));
    assert_eq!(one(&all, "profiler-overhead").bound_ns, 37_500_000);
    assert_eq!(
        ids(&all),
        ["step-tail", "profiler-overhead"],
        "what can be fixed in the program comes first, though its bound of 20 ms is less"
    );
    analysis.overhead = vec![nsys(1.2)];
    assert_eq!(ids(&findings(&analysis, std::slice::from_ref(&evidence))), ["step-tail"]);
    analysis.overhead = vec![nsys(1.6)];
    analysis.stages[0].from = StageOrigin::Workload;
    assert!(
        !ids(&findings(&analysis, &[evidence])).contains(&"profiler-overhead"),
        "the program's own times are not those of a timeline"
    );
}

#[test]
fn findings_are_ranked_by_what_they_save() {
    let (mut stage, mut evidence) = busy();
    stage.busy_ns = Some(60 * MS);
    stage.idle = Some(Idle { launch_ns: 30 * MS, ..Idle::default() });
    evidence.chains = chains(9 * MS, 8 * MS, 0);
    evidence.communication =
        Some(CommunicationUse { count: 9, ns: 12 * MS, exposed_ns: 12 * MS, hideable_ns: 12 * MS });
    assert_eq!(ids(&run(stage, evidence)), ["launch-bound", "communication-exposed", "unfused-elementwise"]);
}

/// One cause has one finding to act on, the more specific one where both save about as much.
#[test]
fn findings_of_one_cause_are_part_of_the_first() {
    let (mut stage, evidence) = busy();
    stage.steps = Some(Steps { count: 4, ..Steps::default() });
    stage.idle = Some(Idle { launch_ns: 60 * MS, ..Idle::default() });
    (stage.busy_ns, stage.kernel_ns, stage.launch_count) = (Some(40 * MS), Some(40 * MS), 1200);
    stage.kernels[0].calls = 1200;
    let model = crate::model::preset("deepseek_ocr").unwrap();
    let all = find(Inputs {
        analysis: &analysis(stage),
        evidence: std::slice::from_ref(&evidence),
        model: Some(&model),
        counters: &[],
        engine: None,
    });
    let parts: Vec<_> = all.iter().map(|found| (found.id.as_str(), found.part_of.as_deref())).collect();
    assert_eq!(parts, [("launch-bound", None), ("experts-one-by-one", Some("launch-bound"))]);
    assert_eq!(to_act_on(&all).len(), 1);
}

/// The same rule in another stage is one thing to do.
#[test]
fn a_rule_is_listed_once_for_all_stages() {
    let (mut decode, evidence) = busy();
    (decode.busy_ns, decode.kernel_ns) = (Some(30 * MS), Some(30 * MS));
    decode.idle = Some(Idle { launch_ns: 60 * MS, ..Idle::default() });
    let prefill = Stage { name: "prefill".into(), ..decode.clone() };
    let mut both = analysis(decode);
    both.stages.push(prefill);
    let mut all = findings(&both, &[evidence]);
    assert_eq!(ids(&all), ["launch-bound", "launch-bound"]);
    all[1].action = all[0].action.replace('1', "2");
    let listed = to_act_on(&all);
    assert_eq!((listed.len(), listed[0].1.len()), (1, 1));
    // Another action is another thing to do.
    all[1].action.push_str(" Or wait");
    assert_eq!(to_act_on(&all).len(), 2);
}

#[test]
fn attention_in_separate_kernels() {
    let (stage, mut evidence) = busy();
    evidence.attention = chains(50 * MS, 30 * MS, 0);
    let mut eager = analysis(stage);
    let action = |analysis: &Analysis| {
        one(&findings(analysis, std::slice::from_ref(&evidence)), "unfused-attention").action.clone()
    };
    assert!(action(&eager).contains("FlashAttention 2"));
    eager.devices[0].compute_capability = Some("9.0".into());
    eager.operators = vec![Operator { name: "aten::bmm".into(), ..Operator::default() }];
    let hopper = action(&eager);
    assert!(
        hopper.contains("scaled_dot_product_attention") && hopper.contains("FlashAttention 3"),
        "{hopper}"
    );
    assert_eq!(
        one(&findings(&eager, std::slice::from_ref(&evidence)), "unfused-attention").bound_ns,
        30 * MS
    );
}

/// The CPU works before and after the GPU for a third of the stage.
#[test]
fn work_of_the_cpu_at_the_edges() {
    let (mut stage, evidence) = busy();
    stage.projected_ns = Some(66 * MS);
    (stage.busy_ns, stage.kernel_ns) = (Some(65 * MS), Some(65 * MS));
    let all = run(stage.clone(), evidence.clone());
    assert_eq!((ids(&all), all[0].bound_ns), (vec!["host-outside"], 34 * MS));
    stage.projected_ns = Some(90 * MS);
    assert_eq!(ids(&run(stage, evidence)), Vec::<&str>::new());
}

/// Advice that fits the program: its framework, whether it trains, and whether it is compiled.
#[test]
fn launches_of_other_programs() {
    let (mut stage, evidence) = busy();
    (stage.busy_ns, stage.kernel_ns) = (Some(30 * MS), Some(30 * MS));
    stage.idle = Some(Idle { launch_ns: 60 * MS, ..Idle::default() });
    stage.steps = Some(Steps { count: 10, launches_per_step: Some(80.0), ..Steps::default() });
    let action = |operators: &[&str], stage: &Stage| {
        let mut program = analysis(stage.clone());
        let operator = |name: &&str| Operator {
            name: (*name).to_owned(),
            total_gpu_ns: Some(5 * MS),
            ..Operator::default()
        };
        program.operators = operators.iter().map(operator).collect();
        let all = findings(&program, std::slice::from_ref(&evidence));
        let found = one(&all, "launch-bound");
        assert!(found.title.ends_with("for 1,000 launches, 80 a step"), "{}", found.title);
        found.action.clone()
    };
    let plain = action(&[], &stage);
    assert!(!plain.contains("torch") && plain.contains("cudaStreamBeginCapture"), "{plain}");
    let training = action(&["aten::mm", "autograd::engine::evaluate_function: MmBackward0"], &stage);
    assert!(training.contains("fused=True") && !training.contains("static cache"), "{training}");
    let compiled = action(&["aten::mm", "Torch-Compiled Region: 0/0"], &stage);
    assert!(compiled.contains("is compiled") && !compiled.contains("torch.compile with"), "{compiled}");
    // Kernels of 30 µs hide a launch, those of 5 µs do not.
    assert!(!plain.contains("too short") && plain.contains("the CPU launches one every 100 µs"), "{plain}");
    (stage.busy_ns, stage.kernel_ns) = (Some(5 * MS), Some(5 * MS));
    assert!(action(&[], &stage).contains("too short to hide a launch each"));
}

/// A gap that follows a wait is not one of the launches, and no part is larger than the whole.
#[test]
fn one_gap_is_at_most_all_of_them() {
    let (mut stage, mut evidence) = busy();
    (stage.busy_ns, stage.kernel_ns) = (Some(30 * MS), Some(30 * MS));
    stage.idle = Some(Idle { launch_ns: 65 * MS, ..Idle::default() });
    stage.launch_after.sync_ns = 30 * MS;
    let gap = |ns| LaunchGap { ns, kind: OpKind::Kernel, name: "big_gemm".into() };
    evidence.longest_launch_gap = Some(gap(40 * MS));
    let all = run(stage.clone(), evidence.clone());
    assert!(!one(&all, "launch-bound").action.contains("one gap"), "{}", all[0].action);
    evidence.longest_launch_gap = Some(gap(20 * MS));
    let all = run(stage, evidence);
    assert!(
        one(&all, "launch-bound").action.contains("20.0 ms there is 57 % of this time"),
        "{}",
        all[0].action
    );
}

/// No bound leaves a stage less time than its highest roof.
#[test]
fn bounds_stop_at_the_highest_roof() {
    let (mut stage, mut evidence) = busy();
    evidence.communication =
        Some(CommunicationUse { count: 4, ns: 60 * MS, exposed_ns: 60 * MS, hideable_ns: 30 * MS });
    let bound = |stage: &Stage, evidence: &StageEvidence, rows: &[CommunicationRow]| {
        let mut analysis = analysis(stage.clone());
        analysis.communication = rows.to_vec();
        let all = findings(&analysis, std::slice::from_ref(evidence));
        let found = one(&all, "communication-exposed");
        assert_eq!(found.terms.iter().map(|term| term.ns).sum::<i64>(), found.bound_ns);
        (found.bound_ns, found.terms.last().unwrap().what.clone())
    };
    assert_eq!(bound(&stage, &evidence, &[]).0, 60 * MS);
    // Its messages at the peak of the link take 75 % of the time that they took.
    let row = CommunicationRow {
        on: "gpu".into(),
        calls: 4,
        total_ns: 60 * MS,
        peak_pct: Some(75.0),
        ..CommunicationRow::default()
    };
    assert_eq!(
        bound(&stage, &evidence, std::slice::from_ref(&row)),
        (55 * MS, "not below the communication roof".into())
    );
    stage.mfu = Some(Mfu { by_wall_pct: 70.0, ..Mfu::default() });
    assert_eq!(bound(&stage, &evidence, &[row]), (30 * MS, "not below the compute roof".into()));
}
