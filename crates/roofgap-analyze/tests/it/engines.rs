//! Steps of a serving engine as stages, against what nsys says of the same capture.

use roofgap_analyze::model::Tokens;
use roofgap_analyze::{About, Analyzed, Options, Stage, StageKind, StageLimit, StageSet, analyze, verdict};
use roofgap_trace::SourceFormat;
use roofgap_trace::account::{Account, EngineFacts, RequestStats, RequestTimes};
use std::io::Read;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn analyzed(name: &str) -> Analyzed {
    let input = roofgap_trace::read(&[fixture(name)]).unwrap();
    analyze(&input.trace, &Options::default())
}

fn stage(analyzed: &Analyzed, name: &str) -> Stage {
    let mut stages = analyzed.analysis.stages.iter();
    stages.find(|stage| stage.name == name).unwrap().clone()
}

/// Reads a gzipped CSV of `nsys stats`.
fn rows(name: &str) -> Vec<Vec<String>> {
    let mut text = String::new();
    let file = std::fs::File::open(fixture(name)).unwrap();
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

#[test]
fn vllm_steps_are_stages_with_the_kernels_and_tokens_of_the_capture() {
    let analyzed = analyzed("vllm/vllm_dense_graph.sqlite.gz");
    let engine = analyzed.analysis.engine.as_ref().unwrap();
    assert_eq!((engine.name.as_str(), engine.told_by.as_str()), ("vLLM", "range"));
    let of_nsys = rows("vllm/vllm_dense_graph_nvtx_kern_sum.csv.gz");
    let mut tokens = (0, 0);
    for (name, kind, steps, kernels, kernel_ns) in [
        // With the work between two steps, such as sampling, which belongs to the step before it: 10, 40 and 220 kernels.
        ("prefill", StageKind::Prefill, 1, 168, 2_149_354),
        ("mixed", StageKind::Mixed, 4, 672, 17_012_692),
        ("decode", StageKind::Decode, 23, 4_021, 25_054_113),
    ] {
        let stage = stage(&analyzed, name);
        assert_eq!(stage.kind, kind);
        assert_eq!((stage.instances, stage.kernel_count), (steps, kernels), "{name}");
        assert_eq!(stage.kernel_ns, Some(kernel_ns), "{name}");
        // nsys counts the kernels of the ranges alone.
        let beside = stage.beside_ranges.unwrap();
        assert_eq!(beside.ran_before.kernel_count, 0, "{name}");
        let in_ranges: Vec<_> = of_nsys
            .iter()
            .filter(|row| {
                row[0].strip_prefix(':').is_some_and(|range| stage.ranges.contains(&range.to_owned()))
            })
            .collect();
        let sum =
            |column: usize| in_ranges.iter().map(|row| row[column].parse::<i64>().unwrap()).sum::<i64>();
        assert_eq!(kernel_ns - beside.launched_after.kernel_ns, sum(6), "{name}");
        assert_eq!((kernels - beside.launched_after.kernel_count) as i64, sum(5), "{name}");
        let own = stage.tokens.unwrap();
        tokens.0 += own.context.unwrap();
        tokens.1 += own.generation.unwrap();
        assert_ne!(verdict(&stage).label, StageLimit::NotMeasured);
    }
    assert_eq!(tokens, (7_680, 368));
}

#[test]
fn a_step_lasts_as_long_as_its_gpu_work() {
    let decode = stage(&analyzed("vllm/vllm_dense_graph.sqlite.gz"), "decode");
    let steps = decode.steps.as_ref().unwrap();
    let cpu = steps.cpu.as_ref().unwrap();
    assert_eq!(steps.count, 23);
    assert!(steps.p50_ns > cpu.p50_ns, "{} {}", steps.p50_ns, cpu.p50_ns);
    // Periods of steps one after another add up to the time from the first to the last.
    let period: i64 = steps.each_ns.iter().sum();
    assert_eq!(decode.period_ns, Some(period));
    let rate = decode.tokens_per_s.unwrap();
    let generated = decode.tokens.unwrap().generation.unwrap() as f64;
    assert!((rate - generated * 1e9 / period as f64).abs() < 1e-6);
}

#[test]
fn both_profilers_see_the_same_steps_and_tokens() {
    let (nsys, kineto) =
        (analyzed("vllm/vllm_dense_graph.sqlite.gz"), analyzed("vllm/vllm_dense_graph.kineto.json.gz"));
    assert_eq!(kineto.analysis.engine.as_ref().unwrap().told_by, "annotation");
    let sum = |analyzed: &Analyzed| {
        let mut sum = (0, 0);
        for stage in &analyzed.analysis.stages {
            let tokens = stage.tokens.unwrap();
            sum = (sum.0 + tokens.context.unwrap(), sum.1 + tokens.generation.unwrap());
        }
        sum
    };
    assert_eq!(sum(&nsys), sum(&kineto));
    for name in ["prefill", "mixed", "decode"] {
        assert_eq!(stage(&nsys, name).instances, stage(&kineto, name).instances, "{name}");
    }
    for name in ["prefill", "mixed"] {
        let kernels = |analyzed: &Analyzed| stage(analyzed, name).kernel_count;
        assert_eq!(kernels(&nsys), kernels(&kineto), "{name}");
    }
}

#[test]
fn projected_time_of_every_step_name_equals_that_of_nsys() {
    let analyzed = analyzed("vllm/vllm_dense_graph.sqlite.gz");
    let rows = rows("vllm/vllm_dense_graph_nvtx_gpu_proj_sum.csv.gz");
    let header = rows.iter().position(|row| row.first().is_some_and(|cell| cell == "Range")).unwrap();
    let column = |name: &str| rows[header].iter().position(|cell| cell.starts_with(name)).unwrap();
    // nsys counts a graph launch as one operation there, so the number of operations is not compared.
    let (projected, instances) = (column("Total Proj Time"), column("Range Instances"));
    let mut checked = 0;
    for row in &rows[header + 1..] {
        let name = row[0].trim_start_matches(':');
        let Some(range) = analyzed.analysis.ranges.iter().find(|range| range.name == name) else {
            panic!("{name} is missing");
        };
        assert_eq!(range.projected_ns.to_string(), row[projected], "{name}");
        assert_eq!(range.instances.to_string(), row[instances], "{name}");
        checked += 1;
    }
    assert!(checked > 8, "{checked}");
}

#[test]
fn a_trace_without_stages_is_one_stage() {
    let mut input = roofgap_trace::read(&[fixture("h200/llama4.sqlite.gz")]).unwrap();
    input.trace.ranges.rows.clear();
    // Without the calls nothing but the operations tells of loops.
    input.trace.ops.name.iter_mut().zip(0..).for_each(|(name, row)| name.0 = row);
    let analyzed = analyze(&input.trace, &Options::default());
    let [all] = analyzed.analysis.stages.as_slice() else {
        panic!("{:?}", analyzed.analysis.stages);
    };
    assert_eq!((all.name.as_str(), all.kind), ("all", StageKind::Whole));
    assert_eq!(all.kernel_count, analyzed.analysis.totals.kernel_count);
    assert_eq!(all.kernel_ns, Some(analyzed.analysis.totals.kernel_ns));
    assert_eq!(all.busy_ns, analyzed.analysis.totals.busy_ns);
    let idle = all.idle.unwrap().total_ns();
    assert_eq!(all.projected_ns, Some(all.busy_ns.unwrap() + idle));
    assert!((0..input.trace.ops.len()).all(|op| analyzed.stages.stage_of_op(op) == Some(0)));
}

#[test]
fn literal_names_are_the_same_stages() {
    let mut input = roofgap_trace::read(&[fixture("h200/llama4.sqlite.gz")]).unwrap();
    let expected = analyze(&input.trace, &Options::default()).analysis;
    let trace = &mut input.trace;
    let none = trace.names.intern("");
    for row in 0..trace.ranges.rows.len() {
        let range = trace.ranges.rows[row];
        if trace.names.get(range.domain) == "LLM" {
            let literal = format!("LLM@{}", trace.names.get(range.name));
            let name = trace.names.intern(&literal);
            (trace.ranges.rows[row].domain, trace.ranges.rows[row].name) = (none, name);
        }
    }
    let found = analyze(trace, &Options::default()).analysis;
    assert_eq!(found.stages, expected.stages);
    assert_eq!(found.findings, expected.findings);
}

/// Reads a trace of PyTorch's profiler that is written here, event by event.
fn kineto(events: &[String]) -> roofgap_trace::Trace {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let properties = r#"[{"id": 0, "name": "", "computeMajor": 9, "computeMinor": 0, "numSms": 132}]"#;
    let events = events.join(",\n");
    std::fs::write(
        &path,
        format!(r#"{{"schemaVersion": 1, "deviceProperties": {properties}, "traceEvents": [{events}]}}"#),
    )
    .unwrap();
    roofgap_trace::read(&[path]).unwrap().trace
}

fn event(category: &str, name: &str, thread: u32, start: u32, length: u32, args: &str) -> String {
    format!(
        r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": {thread}, "ts": {start}.000, "dur": {length}.000, "args": {{{args}}}}}"#
    )
}

/// A launch on a thread and its kernel on the GPU.
fn launched(id: u32, thread: u32, call: u32, start: u32, length: u32) -> [String; 2] {
    let link = format!(r#""correlation": {id}"#);
    let kernel = format!(r#""correlation": {id}, "device": 0, "stream": 7"#);
    [
        event("cuda_runtime", "cudaLaunchKernel", thread, call, 1, &link),
        event("kernel", "add_kernel", 7, start, length, &kernel),
    ]
}

#[test]
fn steps_of_the_profiler_hold_the_launches_of_every_thread() {
    let mut events = vec![
        event("user_annotation", "ProfilerStep#1", 10, 100, 100, ""),
        event("user_annotation", "ProfilerStep#2", 10, 200, 100, ""),
    ];
    // Two launches a step by the main thread, one by the thread of the backward pass.
    for (id, thread, call, start) in [
        (1, 10, 110, 112),
        (2, 10, 120, 122),
        (3, 11, 150, 152),
        (4, 10, 210, 212),
        (5, 10, 220, 222),
        (6, 11, 250, 252),
    ] {
        events.extend(launched(id, thread, call, start, 5));
    }
    let analysis = analyze(&kineto(&events), &Options::default()).analysis;
    let [all] = analysis.stages.as_slice() else {
        panic!("{:?}", analysis.stages);
    };
    let steps = all.steps.as_ref().unwrap();
    assert_eq!((steps.count, steps.launches_per_step), (2, Some(3.0)));
    // From the first kernel to that of the next step. The last one has its kernels and the idle time before and after them.
    assert_eq!(steps.each_ns, [100_000, 100_000]);
    assert_eq!(analysis.devices[0].name, None, "an empty name is no name");
}

#[test]
fn a_step_on_two_devices_is_busy_while_one_of_them_is() {
    let name = "execute_context_0(0)_generation_4(4)";
    let mut events = vec![event("user_annotation", name, 10, 100, 100, "")];
    events.extend(launched(1, 10, 110, 112, 5));
    let second = launched(2, 10, 113, 117, 5);
    events.extend(second.map(|event| event.replace(r#""device": 0"#, r#""device": 1"#)));
    // Between 122 and 124 neither runs anything.
    events.extend(launched(3, 10, 120, 124, 1));
    let analysis = analyze(&kineto(&events), &Options::default()).analysis;
    assert_eq!(analysis.totals.kernel_count, 3);
    let batches = analysis.serving.unwrap().batches;
    assert_eq!((batches[0].mean_ns, batches[0].eager_idle_ns), (Some(13_000), 2_000));
}

#[test]
fn decode_steps_that_may_read_prompts_are_declared() {
    let about = About::Other("engine.phases_told_by".into());
    for (name, is_unsure) in [
        ("execute_new_0_cached_1", true),
        ("execute_new_1_cached_0", false),
        ("execute_context_0(0)_generation_1(1)", false),
        ("step[DECODE bs=32]", false),
    ] {
        let mut events = vec![event("user_annotation", name, 10, 100, 100, "")];
        events.extend(launched(1, 10, 110, 112, 5));
        let analysis = analyze(&kineto(&events), &Options::default()).analysis;
        assert_eq!(analysis.reason(&about).is_some(), is_unsure, "{name}");
    }
}

/// The draft model of speculative decoding reads the prompts of the step again.
#[test]
fn prompts_that_a_draft_model_reads_again_are_no_step() {
    let steps = |times: &[(u32, u32)]| {
        let mut events = Vec::new();
        for (id, (start, length)) in (1..).zip(times) {
            events.push(event("user_annotation", "step[EXTEND bs=1 toks=4096]", 10, *start, *length, ""));
            events.extend(launched(id, 10, start + 1, start + 3, length - 10));
        }
        let analysis = analyze(&kineto(&events), &Options::default()).analysis;
        let prefill = analysis.stages.iter().find(|stage| stage.name == "prefill").unwrap();
        (prefill.instances, prefill.tokens.unwrap().context)
    };
    assert_eq!(steps(&[(100, 800), (905, 60), (1_000, 800), (1_805, 60)]), (2, Some(8_192)));
    // Parts of a prompt take about as long as one another.
    assert_eq!(steps(&[(100, 800), (905, 150), (1_060, 150), (1_215, 150)]), (4, Some(16_384)));
}

/// The names do not tell a prefill from a decode step without a graph.
#[test]
fn lmdeploy_steps_without_a_graph_are_prefill_where_others_have_one() {
    let about = About::Other("engine.phases_told_by".into());
    let of = |names: &[&str]| {
        let step = |(at, name): (usize, &&str)| {
            let start = 100 + 1000 * at as u32;
            let mut events = vec![event("user_annotation", name, 10, start, 100, "")];
            events.extend(launched(1 + at as u32, 10, start + 10, start + 12, 5));
            events
        };
        let events: Vec<_> = names.iter().enumerate().flat_map(step).collect();
        let analysis = analyze(&kineto(&events), &Options::default()).analysis;
        assert_eq!(analysis.engine.as_ref().unwrap().name, "LMDeploy");
        assert_eq!(analysis.reason(&about).is_some(), names.contains(&"forward_eager"));
        let stages = analysis.stages.iter();
        stages.map(|stage| (stage.name.clone(), stage.kind, stage.instances)).collect::<Vec<_>>()
    };
    let (prefill, decode) =
        (("prefill".to_owned(), StageKind::Prefill, 1), ("decode".to_owned(), StageKind::Decode, 2));
    for name in ["forward_eager", "forward_piecewise_cudagraph"] {
        let found = of(&[name, "forward_cudagraph", "forward_cudagraph"]);
        assert_eq!(found, [prefill.clone(), decode.clone()], "{name}");
    }
    assert_eq!(of(&["forward_cudagraph", "forward_cudagraph"]), [decode]);
    assert_eq!(of(&["forward_eager", "forward_eager"]), [("step".to_owned(), StageKind::Custom, 2)]);
}

/// The forward pass has the name; drafts and sampling after it belong to its step. A dummy batch is no step of a stage.
#[test]
fn atom_steps_are_stages_without_dummy_batches() {
    let mut events = Vec::new();
    for (id, name) in (1..).zip([
        "capture_graph_bs_8",
        "prefill[bs=2 tok=300 ctx=[100, 200]]",
        "decode[bs=2/8 tok=2 d=2]",
        "draft[1/1 bs=2]",
        "decode[bs=2/8 tok=2 d=2]",
        "dummy_decode[bs=1]",
        "eager_decode[bs=9 tok=9 ctx=[100, 200, 300]...+6]",
    ]) {
        events.push(event("user_annotation", name, 10, 1000 * id, 100, ""));
        events.extend(launched(id, 10, 1000 * id + 10, 1000 * id + 12, 5));
    }
    let analysis = analyze(&kineto(&events), &Options::default()).analysis;
    let engine = analysis.engine.unwrap();
    assert_eq!((engine.name.as_str(), engine.told_by.as_str()), ("ATOM", "annotation"));
    let stages = analysis.stages.iter().map(|stage| {
        let tokens = stage.tokens.unwrap();
        (stage.kind, stage.instances, stage.kernel_count, tokens.context, tokens.generation)
    });
    assert_eq!(
        stages.collect::<Vec<_>>(),
        [(StageKind::Prefill, 1, 1, Some(300), Some(0)), (StageKind::Decode, 3, 4, Some(0), Some(13)),]
    );
}

#[test]
fn an_engine_that_writes_two_names_is_named_by_its_own() {
    let mut events = vec![
        event("user_annotation", "execute_context_0(0)_generation_32(32)", 10, 100, 100, ""),
        event("user_annotation", "step[DECODE bs=32]", 10, 101, 98, ""),
    ];
    events.extend(launched(1, 10, 110, 112, 5));
    let analysis = analyze(&kineto(&events), &Options::default()).analysis;
    assert_eq!(analysis.engine.unwrap().name, "SGLang");
    assert_eq!(analysis.stages.len(), 1);
    assert_eq!(analysis.stages[0].tokens.unwrap().generation, Some(32));
}

/// 336 generated tokens of decode need 2 FLOPs for every weight that a token meets.
#[test]
fn engine_steps_have_mfu_and_mbu_with_a_model() {
    let input = roofgap_trace::read(&[fixture("vllm/vllm_dense_graph.sqlite.gz")]).unwrap();
    let options =
        Options { model: Some(roofgap_analyze::model::preset("qwen3_0_6b").unwrap()), ..Options::default() };
    let analyzed = analyze(&input.trace, &options);
    let work = |name: &str| {
        let stage = stage(&analyzed, name);
        let (mfu, mbu) = (stage.mfu.unwrap(), stage.mbu.unwrap());
        assert!(mfu.by_wall_pct > 0.0 && mfu.by_wall_pct < 100.0, "{name}");
        assert!(mfu.by_busy_pct.unwrap() > mfu.by_wall_pct, "{name}");
        assert!(mbu.by_wall_pct > 0.0 && mbu.by_busy_pct.unwrap() < 100.0, "{name}");
        (mfu, mbu)
    };
    let (decode, bytes) = work("decode");
    let products = |terms: &[roofgap_analyze::Term]| -> f64 {
        let of = |term: &&roofgap_analyze::Term| term.name != "attention over the cache";
        terms.iter().filter(of).map(|term| term.flops).sum()
    };
    let (prefill, _) = work("prefill");
    work("mixed");
    let heads = |mfu: &roofgap_analyze::Mfu| {
        let head = mfu.terms.iter().find(|term| term.name == "output head").unwrap();
        (head.flops, products(&mfu.terms) - head.flops)
    };
    // 336 rows of the head and of every layer in decode; 2 rows of the head and 768 of every layer in prefill.
    let ((head, layers), (prompt_head, prompt_layers)) = (heads(&decode), heads(&prefill));
    assert!((head / prompt_head - 336.0 / 2.0).abs() < 1e-9);
    assert!((layers / prompt_layers - 336.0 / 768.0).abs() < 1e-9);
    assert!(decode.assumptions.iter().any(|text| text.contains("left out")));
    assert_eq!(bytes.step_ns, stage(&analyzed, "decode").step_ns());
    let workload = analyzed.analysis.workload.as_ref().unwrap();
    assert_eq!(workload.model.as_deref(), Some("qwen3_0_6b"));
    assert!(analyzed.analysis.whole.is_some());
}

#[test]
fn a_renamed_stage_keeps_mfu_and_rates() {
    let trace = roofgap_trace::read(&[fixture("h200/llama4.sqlite.gz")]).unwrap().trace;
    let plain = analyze(&trace, &Options::default());
    let decode = stage(&plain, "decode");
    let generated = decode.steps.unwrap().count / decode.instances;
    let mut stages = StageSet::default();
    let mut with = |rename: Option<&str>| {
        rename.into_iter().for_each(|text| stages.set(text).unwrap());
        let tokens = Tokens { prompt: Some(512), generated: Some(generated), ..Tokens::default() };
        let model = roofgap_analyze::model::preset("qwen3_0_6b").ok();
        analyze(&trace, &Options { stages: stages.clone(), model, tokens, ..Options::default() })
    };
    let (known, renamed) = (with(None), with(Some("generate=LLM@decode_all")));
    let mut expected = stage(&known, "decode");
    expected.name = "generate".to_owned();
    let generate = stage(&renamed, "generate");
    assert_eq!(generate, expected);
    assert!(generate.mfu.is_some() && generate.mbu.is_some() && generate.tokens_per_s.is_some());
    assert_eq!(renamed.analysis.stages.len(), 2);
    assert_eq!(renamed.analysis.per_run, known.analysis.per_run);
    let whole = |analyzed: Analyzed| analyzed.analysis.whole.unwrap().mfu.unwrap().flops;
    assert_eq!(whole(renamed), whole(known));
}

#[test]
fn a_model_that_does_not_match_has_no_utilisation_of_the_whole() {
    let trace = roofgap_trace::read(&[fixture("h200/llama4.sqlite.gz")]).unwrap().trace;
    let tokens = Tokens { prompt: Some(1_000_000), generated: Some(8), ..Tokens::default() };
    let model = roofgap_analyze::model::preset("llama3_8b").ok();
    let analyzed = analyze(&trace, &Options { model, tokens, ..Options::default() });
    assert_eq!(stage(&analyzed, "prefill").mfu, None);
    let whole = analyzed.analysis.whole.as_ref().unwrap();
    assert_eq!((&whole.mfu, &whole.mbu), (&None, &None));
    let why = analyzed.analysis.reason(&About::Other("whole.mfu".to_owned())).unwrap();
    assert!(why.contains("do not match"), "{why}");
}

#[test]
fn one_gpu_of_several_has_no_mfu() {
    let mut input = roofgap_trace::read(&[fixture("vllm/vllm_dense_graph.sqlite.gz")]).unwrap();
    let talk = input.trace.names.intern("ncclDevKernel_AllReduce_Sum_bf16_RING_LL");
    let kernel = |op: &usize| input.trace.ops.kind[*op] == roofgap_trace::OpKind::Kernel;
    let ops: Vec<usize> = (0..input.trace.ops.len()).filter(kernel).collect();
    for op in ops {
        input.trace.ops.name[op] = talk;
    }
    let options =
        Options { model: Some(roofgap_analyze::model::preset("qwen3_0_6b").unwrap()), ..Options::default() };
    let analysis = analyze(&input.trace, &options).analysis;
    assert!(analysis.stages.iter().all(|stage| stage.mfu.is_none() && stage.mbu.is_none()));
    let why = analysis.reason(&roofgap_analyze::About::StageMfu("decode".into())).unwrap();
    assert!(why.contains("exchange data with other GPUs"), "{why}");
}

#[test]
fn the_steps_together_have_every_token_and_the_time_between_them() {
    let analyzed = analyzed("vllm/vllm_dense_graph.sqlite.gz");
    let serving = analyzed.analysis.serving.as_ref().unwrap();
    let slices = &serving.over_time;
    let steps = slices.iter().map(|slice| slice.prefill_steps + slice.mixed_steps + slice.decode_steps);
    assert_eq!(steps.sum::<u64>(), 28);
    let tokens = (
        slices.iter().filter_map(|slice| slice.context_tokens).sum::<u64>(),
        slices.iter().filter_map(|slice| slice.generation_tokens).sum::<u64>(),
    );
    assert_eq!(tokens, (7_680, 368));
    assert_eq!(serving.batches.iter().map(|batch| batch.steps).sum::<u64>(), 23);
    // Steps follow one another, so that only the way to the first kernel is added to their periods.
    let stages = &analyzed.analysis.stages;
    let periods: i64 = stages.iter().filter_map(|stage| stage.period_ns).sum();
    assert!(
        serving.span_ns >= periods && serving.span_ns < periods * 11 / 10,
        "{} {periods}",
        serving.span_ns
    );
    let rate = serving.generation_tokens_per_s.unwrap();
    assert!((rate - 368e9 / serving.span_ns as f64).abs() < 1e-6);
    assert_eq!((serving.replicas, serving.latency.as_ref()), (Some(1), None));
}

#[test]
fn requests_are_joined_with_steps_of_the_same_clock_only() {
    let mut input = roofgap_trace::read(&[fixture("vllm/vllm_dense_graph.sqlite.gz")]).unwrap();
    let end = *input.trace.ops.end.iter().max().unwrap();
    let requests = RequestStats {
        completed: 1,
        window_ns: end,
        each: vec![RequestTimes { first_ns: end, last_ns: end, ..RequestTimes::default() }],
        ..RequestStats::default()
    };
    let options = Options { recorded_requests: Some(requests), ..Options::default() };
    let path = About::Other("serving.latency".into());
    let nsys = analyze(&input.trace, &options).analysis;
    assert_eq!(nsys.serving.as_ref().unwrap().latency, None);
    assert!(nsys.reason(&path).unwrap().contains("wall clock"));
    // The native collector records the wall clock.
    for source in &mut input.trace.sources {
        source.format = SourceFormat::Native;
    }
    let native = analyze(&input.trace, &options).analysis;
    let latency = native.serving.unwrap().latency.unwrap();
    assert_eq!((latency.requests, latency.joined), (1, 1));
    let means: Vec<i64> = latency.ttft.iter().map(|part| part.mean_ns).collect();
    assert_eq!(means[0], end);
    assert_eq!(means[1..].iter().sum::<i64>(), end);
    assert!(means[3] > 0 && native.reasons.iter().all(|reason| reason.about != path));
}

/// Two processes with the same steps, of which the second was recorded for one step less.
#[test]
fn copies_of_the_model_in_several_processes_are_not_guessed() {
    let names = [
        "execute_context_1(100)_generation_0(0)",
        "execute_context_0(0)_generation_4(4)",
        "execute_context_0(0)_generation_4(4)",
    ];
    let rates = |recorded: [usize; 2], data: Option<u64>| {
        let mut events = Vec::new();
        for (process, recorded) in recorded.into_iter().enumerate() {
            for (name, at) in names.iter().zip(1..).skip(names.len() - recorded) {
                let own = event("user_annotation", name, 10, at * 100, 90, "");
                events.push(own.replace(r#""pid": 1"#, &format!(r#""pid": {}"#, process + 1)));
            }
        }
        let engine = data.map(|copies| EngineFacts {
            name: Some("vLLM".to_owned()),
            parallelism: Some([("data".to_owned(), copies)].into()),
            ..EngineFacts::default()
        });
        let options =
            Options { account: Some(Account { engine, ..Account::default() }), ..Options::default() };
        analyze(&kineto(&events), &options).analysis
    };
    let about = About::Other("serving.generation_tokens_per_s".into());
    for recorded in [[3, 3], [3, 2]] {
        let unknown = rates(recorded, None);
        let serving = unknown.serving.as_ref().unwrap();
        assert_eq!((serving.replicas, serving.generation_tokens_per_s), (None, None));
        assert!(unknown.reason(&about).unwrap().starts_with("2 processes ran steps"));
    }
    let rate = |data: u64| rates([3, 3], Some(data)).serving.unwrap();
    assert_eq!((rate(1).replicas, rate(2).replicas), (Some(1), Some(2)));
    let (one, two) = (rate(1).generation_tokens_per_s.unwrap(), rate(2).generation_tokens_per_s.unwrap());
    assert!((two / one - 2.0).abs() < 1e-9);
    assert!((one - 8e9 / 290_000.0).abs() < 1e-3, "{one}");
    assert_eq!(rates([3, 0], None).serving.unwrap().replicas, Some(1));
}

/// Weights, a loaded module, a captured graph and a trial run before the steps. Times in us.
#[test]
fn the_start_of_an_engine_is_in_no_stage() {
    let mut events = Vec::new();
    let mut event = |category: &str, name: &str, (start, end): (u32, u32), place: &str, more: &str| {
        events.push(format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "ts": {start}.5, "dur": {}.0, {place}, "args": {{{more}}}}}"#,
            end - start
        ));
    };
    let (host, gpu) = (r#""pid": 1, "tid": 1"#, r#""pid": 0, "tid": 7"#);
    let on_gpu = |correlation: u32, more: &str| {
        format!(r#""device": 0, "stream": 7, "correlation": {correlation}{more}"#)
    };
    let call = |correlation: u32| format!(r#""correlation": {correlation}"#);
    event("cuda_runtime", "cudaMemcpyAsync", (1_000, 1_100), host, &call(1));
    event(
        "gpu_memcpy",
        "Memcpy HtoD (Pinned -> Device)",
        (1_050, 3_050),
        gpu,
        &on_gpu(1, r#", "bytes": 4000000"#),
    );
    event("cuda_driver", "cuModuleLoadData", (3_100, 5_100), host, "");
    event("cuda_runtime", "cudaLaunchKernel", (5_200, 5_210), host, &call(2));
    event("kernel", "gemm", (5_220, 5_720), gpu, &on_gpu(2, ""));
    event("cuda_runtime", "cudaStreamBeginCapture", (6_000, 6_010), host, "");
    event("cuda_runtime", "cudaStreamEndCapture", (6_900, 7_000), host, "");
    event("cuda_runtime", "cudaGraphInstantiate", (7_000, 7_500), host, "");
    for step in 0..20 {
        let start = 10_000 + step * 1_000;
        event("user_annotation", "execute_context_0(0)_generation_8(8)", (start, start + 900), host, "");
        for kernel in 0..3 {
            let (at, id) = (start + 10 + kernel * 200, 100 + step * 3 + kernel);
            event("cuda_runtime", "cudaLaunchKernel", (at, at + 5), host, &call(id));
            event("kernel", "gemm", (at + 8, at + 198), gpu, &on_gpu(id, ""));
        }
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text =
        format!(r#"{{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{}]}}"#, events.join(",\n"));
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    let input = roofgap_trace::read(&[file.path().to_path_buf()]).unwrap();
    let analysis = analyze(&input.trace, &Options::default()).analysis;
    let startup = analysis.serving.unwrap().startup.unwrap();
    assert_eq!(startup.elapsed_ns, 9_000_000);
    assert_eq!(
        (startup.copied_bytes, startup.copy_ns, startup.loading_ns),
        (4_000_000, 2_000_000, 2_000_000)
    );
    assert_eq!((startup.captured_graphs, startup.capture_ns), (1, 1_500_000));
    assert_eq!((startup.kernel_count, startup.kernel_ns), (1, 500_000));
    let in_stages: u64 = analysis.stages.iter().map(|stage| stage.kernel_count).sum();
    assert_eq!((in_stages, analysis.totals.kernel_count), (60, 61));
    let captured = analyzed("vllm/vllm_dense_graph.sqlite.gz").analysis;
    assert_eq!(captured.serving.unwrap().startup, None, "it begins with the steps");
}
