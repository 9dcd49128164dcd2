use super::*;
use crate::names::Family;
use crate::result::*;
use roofgap_base::exit::Exit;

fn kernel(name: &str, total_ns: i64, calls: u64) -> Kernel {
    let mean_ns = total_ns / calls as i64;
    Kernel {
        name: name.into(),
        short_name: name.into(),
        family: Family::Gemm,
        device: Some(0),
        total_ns,
        calls,
        mean_ns,
        median_ns: Some(mean_ns),
        min_ns: Some(mean_ns - mean_ns / 50),
        max_ns: Some(mean_ns + mean_ns / 50),
        ..Kernel::default()
    }
}

/// Two instances of a decode: 100 µs each, of which kernels take 60, copies 5 and idle 30.
fn analysis() -> Analysis {
    Analysis {
        schema: SCHEMA.into(),
        devices: vec![DeviceInfo { name: Some("NVIDIA H200".into()), ..DeviceInfo::default() }],
        stages: vec![Stage {
            name: "decode".into(),
            instances: 2,
            wall_ns: 200_001,
            projected_ns: Some(190_000),
            kernel_ns: Some(120_000),
            busy_ns: Some(130_000),
            kernel_count: 40,
            launch_count: 44,
            idle: Some(Idle { launch_ns: 40_000, sync_ns: 20_000, ..Idle::default() }),
            steps: crate::timeline::step_summary(
                vec![24_990, 25_010, 25_000, 25_005, 24_995, 25_000, 25_002, 24_998],
                Some(5.5),
            ),
            kernels: vec![kernel("gemm_64x8", 90_000, 20), kernel("sort_up", 30_000, 20)],
            from: Default::default(),
            ..Stage::default()
        }],
        workload: Some(WorkloadInfo {
            model: Some("m".into()),
            prompt_tokens: Some(8),
            ..WorkloadInfo::default()
        }),
        ..Analysis::default()
    }
}

/// Tells whether any change is beyond the noise.
fn has_changed(stage: &StageChange) -> bool {
    let is_real = |judgement| matches!(judgement, Judgement::Better | Judgement::Worse);
    stage.numbers.values().any(|change| is_real(change.judgement))
        || stage.kernels.iter().any(|kernel| kernel.status != KernelStatus::Same)
}

fn run(base: &Analysis, head: &Analysis, gates: &str) -> Comparison {
    let facts = SideFacts::default();
    let side = |analysis| Side { analysis, facts: &facts };
    let gates = if gates.is_empty() { Vec::new() } else { Gate::parse_list(gates).unwrap() };
    let comparison = compare(side(base), side(head), &gates);
    for stage in &comparison.stages {
        let sum: i64 = stage.parts.iter().map(|part| part.delta_ns).sum();
        assert_eq!(Some(sum as f64), stage.number("wall_ns").delta);
    }
    let json = serde_json::to_string(&comparison).unwrap();
    let again: Comparison = serde_json::from_str(&json).unwrap();
    assert_eq!((again.stages.len(), again.verdict()), (comparison.stages.len(), comparison.verdict()));
    comparison
}

#[test]
fn another_clock_is_named_once() {
    let at = |mhz: f64| {
        let mut own = analysis();
        own.stages[0].vitals = Some(StageVitals { sm_mhz: Some(mhz), ..StageVitals::default() });
        own
    };
    let comparison = run(&at(1980.0), &at(1575.0), "");
    let [difference] = comparison.differences.as_slice() else { panic!("{:?}", comparison.differences) };
    assert_eq!((difference.what.as_str(), difference.weight), ("decode.clock", Weight::Caution));
    assert_eq!(difference.head.as_deref(), Some("1575 MHz"));
    assert!(run(&at(1980.0), &at(1950.0), "").differences.is_empty());
    let [mut fast, mut slow] = [at(1980.0), at(1575.0)];
    for (side, mhz) in [(&mut fast, 1980.0), (&mut slow, 1200.0)] {
        side.stages.push(Stage { name: "prefill".into(), ..at(mhz).stages.remove(0) });
    }
    let what: Vec<String> = run(&fast, &slow, "").differences.into_iter().map(|d| d.what).collect();
    assert_eq!(what, ["prefill.clock"], "the largest");
    assert!(run(&at(1980.0), &analysis(), "").differences.is_empty(), "one side has none");
}

