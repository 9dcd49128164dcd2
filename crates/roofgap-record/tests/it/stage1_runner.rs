//! Sessions of a stand-in for the Stage 1 runner under a real Hydra. `ROOFGAP_TEST_HYDRA` names a Python with hydra-core; run with
//! `--ignored real_hydra`.

use std::path::Path;

use crate::support::{Bench, NVIDIA_SMI, is_whole, json, stand_in};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::Cancel;
use roofgap_record::run::{Event, Outcome, profile};
use roofgap_runs::open::Overrides;
use roofgap_runs::open::run::Run;
use roofgap_runs::run_dir::PhaseName;
use serde_json::Value;

/// Runs a session of the stand-in over the images `1.png` and `2.png` of the bench. Returns the warnings too.
fn run(bench: &Bench, version: &str, overrides: &[&str]) -> Result<(Outcome, Vec<String>), Error> {
    let python =
        std::env::var("ROOFGAP_TEST_HYDRA").expect("ROOFGAP_TEST_HYDRA must name a Python with hydra-core");
    let stub = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stand-in/stage1");
    bench.script("bin/nvidia-smi", NVIDIA_SMI);
    for name in ["images/1.png", "images/2.png"] {
        bench.script(name, name);
    }
    let mut all = vec![
        "workload=hydra".to_owned(),
        "workload.module=stage1_stub".to_owned(),
        format!("workload.python='{python}'"),
        format!("workload.cwd='{}'", stub.canonicalize().unwrap().display()),
        format!("workload.overrides=[dataset.root={}]", bench.path("images").display()),
        format!("+workload.env.STAGE1_STUB_CONFIG={version}"),
        "+workload.env.PYTHONDONTWRITEBYTECODE='1'".to_owned(),
        "+workload.env.STANDIN_LAUNCHES=5".to_owned(),
        stand_in("nsys"),
        stand_in("ncu"),
    ];
    all.extend(overrides.iter().map(|text| (*text).to_owned()));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut warnings = Vec::new();
    let outcome = profile(&bench.props(&[], &all), &Cancel::new(), &mut |event| {
        if let Event::Warning(text) = event {
            warnings.push(text.to_owned());
        }
    })?;
    Ok((outcome, warnings))
}

fn argv(outcome: &Outcome, phase: PhaseName) -> &[String] {
    &outcome.record.phase(phase).unwrap().commands[0].argv
}

fn image_names(done: &Value) -> Vec<&str> {
    let images = done["images"].as_array().unwrap().iter();
    images.map(|path| path.as_str().unwrap().rsplit('/').next().unwrap()).collect()
}

#[test]
#[ignore = "needs hydra-core: set ROOFGAP_TEST_HYDRA"]
fn real_hydra_stage1_runner_is_profiled_lightly_and_read() {
    let bench = Bench::new();
    let (outcome, warnings) = run(&bench, "first", &[]).unwrap();
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
    assert_eq!(warnings, Vec::<String>::new());
    is_whole(&outcome);
    for (phase, folder) in [
        (PhaseName::Baseline, "baseline"),
        (PhaseName::Timeline, "timeline"),
        (PhaseName::Counters, "counters"),
    ] {
        let argv = argv(&outcome, phase);
        let output = outcome.run_dir.join("program").join(folder);
        for word in [
            "runners=stage1.no-static",
            "repeats=1",
            "outputs.save_predictions=false",
            "outputs.visualization.enable=false",
            "torch_profiler.enabled=false",
            &format!("hydra.run.dir={}", output.display()),
        ] {
            assert!(argv.iter().any(|found| found == word), "{phase}: no {word} in {argv:?}");
        }
        let done = json(&outcome, &format!("program/{folder}/done.json"));
        assert_eq!(
            (&done["profiler"], &done["static"], &done["visualization"]),
            (&false.into(), &false.into(), &false.into())
        );
        assert_eq!(image_names(&done), ["1.png"]);
        let env = &outcome.record.phase(phase).unwrap().commands[0].env;
        assert!(env.contains_key("ROOFGAP_ANNOTATE"), "{phase}: {env:?}");
    }

    let account = json(&outcome, "baseline/workload.json");
    assert_eq!(account["model"]["name"], "deepseek_ocr");
    assert_eq!(account["model"]["dtype"], "bf16");
    assert_eq!(account["tokens"]["batch"], 1);
    // One more short run with its own profiler on gives the operators; ranges are none.
    assert!(argv(&outcome, PhaseName::Operators).iter().any(|word| word == "torch_profiler.enabled=true"));
    assert_eq!(json(&outcome, "program/operators/done.json")["profiler"], true);
    let metrics = json(&outcome, "metrics.json");
    assert_eq!(metrics["stage1"]["operators"][0]["name"], "aten::mm");
    assert_eq!(metrics["operators"], serde_json::json!([]));
    let operators = std::fs::read_to_string(outcome.run_dir.join("operators.md")).unwrap();
    assert!(operators.contains("aten::mm") && !operators.contains("decode"), "{operators}");
    assert_eq!(metrics["stage1"]["tokens_per_s"]["mean"], 500.0);
    let stages: Vec<&str> =
        metrics["stages"].as_array().unwrap().iter().map(|stage| stage["name"].as_str().unwrap()).collect();
    assert_eq!(stages, ["prefill", "decode"]);
    let summary = std::fs::read_to_string(outcome.run_dir.join("stakeholder_summary.md")).unwrap();
    assert!(summary.starts_with("# Summary: deepseek\\_ocr on "), "{summary}");
    let report = std::fs::read_to_string(outcome.run_dir.join("report.md")).unwrap();
    assert!(report.contains("| tokens/s ") && report.contains(" 500.00 "), "{report}");
    let inputs = std::fs::read_to_string(outcome.run_dir.join("inputs.yaml")).unwrap();
    assert!(inputs.contains("1.png") && !inputs.contains("2.png"), "{inputs}");

    // The preset that the module names is a known model, and what the user states of the run fills what the runner did not write.
    let reasons = metrics["reasons"].to_string();
    assert!(reasons.contains("workload.prompt_tokens=N") && !reasons.contains("--set"), "{reasons}");
    assert!(!reasons.contains("the model is unknown"), "{reasons}");
    let overrides =
        ["model=deepseek_ocr", "workload.prompt_tokens=512", "workload.vision_tokens=273"].map(str::to_owned);
    let again =
        Run::open_with(&outcome.run_dir, &overrides).unwrap().open_recordings(&Overrides::default()).analysis;
    let workload = again.workload.unwrap();
    assert_eq!((workload.prompt_tokens, workload.vision_tokens), (Some(512), Some(273)));
    assert_eq!(workload.model.as_deref(), Some("deepseek-ai/DeepSeek-OCR"));
    // The stand-in runs no such model, so that its work does not fit; but nothing about it is unknown any more.
    assert!(!again.reasons.iter().any(|reason| reason.why.contains("is not known")), "{:?}", again.reasons);
}

