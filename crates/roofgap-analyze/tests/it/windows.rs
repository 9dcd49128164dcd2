//! A capture with gaps: the numbers of the recorded steps are those of the same steps in the whole capture.

use crate::programs::{Program, US};
use roofgap_analyze::compare::{Side, SideFacts, compare};
use roofgap_analyze::model::{Tokens, preset};
use roofgap_analyze::{About, Analyzed, Options, Overhead, Profiler, Stage, StageKind, analyze};
use roofgap_trace::{LossKind, Ns, RecordedWindows, Source, SourceFormat, Trace};
use std::path::{Path, PathBuf};

fn trace(name: &str) -> Trace {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    roofgap_trace::read(&[path]).unwrap().trace
}

/// Leaves only what was launched in some windows, as a collector that is turned on and off does.
fn sampled(whole: &Trace, windows: Vec<(Ns, Ns)>) -> Trace {
    let mut trace = whole.clone();
    let inside = |at: Ns| windows.iter().any(|window| (window.0..=window.1).contains(&at));
    let launched = |row: usize| {
        let (ops, calls) = (&whole.ops, &whole.calls);
        let call = (0..calls.len()).find(|&call| {
            calls.correlation[call] == ops.correlation[row] && calls.process[call] == ops.process[row]
        });
        call.is_some_and(|call| inside(calls.start[call]))
    };
    let rows: Vec<usize> = (0..whole.ops.len()).filter(|&row| launched(row)).collect();
    let ops = &whole.ops;
    trace.ops.start = rows.iter().map(|&row| ops.start[row]).collect();
    trace.ops.end = rows.iter().map(|&row| ops.end[row]).collect();
    trace.ops.kind = rows.iter().map(|&row| ops.kind[row]).collect();
    trace.ops.name = rows.iter().map(|&row| ops.name[row]).collect();
    trace.ops.device = rows.iter().map(|&row| ops.device[row]).collect();
    trace.ops.stream = rows.iter().map(|&row| ops.stream[row]).collect();
    trace.ops.process = rows.iter().map(|&row| ops.process[row]).collect();
    trace.ops.correlation = rows.iter().map(|&row| ops.correlation[row]).collect();
    trace.ops.shape = rows.iter().map(|&row| ops.shape[row]).collect();
    trace.ops.graph_node = rows.iter().map(|&row| ops.graph_node(row)).collect();
    trace.ops.transfers.clear();
    let kept: Vec<usize> = (0..whole.calls.len()).filter(|&call| inside(whole.calls.start[call])).collect();
    let calls = &whole.calls;
    trace.calls.start = kept.iter().map(|&call| calls.start[call]).collect();
    trace.calls.end = kept.iter().map(|&call| calls.end[call]).collect();
    trace.calls.name = kept.iter().map(|&call| calls.name[call]).collect();
    trace.calls.class = kept.iter().map(|&call| calls.class[call]).collect();
    trace.calls.process = kept.iter().map(|&call| calls.process[call]).collect();
    trace.calls.thread = kept.iter().map(|&call| calls.thread[call]).collect();
    trace.calls.correlation = kept.iter().map(|&call| calls.correlation[call]).collect();
    let (first, last) = whole.span().unwrap();
    let process = whole.ops.process[0];
    let recorded = RecordedWindows { process, windows, span: (first, last) };
    trace.losses.add(LossKind::PartlyRecorded, recorded.gaps());
    trace.recorded.push(recorded);
    trace
}

/// Windows around every `every`-th range of a name, from a little before it to a little after.
fn around(trace: &Trace, every: usize, is: impl Fn(&str) -> bool) -> Vec<(Ns, Ns)> {
    let rows = trace.ranges.rows.iter();
    rows.filter(|range| is(trace.names.get(range.name)))
        .step_by(every)
        .map(|range| (range.start - 10, range.end + 10))
        .collect()
}

fn analyzed(trace: &Trace) -> Analyzed {
    let options = Options {
        model: preset("qwen3_0_6b").ok(),
        tokens: Tokens { prompt: Some(256), generated: Some(8), ..Tokens::default() },
        ..Options::default()
    };
    analyze(trace, &options)
}