#[test]
fn a_run_and_itself_are_the_same() {
    let comparison = run(&analysis(), &analysis(), "0%,decode.wall=0ns,launches_per_step=0%");
    assert!(comparison.differences.is_empty());
    assert!(!has_changed(&comparison.stages[0]));
    assert!(comparison.stages[0].parts.is_empty());
    assert_eq!(comparison.verdict(), Exit::Done);
}

#[test]
fn different_kernels_have_different_names_in_the_table() {
    let with = |name: &str, calls: u64| {
        let mut analysis = analysis();
        let mut kernel = kernel(name, 900 * calls as i64, calls);
        kernel.short_name = "f".into();
        analysis.stages[0].kernels.push(kernel);
        analysis
    };
    let mut head = with("void f<float>(T1)", 7);
    head.stages[0].kernels[0].short_name = "own".into();
    let comparison = run(&with("void f<half>(T1)", 31), &head, "1%");
    let changes = &comparison.stages[0].kernels;
    let name = |status: KernelStatus| {
        let mut found = changes.iter().filter(|change| change.status == status);
        found.next().map(|change| change.short_name.as_str())
    };
    assert_eq!(name(KernelStatus::Gone), Some("f<half>"));
    assert_eq!(name(KernelStatus::Added), Some("f<float>"));
    assert!(changes.iter().any(|change| change.short_name == "own"), "a name that is distinct stays");
}

#[test]
fn instances_do_not_count_twice() {
    let mut head = analysis();
    let stage = &mut head.stages[0];
    stage.instances = 4;
    stage.wall_ns *= 2;
    stage.projected_ns = stage.projected_ns.map(|ns| ns * 2);
    stage.kernel_ns = stage.kernel_ns.map(|ns| ns * 2);
    stage.busy_ns = stage.busy_ns.map(|ns| ns * 2);
    stage.launch_count *= 2;
    stage.idle = Some(Idle { launch_ns: 80_000, sync_ns: 40_000, ..Idle::default() });
    for kernel in &mut stage.kernels {
        kernel.total_ns *= 2;
        kernel.calls *= 2;
    }
    let each = stage.steps.as_ref().unwrap().each_ns.clone();
    stage.steps = crate::timeline::step_summary([each.clone(), each].concat(), Some(5.5));
    let comparison = run(&analysis(), &head, "1%");
    assert!(!has_changed(&comparison.stages[0]), "{:#?}", comparison.stages[0]);
    let what: Vec<&str> = comparison.differences.iter().map(|d| d.what.as_str()).collect();
    assert_eq!(what, ["decode.instances"]);
    assert_eq!(comparison.basis, Basis::Instance);
    assert_eq!(comparison.verdict(), Exit::Done);
    // The whole trace is twice as long.
    let total = run(&analysis(), &head, "total.kernel=1%");
    assert_eq!(total.verdict(), Exit::Partial);
}

/// The same decode with twice the tokens of a step, a tenth slower.
fn more_tokens() -> (Analysis, Analysis) {
    let side = |tokens: u64, slower: i64| {
        let mut side = analysis();
        let stage = &mut side.stages[0];
        stage.tokens = Some(PhaseCounts { context: Some(0), generation: Some(tokens) });
        stage.wall_ns += stage.wall_ns / 10 * slower;
        stage.token_ns = Some(stage.wall_ns / tokens as i64);
        let each = stage.steps.as_ref().unwrap().each_ns.iter();
        let each = each.map(|ns| ns + ns / 10 * slower).collect();
        stage.steps = crate::timeline::step_summary(each, Some(5.5));
        side
    };
    (side(8, 0), side(16, 1))
}

#[test]
fn different_tokens_compare_by_step_and_token() {
    let (base, head) = more_tokens();
    let comparison = run(&base, &head, "5%,decode.wall=5%");
    assert_eq!(comparison.basis, Basis::StepAndToken);
    assert_eq!(comparison.because(TOTAL), "different decode.tokens");
    let stage = &comparison.stages[0];
    assert_eq!(stage.number("wall_ns").judgement, Judgement::Unknown);
    assert_eq!(stage.number("step_ns").judgement, Judgement::Worse);
    assert_eq!(stage.number("token_ns").judgement, Judgement::Better);
    let gates: Vec<(&str, GateOutcome)> =
        comparison.gates.iter().map(|gate| (gate.metric.as_str(), gate.outcome)).collect();
    assert_eq!(
        gates,
        [("step", GateOutcome::Broken), ("token", GateOutcome::Held), ("wall", GateOutcome::NotMeasured),]
    );
    assert!(comparison.gates[2].why.contains("different decode.tokens"), "{:?}", comparison.gates);
    let wall = run(&base, &head, "wall=5%");
    assert_eq!(wall.verdict(), Exit::Partial);
    let token = run(&base, &head, "decode.token=5%");
    assert_eq!(token.verdict(), Exit::Done);
}