#[test]
#[ignore = "needs hydra-core: set ROOFGAP_TEST_HYDRA"]
fn real_hydra_stage1_runner_with_later_keys_uses_every_item_of_a_manifest() {
    let bench = Bench::new();
    let manifest = bench.script("inputs.yaml", "- images/2.png\n- image: images/1.png\n");
    let manifest = format!("inputs.manifest='{}'", manifest.display());
    let (outcome, warnings) = run(&bench, "later", &[&manifest, "runner=unwatched"]).unwrap();
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
    assert_eq!(warnings, Vec::<String>::new());
    let argv = argv(&outcome, PhaseName::Baseline);
    for word in [
        "pipeline.torch_profiler.enable=false",
        "pipeline.static_analysis.enable=false",
        "dataset.sampling.num_samples_per_epoch=2",
    ] {
        assert!(argv.iter().any(|found| found == word), "no {word} in {argv:?}");
    }
    assert!(!argv.iter().any(|word| word.contains("inputs.manifest")), "{argv:?}");
    let done = json(&outcome, "program/baseline/done.json");
    assert_eq!(image_names(&done), ["2.png", "1.png"]);
    let inputs = std::fs::read_to_string(outcome.run_dir.join("inputs.yaml")).unwrap();
    assert_eq!(inputs.matches("sha256:").count(), 6, "the manifest and two images: {inputs}");

    bench.script("inputs.yaml", "- image: images/2.png\n  prompt: Read it.\n");
    let (outcome, _) = run(&bench, "later", &[&manifest, "runner=unwatched"]).unwrap();
    assert_eq!(outcome.exit, Exit::Usage);
    let why = crate::support::why(&outcome, PhaseName::Preflight);
    assert!(why.contains("some items have a prompt"), "{why}");
}

#[test]
#[ignore = "needs hydra-core: set ROOFGAP_TEST_HYDRA"]
fn real_hydra_stage1_runner_with_its_profiler_on_is_a_warning() {
    let bench = Bench::new();
    let overrides = format!(
        "workload.overrides=[dataset.root={},torch_profiler.enabled=true]",
        bench.path("images").display()
    );
    let (outcome, warnings) = run(&bench, "first", &[&overrides, "runner=unwatched"]).unwrap();
    assert_eq!(outcome.exit, Exit::Done, "{:?}", outcome.record.missing);
    let warnings = warnings.join("\n");
    assert!(warnings.contains("stays on (torch_profiler)"), "{warnings}");
    assert!(warnings.contains("baseline: torch.profiler of the module ran"), "{warnings}");
    let operators = &json(&outcome, "metrics.json")["stage1"]["operators"];
    assert_eq!(operators[0]["name"], "aten::mm");
    assert_eq!(operators[0]["gpu_ns"], 30_000_000);
}
