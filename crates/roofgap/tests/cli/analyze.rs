//! `roofgap analyze` on real captures.

use crate::support::{fixture, listing, ok, packed, roofgap, run, unpacked};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

fn json(inputs: &[&str]) -> Value {
    let mut args = vec!["analyze".to_owned(), "--format=json".to_owned()];
    args.extend(inputs.iter().map(|name| fixture(name).display().to_string()));
    serde_json::from_str(&ok(args).stdout).unwrap()
}

fn stage<'a>(analysis: &'a Value, name: &str) -> &'a Value {
    let stages = analysis["stages"].as_array().unwrap();
    stages.iter().find(|stage| stage["name"] == name).unwrap()
}

#[test]
fn the_table_says_where_the_time_of_a_real_capture_goes() {
    let run = ok(["analyze", "fixtures/h200/dsocr2.sqlite.gz", "--full"]);
    insta::assert_snapshot!("dsocr2", run.stdout);
    assert_eq!(run.stderr, "");
    assert!(!run.stdout.contains('\x1b'), "colour in a pipe");
}

#[test]
fn a_timeline_and_counters_are_joined() {
    let run = ok([
        "analyze",
        "fixtures/h200/llama4.sqlite.gz",
        "fixtures/ncu/llama4_light_raw_base.csv.gz",
        "--top=3",
    ]);
    insta::assert_snapshot!("llama4_with_counters", run.stdout);
}

#[test]
fn the_numbers_are_those_of_nsys_to_the_nanosecond() {
    let analysis = json(&["h200/dsocr2.sqlite.gz"]);
    let decode = stage(&analysis, "decode");
    assert_eq!(decode["kernel_count"], 7208);
    assert_eq!(decode["kernel_ns"], 17_863_193);
    assert_eq!(decode["wall_ns"], 239_255_440);
    let busy = decode["busy_ns"].as_f64().unwrap() / decode["wall_ns"].as_f64().unwrap();
    assert!((0.07..0.08).contains(&busy), "{busy}");
    let idle = &decode["idle"];
    let launch = idle["launch_ns"].as_i64().unwrap();
    let rest: i64 =
        ["sync_ns", "copy_ns", "other_ns"].map(|cause| idle[cause].as_i64().unwrap()).iter().sum();
    assert!(launch > 100 * rest, "the CPU is not named as the reason: {idle}");
}