#[test]
fn selections_of_ncu_do_not_compare_as_a_whole() {
    let side = |calls: u64| Analysis {
        kernels: vec![kernel("gemm_64x8", 1_000 * calls as i64, calls)],
        totals: Totals {
            kernel_count: calls,
            kernel_ns: 1_000 * calls as i64,
            from: KernelOrigin::Counters,
            ..Totals::default()
        },
        ..Analysis::default()
    };
    let comparison = run(&side(4), &side(8), "5%");
    assert_eq!(comparison.basis, Basis::Instance);
    assert!(comparison.differences[0].meaning.starts_with("ncu "), "{:?}", comparison.differences);
    assert_eq!(comparison.verdict(), Exit::Partial);
    let same = run(&side(4), &side(4), "5%");
    assert_eq!((same.basis, same.verdict()), (Basis::Whole, Exit::Done));
}

#[test]
fn another_model_without_steps_cannot_be_judged() {
    let mut base = analysis();
    base.stages[0].steps = None;
    let mut head = base.clone();
    head.workload.as_mut().unwrap().model = Some("n".into());
    let comparison = run(&base, &head, "5%");
    assert_eq!(comparison.basis, Basis::StepAndToken);
    assert_eq!(comparison.verdict(), Exit::Partial);
    assert!(comparison.gates[0].why.contains("different model"), "{:?}", comparison.gates);
    for side in [&mut base, &mut head] {
        side.kernels = side.stages[0].kernels.clone();
    }
    let total = run(&base, &head, "total.kernel=5%").gates;
    assert_eq!(total[0].why, "total.kernel does not compare: different model");
    // A gate that names its number asks for it all the same.
    let mut faster = analysis();
    faster.workload.as_mut().unwrap().model = Some("n".into());
    assert_eq!(run(&analysis(), &faster, "5%").verdict(), Exit::Partial);
    assert_eq!(run(&analysis(), &faster, "step=5%").verdict(), Exit::Done);
    // A model that only one side names is not known to differ.
    head.workload = None;
    let unknown = run(&base, &head, "5%");
    assert_eq!((unknown.basis, unknown.verdict()), (Basis::Whole, Exit::Done));
}

#[test]
fn a_slower_kernel_behind_idle_time_breaks_the_gate() {
    let mut head = analysis();
    let stage = &mut head.stages[0];
    stage.kernels[0] = kernel("gemm_64x8", 108_000, 20);
    stage.kernel_ns = Some(138_000);
    stage.busy_ns = Some(148_000);
    stage.idle = Some(Idle { launch_ns: 22_000, sync_ns: 20_000, ..Idle::default() });
    let comparison = run(&analysis(), &head, "5%,decode.wall=5%");
    let stage = &comparison.stages[0];
    assert_eq!(stage.number("wall_ns").judgement, Judgement::Same);
    assert_eq!(stage.number("busy_ns").judgement, Judgement::Worse);
    assert_eq!(stage.kernels[0].status, KernelStatus::Slower);
    assert_eq!(stage.parts.len(), 2, "{:?}", stage.parts);
    let broken: Vec<&str> = comparison
        .gates
        .iter()
        .filter(|gate| gate.outcome == GateOutcome::Broken)
        .map(|gate| gate.metric.as_str())
        .collect();
    assert_eq!(broken, ["busy", "kernel"]);
    assert_eq!(comparison.verdict(), Exit::GateBroken);
}