fn stage<'a>(analyzed: &'a Analyzed, name: &str) -> &'a Stage {
    let mut stages = analyzed.analysis.stages.iter();
    stages.find(|stage| stage.name == name).unwrap()
}

#[test]
fn recorded_steps_have_the_numbers_of_the_whole_capture() {
    let whole = trace("h200/llama4.sqlite.gz");
    let full = analyzed(&whole);
    let part = analyzed(&sampled(&whole, around(&whole, 3, |name| name == "decode_step")));
    let (all, decode) = (stage(&full, "decode"), stage(&part, "decode"));
    let steps = all.steps.as_ref().unwrap().count;
    let coverage = decode.coverage.as_ref().unwrap();
    assert_eq!(coverage.all, steps);
    assert!(coverage.recorded > 1 && coverage.recorded < steps, "{coverage:?}");
    assert_eq!(decode.instances, coverage.recorded);
    assert_eq!(decode.steps.as_ref().unwrap().count, coverage.recorded);
    // Every step of this program launches the same kernels.
    let per_step = |stage: &Stage, count: u64| stage.kernel_count / count;
    assert_eq!(per_step(decode, coverage.recorded), per_step(all, steps));
    let launches = |stage: &Stage| stage.steps.as_ref().unwrap().launches_per_step;
    assert_eq!(launches(decode), launches(all));
    let estimate = coverage.kernel_ns.unwrap();
    let truth = all.kernel_ns.unwrap();
    assert!((estimate.value - truth).abs() < truth / 20, "{estimate:?} {truth}");
    assert!(estimate.low.unwrap() <= estimate.value && estimate.value <= estimate.high.unwrap());
    // Gaps are no idle time: a step does not last until the next recorded one.
    let longest = *all.steps.as_ref().unwrap().each_ns.iter().max().unwrap();
    assert!(decode.steps.as_ref().unwrap().each_ns.iter().all(|step| *step <= longest));
    assert!(decode.wall_ns < all.wall_ns && coverage.wall_ns <= all.wall_ns);
    let sums = part.analysis.coverage.as_ref().unwrap();
    assert_eq!((sums.recorded_steps, sums.all_steps), (Some(coverage.recorded), Some(steps)));
    assert!(sums.recorded_ns > 0 && sums.recorded_ns < sums.all_ns);
    // Work and wall time are known for all steps.
    let (mfu, mfu_of_all) = (decode.mfu.as_ref().unwrap(), all.mfu.as_ref().unwrap());
    assert_eq!(mfu.by_busy_pct, None);
    assert!(
        (mfu.by_wall_pct / mfu_of_all.by_wall_pct - 1.0).abs() < 0.05,
        "{} {}",
        mfu.by_wall_pct,
        mfu_of_all.by_wall_pct
    );
    // The prefill lies outside of every window.
    assert!(part.analysis.stages.iter().all(|stage| stage.name != "prefill"));
    let why = part.analysis.reason(&About::Stage("prefill".into())).unwrap();
    assert!(why.contains("none of them lies in a recorded window"), "{why}");
    assert!(part.analysis.losses.iter().any(|loss| loss.id == "recorded_in_windows"));
    assert!(full.analysis.coverage.is_none() && all.coverage.is_none());
    // A part does not compare with the whole.
    let facts = SideFacts::default();
    let side = |analysis| Side { analysis, facts: &facts };
    let comparison = compare(side(&full.analysis), side(&part.analysis), &[]);
    let mut differences = comparison.differences.iter();
    assert!(differences.any(|difference| difference.what == "decode.coverage"));
    assert!(comparison.is_incomparable());
}

#[test]
fn engine_steps_do_not_last_across_a_gap() {
    let whole = trace("vllm/vllm_dense_graph.sqlite.gz");
    let full = analyzed(&whole);
    let part = analyzed(&sampled(&whole, around(&whole, 4, |name| name.starts_with("execute_"))));
    let (all, decode) = (stage(&full, "decode"), stage(&part, "decode"));
    let coverage = decode.coverage.as_ref().unwrap();
    assert_eq!(coverage.all, all.instances);
    assert!(decode.instances < all.instances);
    let longest = *all.steps.as_ref().unwrap().each_ns.iter().max().unwrap();
    let steps = decode.steps.as_ref().unwrap();
    assert!(steps.each_ns.iter().all(|step| *step <= longest), "{steps:?}");
    // The names of the recorded steps have their work.
    assert!(decode.mfu.is_some() && all.mfu.is_some());
}

