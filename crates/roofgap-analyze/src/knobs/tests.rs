use super::*;
use crate::engines::knob::flag;
use crate::findings;
use crate::model;
use crate::result::{EngineInfo, Finding, Knob, KnobChange, OutputEffect, Stage, StageKind};
use serde_json::json;

fn finding(id: &str, stage: &str, evidence: serde_json::Value) -> Finding {
    Finding {
        id: id.to_owned(),
        stage: Some(stage.to_owned()),
        evidence: serde_json::from_value(evidence).unwrap(),
        ..Finding::default()
    }
}

fn knobs(finding: Finding, workload: &WorkloadFacts, model: Option<&Architecture>) -> Vec<Knob> {
    let (name, kind) = match finding.stage.as_deref() {
        Some("decode") => ("decode", StageKind::Decode),
        _ => ("prefill", StageKind::Prefill),
    };
    let stages = vec![Stage { name: name.to_owned(), kind, ..Stage::default() }];
    let mut analysis = Analysis { findings: vec![finding], stages, ..Analysis::default() };
    attach(&mut analysis, workload, model);
    analysis.findings.remove(0).knobs
}

fn ids(knobs: &[Knob]) -> Vec<&str> {
    knobs.iter().map(|knob| knob.id.as_str()).collect()
}

fn hf() -> HfFacts {
    HfFacts { batch: 1, dtype: "bf16".to_owned(), ..HfFacts::default() }
}

fn command(line: &str) -> WorkloadFacts {
    let words: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
    WorkloadFacts::Program(ProgramFacts {
        words: line.split(' ').map(str::to_owned).collect(),
        engine_command: Engine::of_command(&words),
    })
}

#[test]
fn launch_bound_decode_offers_graphs_and_compilation() {
    let found = knobs(finding("launch-bound", "decode", json!({})), &WorkloadFacts::Hf(hf()), None);
    assert_eq!(ids(&found), ["hf.cuda_graphs", "hf.compile"]);
    assert_eq!(found[0].changes, [set("workload.cuda_graphs", true)]);
    assert_eq!(found[0].output, OutputEffect::Rounding);
}