#[test]
fn a_change_inside_the_noise_breaks_nothing() {
    let mut base = analysis();
    let mut head = analysis();
    let jumpy = |each: [i64; 8]| crate::timeline::step_summary(each.to_vec(), Some(5.5));
    base.stages[0].steps = jumpy([20_000, 30_000, 24_000, 26_000, 22_000, 28_000, 25_000, 25_000]);
    head.stages[0].steps = jumpy([31_000, 21_000, 25_000, 27_000, 29_000, 23_000, 26_000, 34_000]);
    head.stages[0].wall_ns += 16_000;
    let comparison = run(&base, &head, "decode.wall=5%");
    assert_eq!(comparison.stages[0].number("wall_ns").judgement, Judgement::Same);
    assert_eq!(comparison.gates[0].outcome, GateOutcome::WithinNoise);
    assert_eq!(comparison.verdict(), Exit::Done);
}

/// The steps of decode, with those of the head as given.
fn with_steps(each: Vec<i64>) -> Analysis {
    let mut head = analysis();
    let stage = &mut head.stages[0];
    stage.wall_ns = each.iter().sum();
    stage.steps = crate::timeline::step_summary(each, Some(5.5));
    head
}

/// One step that takes 40 times as long as all others together does not hide in its own noise.
#[test]
fn one_long_step_is_worse_and_named() {
    let mut each = analysis().stages[0].steps.clone().unwrap().each_ns;
    each[5] += 8_000_000;
    let comparison = run(&analysis(), &with_steps(each), "5%");
    let stage = &comparison.stages[0];
    assert!(stage.number("wall_ns").delta_pct.unwrap() > 3_000.0);
    assert_eq!(stage.number("wall_ns").judgement, Judgement::Worse);
    assert!(stage.number("wall_ns").noise.unwrap() < 10_000.0, "{:?}", stage.numbers);
    assert_eq!(stage.number("step_ns").judgement, Judgement::Same, "the other steps take as long as before");
    let [Outlier { side: SideName::Head, step: 6, excess_ns, .. }] = stage.outliers[..] else {
        panic!("{:?}", stage.outliers);
    };
    assert!((7_999_000..8_001_000).contains(&excess_ns));
    assert_eq!(comparison.verdict(), Exit::GateBroken);
}

#[test]
fn several_slow_steps_of_the_head_break_the_gate() {
    let mut each = analysis().stages[0].steps.clone().unwrap().each_ns;
    (each[2], each[5]) = (4 * each[2], 4 * each[5]);
    let comparison = run(&analysis(), &with_steps(each), "5%");
    assert_eq!(comparison.stages[0].number("wall_ns").judgement, Judgement::Worse);
    assert_eq!(comparison.verdict(), Exit::GateBroken);
}

#[test]
fn time_between_the_stages_breaks_the_gate() {
    let lasting = |ns| {
        let mut side = analysis();
        side.totals.stages_wall_ns = Some(ns);
        side
    };
    let comparison = run(&lasting(300_000), &lasting(5_000_300_000), "5%");
    assert!(!has_changed(&comparison.stages[0]));
    assert_eq!(comparison.verdict(), Exit::GateBroken);
    let broken = comparison.gates.iter().find(|gate| gate.outcome == GateOutcome::Broken).unwrap();
    assert_eq!((&broken.stage, broken.metric.as_str()), (&None, "wall"));
    assert_eq!(run(&lasting(300_000), &lasting(310_000), "5%").verdict(), Exit::Done);
    // A side that repeats the program more often takes longer as a whole.
    let mut more = lasting(600_000);
    more.stages[0].instances *= 2;
    assert_ne!(run(&lasting(300_000), &more, "5%").gates.last().unwrap().stage, None);
}

#[test]
fn a_change_by_one_step_alone_is_unclear() {
    let mut each = analysis().stages[0].steps.clone().unwrap().each_ns;
    each[5] += 60_000;
    let comparison = run(&analysis(), &with_steps(each), "decode.wall=5%");
    assert_eq!(comparison.stages[0].number("wall_ns").judgement, Judgement::Unclear);
    let gate = &comparison.gates[0];
    assert_eq!(gate.outcome, GateOutcome::WithinNoise);
    assert!(gate.why.ends_with("without outlier steps it did not change"), "{}", gate.why);
}