#[test]
fn a_capture_without_stages_is_analysed_window_by_window() {
    let mut whole = trace("h200/llama4.sqlite.gz");
    let windows = around(&whole, 2, |name| name == "decode_step");
    whole.ranges = Default::default();
    let part = analyzed(&sampled(&whole, windows.clone()));
    let all = stage(&part, "all");
    assert_eq!(all.kind, StageKind::Whole);
    assert_eq!(all.instances, windows.len() as u64);
    let recorded: Ns = windows.iter().map(|window| window.1 - window.0).sum();
    assert_eq!(all.wall_ns, recorded);
    // The first to the last operation of each window, without the gaps between them.
    let ops = part.analysis.totals.busy_ns.unwrap();
    assert!(all.projected_ns.unwrap() < analyzed(&whole).analysis.stages[0].projected_ns.unwrap());
    assert_eq!(all.busy_ns, Some(ops));
    assert_eq!(part.analysis.coverage.as_ref().unwrap().recorded_steps, None);
}

/// Steps of 1 ms of which eight in a row are recorded, those 1.1 ms long, and eight are not. Turning it on and off takes 50 us each.
#[test]
fn the_cost_of_recording_is_that_of_steps_beside_each_other() {
    let cost = |blocks: usize, overhead: Vec<Overhead>, names: &dyn Fn(usize) -> &'static str| {
        let mut program = Program::on(1);
        let mut windows = Vec::new();
        for block in 0..blocks {
            let is_on = block % 2 == 1;
            program.now += if block > 0 { 50 * US } else { 0 };
            let begun = program.now;
            for step in 0..8 {
                program.now += 100;
                program.range(names(8 * block + step), |p| {
                    p.kernel("product", 0, 25 * US);
                    p.now += if is_on { 1_100 * US } else { 1_000 * US };
                });
            }
            windows.extend(is_on.then_some((begun, program.now)));
        }
        let span = (0, program.now);
        program.trace.recorded.push(RecordedWindows { process: program.trace.ops.process[0], windows, span });
        program.trace.sources.push(Source::new(Path::new("1-2.rgcap"), SourceFormat::Native));
        analyze(&program.trace, &Options { overhead, ..Options::default() }).analysis.overhead
    };
    let found = cost(21, Vec::new(), &|_| "decode_step");
    let [own] = &found[..] else { panic!("{found:?}") };
    // 8.8 ms and twice 0.05 ms beside 8 ms.
    assert_eq!((own.stage.as_str(), own.pairs), ("decode", Some(10)));
    assert!((own.ratio - 1.112).abs() < 0.002, "{own:?}");
    assert!(own.interval.is_some_and(|(low, high)| low > 1.11 && high < 1.115), "{own:?}");
    assert!(cost(7, Vec::new(), &|_| "decode_step").is_empty(), "three pairs are too few");
    let growing = |step: usize| {
        ["execute_context_0(0)_generation_1(1)", "execute_context_0(0)_generation_2(2)"][step % 2]
    };
    assert!(cost(21, Vec::new(), &growing).is_empty(), "steps with other work do not compare");
    // Half of the steps are recorded, and all of them take 1.25 times as long as those of a run without the collector.
    let run = Overhead {
        tool: Profiler::Native,
        stage: "decode".into(),
        ratio: 1.25,
        interval: Some((1.2, 1.302)),
        pairs: None,
        of_runs: None,
        stated: false,
    };
    let found = cost(21, vec![run], &|_| "decode_step");
    let [own] = &found[..] else { panic!("{found:?}") };
    assert_eq!((own.pairs, own.of_runs), (Some(10), Some(1.25)));
    // 80 of 168 steps: those that are not recorded take 1.25 / (1 + 0.112 x 80 / 168) = 1.187 times as long.
    assert!((own.ratio - 1.112 * 1.1866).abs() < 0.003, "{own:?}");
    assert!(
        own.interval.is_some_and(|(low, high)| (1.26..1.27).contains(&low) && (1.37..1.38).contains(&high)),
        "{own:?}"
    );
}