#[test]
fn the_driver_changes_decode_only() {
    let found = knobs(finding("launch-bound", "prefill", json!({})), &WorkloadFacts::Hf(hf()), None);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_setting_in_effect_is_not_offered() {
    let set = WorkloadFacts::Hf(HfFacts { compile: true, cuda_graphs: true, ..hf() });
    let found = knobs(finding("launch-bound", "decode", json!({})), &set, None);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn graphs_of_a_mixture_of_experts_need_batched_experts() {
    let model = model::preset("deepseek_ocr2").unwrap();
    let launch = || finding("launch-bound", "decode", json!({}));
    let found = knobs(launch(), &WorkloadFacts::Hf(hf()), Some(&model));
    assert_eq!(ids(&found), ["hf.cuda_graphs", "hf.compile", "hf.experts"]);
    let batched = set("model.experts", "batched_mm");
    assert_eq!(found[0].changes[1], batched);
    assert_eq!(found[2].changes, [batched]);
    let already = WorkloadFacts::Hf(HfFacts { experts: Some("batched_mm".to_owned()), ..hf() });
    let found = knobs(launch(), &already, Some(&model));
    assert_eq!(ids(&found), ["hf.cuda_graphs", "hf.compile"]);
    assert_eq!(found[0].changes.len(), 1);
}

#[test]
fn a_graph_of_a_dense_model_changes_no_kernel() {
    let small = || finding("small-kernels", "decode", json!({}));
    let facts = WorkloadFacts::Hf(hf());
    assert_eq!(ids(&knobs(small(), &facts, None)), ["hf.compile", "hf.batch"]);
    let model = model::preset("deepseek_ocr2").unwrap();
    let found = knobs(small(), &facts, Some(&model));
    assert_eq!(ids(&found), ["hf.cuda_graphs", "hf.compile", "hf.experts", "hf.batch"]);
    assert!(found[3].adds_work() && !found[0].adds_work());
}

#[test]
fn a_batch_fills_the_device_by_the_evidence() {
    let found = knobs(
        finding("small-kernels", "decode", json!({"multiprocessors": 132, "largest_blocks": 30})),
        &WorkloadFacts::Hf(hf()),
        None,
    );
    let batch = found.iter().find(|knob| knob.id == "hf.batch").unwrap();
    assert_eq!(batch.changes, [set("workload.batch", 4)]);
    assert_eq!(batch.output, OutputEffect::Changes);
}

#[test]
fn eager_attention_and_wide_weights_are_replaced() {
    let facts =
        WorkloadFacts::Hf(HfFacts { attention: Some("eager".to_owned()), dtype: "fp32".to_owned(), ..hf() });
    let found = knobs(finding("launch-bound", "prefill", json!({})), &facts, None);
    assert_eq!(ids(&found), ["hf.attention"]);
    let found = knobs(finding("tensor-cores-idle", "prefill", json!({})), &facts, None);
    assert_eq!(ids(&found), ["hf.dtype"]);
}

#[test]
fn the_embedded_model_gets_its_cache_back() {
    let facts = WorkloadFacts::Embedded { kv_cache: false, context_limit: None };
    let again = || finding("context-recomputed", "decode", json!({"mean_context_tokens": 90.5}));
    let found = knobs(again(), &facts, None);
    assert_eq!(ids(&found), ["embedded.kv_cache", "embedded.context_limit"]);
    assert_eq!(found[1].changes, [set("workload.context_limit", 22)]);
    assert_eq!(found[1].output, OutputEffect::Changes);
    let cached = WorkloadFacts::Embedded { kv_cache: true, context_limit: None };
    assert!(knobs(again(), &cached, None).is_empty());
}

#[test]
fn vllm_leaves_eager_mode_in_the_spelling_of_the_user() {
    let launch = || finding("launch-bound", "decode", json!({}));
    let found = knobs(launch(), &command("vllm serve m --enforce_eager --port 1"), None);
    assert_eq!(ids(&found), ["vllm.no_enforce_eager", "vllm.cuda_graphs", "vllm.async_scheduling"]);
    assert_eq!(
        found[0].changes,
        [KnobChange::RemoveFlag { flag: "--enforce_eager".to_owned(), takes_value: false }]
    );
    let found = knobs(launch(), &command("vllm serve m --no-async-scheduling"), None);
    assert_eq!(ids(&found), ["vllm.async_scheduling"]);
    assert!(matches!(&found[0].changes[..], [KnobChange::RemoveFlag { .. }]));
    let found = knobs(launch(), &command("vllm serve m --async-scheduling"), None);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_script_loses_flags_but_gets_none() {
    let mut analysis = Analysis {
        findings: vec![finding("launch-bound", "decode", json!({}))],
        engine: Some(EngineInfo { name: "vLLM".to_owned(), ..EngineInfo::default() }),
        ..Analysis::default()
    };
    attach(&mut analysis, &command("python3 offline.py --enforce-eager"), None);
    assert_eq!(ids(&analysis.findings[0].knobs), ["vllm.no_enforce_eager"]);
    attach(&mut analysis, &command("python3 offline.py"), None);
    assert!(analysis.findings[0].knobs.is_empty());
    analysis.engine = None;
    attach(&mut analysis, &command("python3 offline.py --enforce-eager"), None);
    assert!(analysis.findings[0].knobs.is_empty());
}

#[test]
fn values_come_from_the_evidence() {
    let graphs =
        finding("graphs-not-used", "decode", json!({"batch_sizes": [3, 75], "largest_graph_batch": 64}));
    let found = knobs(graphs.clone(), &command("vllm serve m"), None);
    assert_eq!(found[0].changes, [flag("--max-cudagraph-capture-size", 80)]);
    let older = knobs(graphs.clone(), &command("sglang serve --cuda-graph-max-bs 64"), None);
    assert_eq!(older[0].changes, [flag("--cuda-graph-max-bs", 75)]);
    let found = knobs(graphs, &command("sglang.launch_server"), None);
    assert_eq!(found[0].changes, [flag("--cuda-graph-max-bs-decode", 75)]);

    let batch = finding("batch-too-small", "decode", json!({"requests_in_flight": 50.2}));
    let found = knobs(batch.clone(), &command("vllm serve m --max-num-seqs 16"), None);
    assert_eq!(found[0].changes, [flag("--max-num-seqs", 64)]);
    for high_enough in ["vllm serve m --max-num-seqs=64", "vllm serve m"] {
        assert!(knobs(batch.clone(), &command(high_enough), None).is_empty(), "{high_enough}");
    }
}

#[test]
fn sglang_has_several_flags_that_turn_off_graphs() {
    let launch = || finding("launch-bound", "decode", json!({}));
    for (line, flag, takes_value) in [
        ("sglang serve --disable-cuda-graph", "--disable-cuda-graph", false),
        ("sglang serve --disable-decode-cuda-graph", "--disable-decode-cuda-graph", false),
        ("sglang serve --cuda-graph-backend-decode disabled", "--cuda-graph-backend-decode", true),
        ("sglang serve --cuda_graph_backend_decode=disabled", "--cuda_graph_backend_decode", true),
    ] {
        let found = knobs(launch(), &command(line), None);
        assert_eq!(ids(&found), ["sglang.cuda_graphs"], "{line}");
        assert_eq!(found[0].changes, [KnobChange::RemoveFlag { flag: flag.to_owned(), takes_value }]);
    }
    assert!(knobs(launch(), &command("sglang serve --cuda-graph-backend-decode full"), None).is_empty());
}

#[test]
fn prompts_are_read_in_smaller_chunks() {
    let starved = || finding("decode-starved", "mixed", json!({}));
    for (line, changed) in [
        ("vllm serve m --max-num-batched-tokens 8192", Some(("--max-num-batched-tokens", 2048))),
        ("vllm serve m --max-num-batched-tokens 512", None),
        ("sglang serve --chunked-prefill-size -1", Some(("--chunked-prefill-size", 2048))),
    ] {
        let found = knobs(starved(), &command(line), None);
        let changes: Vec<KnobChange> = found.into_iter().flat_map(|knob| knob.changes).collect();
        let wanted: Vec<KnobChange> = changed.into_iter().map(|(name, value)| flag(name, value)).collect();
        assert_eq!(changes, wanted, "{line}");
    }
}

#[test]
fn each_knob_has_a_text_and_each_text_a_knob() {
    let engines = crate::engines::ENGINES.into_iter().flat_map(|engine| engine.knobs);
    let rules: Vec<&str> = EMBEDDED.iter().chain(engines).map(|rule| rule.id).collect();
    let texts: Vec<&str> = FACTS.iter().map(|facts| facts.id).collect();
    assert_eq!(rules, texts);
    let text = include_str!("../../texts/knobs.md");
    for (facts, (_, section)) in FACTS.iter().zip(sections(text, "\n## ")) {
        assert_eq!(facts.output.as_str(), setting(section, "output"), "{}", facts.id);
        assert!(!facts.title.is_empty() && !facts.applies.is_empty(), "{}", facts.id);
        assert!(facts.findings.iter().all(|id| findings::explain(id).is_some()), "{}", facts.id);
    }
}