#[test]
fn kernels_of_graphs_that_one_side_recorded_whole_do_not_compare() {
    let graph = GraphRow { launches: 2, total_ns: 60_000, ..GraphRow::default() };
    let mut base = analysis();
    base.totals.busy_ns = Some(130_000);
    let mut head = base.clone();
    base.graphs = vec![graph.clone()];
    let stage = &mut base.stages[0];
    stage.graphs = vec![graph];
    stage.kernels.remove(0);
    stage.kernel_ns = Some(30_000);
    head.kernels = head.stages[0].kernels.clone();
    base.kernels = base.stages[0].kernels.clone();
    let comparison = run(&base, &head, "decode.kernel=5%");
    let difference = &comparison.differences[0];
    assert_eq!(difference.what, "graphs");
    let stage = &comparison.stages[0];
    assert!(stage.kernels.is_empty());
    assert_eq!(stage.number("kernel_ns").judgement, Judgement::Unknown);
    assert!(!has_changed(stage));
    assert!(stage.parts.is_empty(), "all GPU work took as long: {:?}", stage.parts);
    head.stages[0].busy_ns = Some(140_000);
    let part = run(&base, &head, "").stages[0].parts[0].name.clone();
    assert_eq!(part, "all GPU work; its kernels do not compare");
    assert_eq!(comparison.verdict(), Exit::Partial);
    assert!(comparison.gates[0].why.ends_with("different graphs"), "{:?}", comparison.gates);
}

/// Profilers differ in their overhead by less than a factor of two, mostly.
#[test]
fn wall_times_of_different_recordings_compare_beyond_a_factor_of_two() {
    let side = |format: &str, slower: i64| {
        let each =
            analysis().stages[0].steps.as_ref().unwrap().each_ns.iter().map(|ns| ns * slower / 10).collect();
        let mut side = with_steps(each);
        side.sources = vec![SourceInfo { format: format.into(), ..SourceInfo::default() }];
        side
    };
    let judged = |slower| {
        let comparison = run(&side("nsys-sqlite", 10), &side("kineto", slower), "decode.wall=5%");
        assert!(comparison.differences.iter().any(|d| d.what == "timeline"));
        (comparison.stages[0].number("wall_ns").judgement, comparison.verdict())
    };
    assert_eq!(judged(13), (Judgement::Unknown, Exit::Partial));
    assert_eq!(judged(30), (Judgement::Worse, Exit::GateBroken));
    // Options of one profiler make a difference too.
    let (plain, mut stacks) = (side("kineto", 10), side("kineto", 13));
    stacks.losses = vec![LossInfo { id: "profiler_with_stack".into(), ..LossInfo::default() }];
    let comparison = run(&plain, &stacks, "");
    assert_eq!(comparison.stages[0].number("wall_ns").judgement, Judgement::Unknown);
}

#[test]
fn a_gpu_and_a_cpu_do_not_compare() {
    let mut cpu = with_steps(vec![9_000_000; 8]);
    cpu.devices.clear();
    cpu.workload.as_mut().unwrap().device = Some("a CPU".into());
    let stage = &mut cpu.stages[0];
    (stage.kernel_ns, stage.busy_ns, stage.idle, stage.from) = (None, None, None, StageOrigin::Workload);
    stage.kernels.clear();
    for comparison in [run(&analysis(), &cpu, "5%"), run(&cpu, &analysis(), "5%")] {
        assert_eq!(comparison.basis, Basis::Nothing);
        let judgements = METRICS.iter().map(|metric| metric.of(&comparison.stages[0].numbers).judgement);
        assert!(judgements.into_iter().all(|judgement| judgement == Judgement::Unknown));
        assert_eq!(comparison.verdict(), Exit::Partial);
    }
    // A capture without GPU work does not say where it ran.
    let mut unknown = cpu.clone();
    unknown.workload = None;
    unknown.sources = vec![SourceInfo { format: "kineto".into(), ..SourceInfo::default() }];
    assert_eq!(run(&analysis(), &unknown, "").basis, Basis::Nothing);
    // The program's own times on the same GPU do compare.
    cpu.workload.as_mut().unwrap().device = Some("NVIDIA H200".into());
    assert_ne!(run(&analysis(), &cpu, "").basis, Basis::Nothing);
}