#[test]
fn json_follows_the_schema_for_every_kind_of_input() {
    let schema: Value = serde_json::from_str(&ok(["schema"]).stdout).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for inputs in [
        &["h200/dsocr2.sqlite.gz"] as &[&str],
        &["h200/llama4.kineto.json.gz"],
        &["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"],
        &["h200/llama4_cuda_gpu_kern_sum.csv.gz"],
        &["ncu/mt_basic.ncu-rep.gz"],
        &["ncu/mt_basic_details.csv.gz"],
        &["native/stand-in.rgcap"],
        &["nsys-versions/nsys-2022.4.2-cpu-nvtx.sqlite.gz"],
    ] {
        let analysis = json(inputs);
        let wrong: Vec<String> = validator
            .iter_errors(&analysis)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{inputs:?}: {wrong:#?}");
        assert_eq!(analysis["schema"], "roofgap.analysis/1");
        assert_eq!(analysis["sources"].as_array().unwrap().len(), inputs.len());
    }
}

#[test]
fn a_model_gives_utilisation_and_a_stage_can_be_named() {
    let path = fixture("h200/dsocr2.sqlite.gz").display().to_string();
    let run = ok([
        "analyze",
        &path,
        "--format=json",
        "--stage=vision=sam,vision_encoder",
        "--model=deepseek_ocr2",
        "--set=workload.prompt_tokens=400",
        "--set=workload.tokens=8",
    ]);
    let analysis: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(stage(&analysis, "decode")["mbu"].is_object());
    assert!(stage(&analysis, "vision")["kernel_count"].as_u64().unwrap() > 0);
}

#[test]
fn without_a_stage_the_ranges_of_the_capture_are_listed() {
    // A program with range names that no stage knows.
    let trace = r#"{"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "my_loop", "pid": 1, "tid": 1, "ts": 1, "dur": 100},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 5, "args": {"correlation": 7}},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 20, "dur": 50, "args": {"correlation": 7, "device": 0, "stream": 7}}]}"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    std::fs::write(&path, trace).unwrap();
    let run = ok(["analyze".as_ref(), "--full".as_ref(), path.as_os_str()]);
    assert!(run.stdout.contains("my_loop"), "{}", run.stdout);
    assert!(run.stdout.contains("\nKernels\n"), "{}", run.stdout);

    let named = ok(["analyze".as_ref(), "--stage=loop=my_*".as_ref(), path.as_os_str()]);
    assert!(named.stdout.lines().any(|line| line.starts_with("loop ")), "{}", named.stdout);
}

#[test]
fn a_requested_stage_without_a_match_is_missing() {
    // The capture has steps of decode, but they do not match the pattern.
    let run = run(["analyze", "fixtures/h200/llama4.sqlite.gz", "--stage=decode=generate", "--format=json"]);
    assert_eq!(run.status, Some(3), "{}", run.stderr);
    let analysis: Value = serde_json::from_str(&run.stdout).unwrap();
    let names: Vec<&Value> =
        analysis["stages"].as_array().unwrap().iter().map(|stage| &stage["name"]).collect();
    assert_eq!(names, ["prefill"]);
    for words in ["no stage decode", "no range matches generate", "LLM@decode_step"] {
        assert!(run.stderr.contains(words), "no {words:?} in {}", run.stderr);
    }
    let reasons = analysis["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| reason["about"] == "stages.decode"), "{reasons:?}");
    // Steps inside a matching range still belong to the stage.
    let all = json(&["h200/llama4.sqlite.gz"]);
    let named =
        ok(["analyze", "fixtures/h200/llama4.sqlite.gz", "--stage=decode=LLM@decode_all", "--format=json"]);
    let named: Value = serde_json::from_str(&named.stdout).unwrap();
    assert_eq!(stage(&named, "decode"), stage(&all, "decode"));
}

#[test]
fn two_timelines_are_one_too_many() {
    let run = run(["analyze", "fixtures/h200/llama4.sqlite.gz", "fixtures/h200/llama4.kineto.json.gz"]);
    assert_eq!(run.status, Some(2));
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("llama4.kineto.json.gz"), "{}", run.stderr);
    assert!(run.stderr.contains("roofgap compare"), "{}", run.stderr);
}

#[test]
fn the_input_and_its_folder_are_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = folder.path().join("capture.sqlite");
    std::fs::write(&sqlite, unpacked("h200/llama4.sqlite.gz")).unwrap();
    std::fs::copy(fixture("ncu/llama4_light_raw_base.csv.gz"), folder.path().join("raw.csv.gz")).unwrap();
    let read_only = |only: bool| {
        let mode = if only { 0o555 } else { 0o755 };
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    read_only(true);
    let before = listing(folder.path());
    let mut command = roofgap(["analyze", "capture.sqlite", "raw.csv.gz"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let after = listing(folder.path());
    read_only(false);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(before, after);
}

#[test]
fn out_writes_every_report_and_stdout_still_carries_only_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep/reports");
    let args = |more: &str| {
        let path = fixture("h200/llama4.sqlite.gz").display().to_string();
        ok(["analyze", &path, "--format=json", more])
    };
    let plain = args("--top=12");
    let run = args(&format!("--out={}", out.display()));
    assert_eq!(run.stdout, plain.stdout);
    for name in
        ["metrics.json", "kernels.md", "operators.md", "report.md", "stakeholder_summary.md", "report.html"]
    {
        assert!(std::fs::metadata(out.join(name)).unwrap().len() > 100, "{name}");
        assert!(run.stderr.contains(name), "{name} is not announced: {}", run.stderr);
    }
    let metrics = std::fs::read_to_string(out.join("metrics.json")).unwrap();
    assert_eq!(metrics, run.stdout);
}

#[test]
fn a_packed_capture_and_an_unpacked_one_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let answer = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let run = ok(["analyze", "--format=json", path.to_str().unwrap()]);
        let mut analysis: Value = serde_json::from_str(&run.stdout).unwrap();
        analysis["sources"][0]["path"] = Value::Null;
        analysis
    };
    for name in ["nsys-versions/nsys-2023.4.4-cpu-nvtx.sqlite.gz", "h200/llama4.kineto.json.gz"] {
        let bytes = unpacked(name);
        // Neither name has an extension.
        assert_eq!(answer("a", &bytes), answer("b", &packed(&bytes)), "{name}");
    }
}