#[test]
fn captures_with_few_common_kernels_may_be_different_models() {
    let side = |names: [&str; 2]| {
        let mut side = analysis();
        side.workload = None;
        side.kernels = vec![kernel(names[0], 90_000, 20), kernel(names[1], 10_000, 31)];
        side
    };
    let few = |base: &Analysis, head: &Analysis| {
        run(base, head, "").differences.iter().any(|d| d.what == "common kernels")
    };
    let (base, mut other) = (side(["gemm_tn", "sort_up"]), side(["softmax_forward", "sort_up"]));
    other.kernels[0].family = Family::Softmax;
    assert!(few(&base, &other));
    // Whole traces of different work and few common kernels are not called better or worse.
    let [mut base_trace, mut other_trace] = [base.clone(), other.clone()];
    for side in [&mut base_trace, &mut other_trace] {
        side.stages[0].kind = StageKind::Whole;
    }
    other_trace.kernels[1] = kernel("sort_up", 1_000, 3);
    other_trace.stages[0].wall_ns *= 20;
    let comparison = run(&base_trace, &other_trace, "5%");
    assert_eq!(comparison.stages[0].basis, Basis::Nothing);
    assert_eq!(comparison.stages[0].number("wall_ns").judgement, Judgement::Unknown);
    assert_eq!(comparison.verdict(), Exit::Partial);
    assert!(!few(&base, &side(["gemm_tn", "fill"])));
    // Another number of layers, in as many steps.
    let [shallow, deep] = [10, 14].map(|calls| {
        let mut side = side(["gemm_tn", "sort_up"]);
        side.kernels[0].calls = calls;
        side
    });
    assert!(few(&shallow, &deep) && !few(&shallow, &shallow));
    // The model is known to be the same.
    let model = || Some(WorkloadInfo { model: Some("m".into()), ..WorkloadInfo::default() });
    let mut named = base;
    (named.workload, other.workload) = (model(), model());
    assert!(!few(&named, &other));
}

#[test]
fn other_models_gpus_and_tokens_come_first() {
    let mut head = analysis();
    head.devices[0].name = Some("NVIDIA L4".into());
    let workload = head.workload.as_mut().unwrap();
    workload.model = Some("n".into());
    workload.prompt_tokens = Some(16);
    workload.dtype = Some("bf16".into());
    let comparison = run(&analysis(), &head, "5%");
    let what: Vec<(&str, Weight)> = comparison
        .differences
        .iter()
        .map(|difference| (difference.what.as_str(), difference.weight))
        .collect();
    assert_eq!(
        what,
        [
            ("gpu", Weight::Incomparable),
            ("model", Weight::Incomparable),
            ("prompt_tokens", Weight::Incomparable),
            ("dtype", Weight::Caution),
        ]
    );
    assert!(comparison.is_incomparable());
    assert_eq!(comparison.unchecked, ["generated_tokens", "batch", "mode", "timeline"]);
}

#[test]
fn a_gate_that_cannot_be_judged_says_so() {
    let mut head = analysis();
    head.stages.clear();
    let comparison = run(&analysis(), &head, "5%");
    assert_eq!(comparison.stages_gone, ["decode"]);
    assert_eq!(comparison.verdict(), Exit::Partial);
    let unknown = run(&analysis(), &analysis(), "prefil.wall=5%,decode.mfu=1%");
    assert_eq!(unknown.verdict(), Exit::Partial);
    assert!(unknown.gates[0].why.contains("both have: decode"), "{:?}", unknown.gates);
    let none = run(&Analysis::default(), &Analysis::default(), "5%,wall=5%");
    assert_eq!(none.verdict(), Exit::Partial);
}

#[test]
fn a_stage_without_a_gpu_is_explained_by_its_parts() {
    let part = |name: &str, wall_ns| Note { name: name.into(), instances: 1, wall_ns, ..Note::default() };
    let side = |sam, rest| Analysis {
        stages: vec![Stage {
            name: "prefill".into(),
            instances: 1,
            wall_ns: sam + rest,
            notes: vec![part("sam", sam)],
            ..Stage::default()
        }],
        ..Analysis::default()
    };
    let comparison = run(&side(1000, 500), &side(1400, 505), "prefill=5%");
    let parts = &comparison.stages[0].parts;
    assert_eq!((parts[0].name.as_str(), parts[0].delta_ns), ("sam", 400));
    assert_eq!((parts[1].name.as_str(), parts[1].delta_ns), ("the rest", 5));
    assert_eq!(comparison.verdict(), Exit::GateBroken);
}