#[test]
fn ncu_input_alone_names_its_device_and_judges_its_kernels() {
    for name in ["ncu/mt_basic.ncu-rep.gz", "ncu/mt_basic_raw.csv.gz"] {
        let analysis = json(&[name]);
        assert_eq!(analysis["devices"][0]["name"], "NVIDIA H200", "{name}");
        assert_eq!(analysis["totals"]["from"], "counters", "{name}");
        assert_eq!(analysis["kernels"][0]["calls"], 5, "{name}");
        let counters = &analysis["kernels"][0]["counters"];
        assert_eq!(counters["bound"], "compute-bound", "{name}");
        assert!(counters["reason"].as_str().unwrap().contains("60 % of its peak"), "{name}");
    }
}

#[test]
fn a_stated_time_is_called_stated_and_needs_a_stage() {
    let capture = "fixtures/h200/llama4.sqlite.gz";
    let told = ok(["analyze", capture, "--unprofiled=decode=3ms", "--format=markdown"]).stdout;
    assert!(told.contains("the stated time without it") && !told.contains("a run with and"), "{told}");
    let wrong = run(["analyze", capture, "--unprofiled=decoding=3ms"]);
    assert_eq!(wrong.status, Some(2));
    let why = "--unprofiled decoding: no such stage; the stages are prefill, decode";
    assert!(wrong.stderr.contains(why), "{}", wrong.stderr);
}

#[test]
fn exports_are_written_where_they_are_asked_for() {
    let nowhere = run(["export", "perfetto", "fixtures/h200/llama4.sqlite.gz"]);
    assert!(nowhere.status == Some(2) && nowhere.stderr.contains("--out <FILE>"), "{}", nowhere.stderr);

    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    ok(["export", "folded", "fixtures/h200/llama4.sqlite.gz", "--out", &file("folded")]);
    assert!(std::fs::read_to_string(file("folded")).unwrap().contains("decode_step;"));

    // Totals have no stacks: an error, and no file.
    let totals = "fixtures/h200/llama4_cuda_gpu_kern_sum.csv.gz";
    let run = run(["export", "folded", totals, "--out", &file("absent")]);
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("no stacks to write"), "{}", run.stderr);
    assert!(!folder.path().join("absent").exists());
}

#[test]
fn the_option_for_a_missing_number_of_tokens_is_named() {
    let shown = ok([
        "analyze",
        "fixtures/h200/dsocr2.sqlite.gz",
        "--model=deepseek_ocr2",
        "--set=workload.prompt_tokens=400",
        "--set=workload.tokens=8",
        "--full",
    ])
    .stdout;
    let line = "no MFU or MBU of prefill: the number of vision tokens is not known";
    let found = shown.lines().find(|shown| shown.starts_with(line));
    assert!(found.is_some_and(|line| line.contains("(--set workload.vision_tokens=N")), "{shown}");
}

#[test]
fn a_pattern_that_no_kernel_matches_is_no_empty_input() {
    let shown = ok(["analyze", "fixtures/h200/llama4.sqlite.gz", "--kernel=zzz"]).stdout;
    assert!(shown.contains("of the input matches the pattern."), "{shown}");
    assert!(!shown.contains("the input has no kernels"), "{shown}");
}

#[test]
fn advice_fits_the_kind_of_the_capture() {
    let shown = ok(["analyze", "fixtures/h200/llama4.kineto.json.gz", "--full"]).stdout;
    assert!(shown.contains("torch.profiler.record_function"), "{shown}");
    assert!(!shown.contains("NVTX"), "{shown}");
}

#[test]
fn the_way_to_the_roof_is_told_where_it_is_not_known() {
    let shown = ok(["analyze", "fixtures/h200/llama4.sqlite.gz", "--full"]).stdout;
    let told = "The distance to the roof is not known: it needs counters of ncu";
    assert_eq!(shown.matches(told).count(), 1, "{shown}");
    let report = ok(["analyze", "fixtures/h200/llama4.sqlite.gz", "--format=markdown"]).stdout;
    assert!(report.contains(told), "{report}");
    let measured =
        ok(["analyze", "fixtures/h200/llama4.sqlite.gz", "fixtures/ncu/llama4_light_raw.csv.gz", "--full"])
            .stdout;
    assert!(!measured.contains(told), "{measured}");
}