#[test]
fn unwatched_repeats_are_a_number_of_their_own() {
    let facts = |each: &[i64]| SideFacts {
        unwatched: [("decode".to_owned(), each.to_vec())].into(),
        ..SideFacts::default()
    };
    let (base, head) = (facts(&[100, 101, 99, 100]), facts(&[120, 121, 119, 120]));
    let analysis = analysis();
    let gates = ["decode.unwatched=10%".parse().unwrap()];
    let side = |facts| Side { analysis: &analysis, facts };
    for gates in [&gates, &["5%".parse().unwrap()]] {
        let comparison = compare(side(&base), side(&head), gates);
        assert_eq!(comparison.verdict(), Exit::GateBroken);
        assert_eq!(comparison.stages[0].number("unwatched_ns").delta, Some(20.0));
    }
    let unknown = SideFacts::default();
    let one_sided = compare(side(&base), side(&unknown), &["5%".parse().unwrap()]);
    assert_eq!(one_sided.verdict(), Exit::Done);
}

#[test]
fn absurd_numbers_do_not_panic() {
    let mut head = analysis();
    head.stages[0].wall_ns = i64::MIN;
    head.stages[0].busy_ns = Some(i64::MAX);
    head.stages[0].kernels[0].total_ns = i64::MIN;
    head.stages[0].kernels[0].min_ns = Some(i64::MIN);
    head.stages[0].kernels[0].max_ns = Some(i64::MAX);
    head.stages[0].instances = 0;
    let facts = SideFacts::default();
    let base = analysis();
    let side = |analysis| Side { analysis, facts: &facts };
    let gates = Gate::parse_list("5%").unwrap();
    compare(side(&base), side(&head), &gates);
    compare(side(&head), side(&base), &gates);
}

/// A side whose stage the program timed itself has no kernels to lose.
#[test]
fn kernels_that_were_not_measured_are_not_gone() {
    let mut base = analysis();
    base.kernels = base.stages[0].kernels.clone();
    let mut head = analysis();
    let stage = &mut head.stages[0];
    (stage.kernel_ns, stage.busy_ns, stage.idle) = (None, None, None);
    stage.kernels.clear();
    for comparison in [run(&base, &head, "5%"), run(&head, &base, "5%")] {
        assert!(comparison.total.kernels.is_empty());
        assert!(comparison.stages[0].kernels.is_empty());
        assert!(!has_changed(&comparison.stages[0]));
        let [difference] = comparison.differences.as_slice() else { panic!("{:?}", comparison.differences) };
        assert_eq!((difference.what.as_str(), difference.weight), ("gpu_work", Weight::Caution));
    }
    let mut empty = analysis();
    empty.stages[0].kernels.clear();
    let kernels = &run(&analysis(), &empty, "5%").stages[0].kernels;
    assert!(kernels.iter().all(|kernel| kernel.status == KernelStatus::Gone) && kernels.len() == 2);
}

#[test]
fn traces_of_different_work_do_not_compare_as_a_whole() {
    let side = |kernels: Vec<Kernel>| Analysis {
        totals: Totals {
            kernel_count: kernels.iter().map(|kernel| kernel.calls).sum(),
            kernel_ns: kernels.iter().map(|kernel| kernel.total_ns).sum(),
            ..Totals::default()
        },
        kernels,
        ..Analysis::default()
    };
    let once = || side(vec![kernel("gemm", 80_000, 64), kernel("sort", 9_000, 8)]);
    let warm = side(vec![
        kernel("gemm", 160_000, 128),
        kernel("sort", 18_000, 16),
        kernel("fill_normal", 50_000, 31),
    ]);
    assert!(!run(&warm, &warm, "").total.numbers.contains_key("launches"), "kernels are not launches");
    let comparison = run(&warm, &once(), "total.kernel=5%");
    assert_eq!(comparison.basis, Basis::Instance);
    assert_eq!(comparison.total.number("kernel_ns").judgement, Judgement::Unknown);
    assert_eq!(comparison.verdict(), Exit::Partial);
    let difference = &comparison.differences[0];
    assert_eq!(difference.what, "launches");
    assert_eq!((difference.base.as_deref(), difference.head.as_deref()), (Some("175"), Some("72")));
    // A program with other kernels in place of some does the same work.
    let fused = side(vec![kernel("gemm", 80_000, 64), kernel("fused", 4_000, 1)]);
    let comparison = run(&once(), &fused, "total.kernel=5%");
    assert_eq!(comparison.basis, Basis::Whole);
    assert_eq!(comparison.total.number("kernel_ns").judgement, Judgement::Better);
}
