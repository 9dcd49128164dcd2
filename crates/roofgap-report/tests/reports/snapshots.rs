//! Snapshots of every text format. `INSTA_UPDATE=always cargo test -p roofgap-report` accepts changes.

use crate::fixtures::{PLAIN, fixture, fixture_with_model, made};
use roofgap_analyze::{Knob, Mfu, OutputEffect, Overhead, Profiler, Term};
use roofgap_report::{PhaseLine, files, json, markdown, page, text};

#[test]
fn text_and_markdown_of_a_timeline_with_counters() {
    let case = fixture(&["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"]);
    insta::assert_snapshot!("llama4_text", text::render(&case.analysis, text::TextOptions::default()));
    insta::assert_snapshot!("llama4_kernels", markdown::kernels(case.bundle()));
    insta::assert_snapshot!("llama4_operators", markdown::operators(case.bundle()));
    insta::assert_snapshot!("llama4_report", markdown::report(case.bundle()));
    insta::assert_snapshot!("llama4_summary", markdown::stakeholder_summary(case.bundle()));
}

/// One page in plain words, whatever the capture.
#[test]
fn the_summary_is_one_page_without_terms_of_the_field() {
    let cases = [
        fixture_with_model(&["h200/dsocr2.sqlite.gz"], "deepseek_ocr2", (512, 8)),
        fixture(&["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"]),
        fixture(&["vllm/vllm_dense_graph.kineto.json.gz"]),
        fixture(&["ncu/mt_basic.ncu-rep.gz"]),
        made(PLAIN),
    ];
    for case in cases {
        let summary = markdown::stakeholder_summary(case.bundle());
        assert!(summary.lines().count() <= 90, "{} lines:\n{summary}", summary.lines().count());
        for word in ["-bound", "occupancy", "_ns", "stream", "launch-"] {
            assert!(!summary.contains(word), "{word} in {summary}");
        }
        let tables: String = summary.lines().filter(|line| line.starts_with('|')).collect();
        assert!(!tables.contains("warm"), "{tables}");
        let kernels = &case.analysis.kernels;
        let is_listed = kernels.iter().any(|kernel| tables.contains(&markdown::escape(&kernel.short_name)));
        assert!(is_listed || kernels.is_empty(), "{summary}");
        for heading in ["What to do first", "Aggregates", "Top Operators", "Top Kernels", "Environment"]
            .map(|name| format!("\n## {name}\n"))
        {
            assert!(summary.contains(&heading), "{summary}");
        }
    }
}

#[test]
fn summary_of_a_model_that_waits_for_the_cpu() {
    let case = fixture_with_model(&["h200/dsocr2.sqlite.gz"], "deepseek_ocr2", (512, 8));
    let summary = markdown::stakeholder_summary(case.bundle());
    for words in [
        "A step of decode takes 29.3 ms at the median (33.4 tokens/s over all steps); the GPU is idle 92 % of that time",
        "Times are those under the profiler",
        "119 times the shortest time",
        "CUDA graphs in decode. The GPU waits for the CPU",
        "10.9 times as fast",
    ] {
        assert!(summary.contains(words), "no {words:?} in {summary}");
    }
    insta::assert_snapshot!("dsocr2_summary", summary);
}

/// The time without a profiler comes first where it is known. GPU work is not faster without one.
#[test]
fn the_summary_states_times_without_a_profiler() {
    let mut case = fixture_with_model(&["h200/dsocr2.sqlite.gz"], "deepseek_ocr2", (512, 8));
    let overhead = |stage: &str| Overhead {
        tool: Profiler::Nsys,
        stage: stage.to_owned(),
        ratio: 2.0,
        interval: None,
        pairs: None,
        of_runs: None,
        stated: false,
    };
    case.analysis.overhead = vec![overhead("prefill"), overhead("decode")];
    case.context.title = "20261116-120000".to_owned();
    case.context.environment = vec![("started".to_owned(), "2026-11-16T12:00:00Z".to_owned())];
    case.context.phases =
        vec![PhaseLine { name: "baseline".to_owned(), status: "ok".to_owned(), ..PhaseLine::default() }];
    let summary = markdown::stakeholder_summary(case.bundle());
    for words in [
        " on NVIDIA H200, 2026-11-16\n",
        "A step of decode takes 14.6 ms at the median without the profiler, 29.3 ms with it (66.9 tokens/s over all steps without it)",
        "59.7 times the shortest time",
        "Mean times without a profiler.",
        // 14.9 ms a token, of which a graph leaves 2.75 ms.
        "decode could be 5.43 times as fast",
        "`roofgap compare 20261116-120000 latest`",
    ] {
        assert!(summary.contains(words), "no {words:?} in {summary}");
    }
    let knob = Knob {
        id: "hf.cuda_graphs".to_owned(),
        title: "CUDA graphs".to_owned(),
        changes: Vec::new(),
        output: OutputEffect::None,
        applies: String::new(),
    };
    case.analysis.findings[0].knobs = vec![knob];
    let summary = markdown::stakeholder_summary(case.bundle());
    assert!(summary.contains("```sh\nroofgap try 20261116-120000 launch-"), "{summary}");
}

/// Derivations of the terms of a model are not cut.
#[test]
fn terms_of_a_model_are_shown_whole() {
    let mut case = made(PLAIN);
    let how = "2 x 256 tokens x ".repeat(12) + "the end";
    let term = Term { name: "attention".into(), flops: 2e9, bytes: 3e6, how: how.clone() };
    case.analysis.stages[0].mfu = Some(Mfu {
        flops: 2e9,
        peak_flops_per_s: 989.4e12,
        dtype: "bf16".into(),
        terms: vec![term],
        ..Mfu::default()
    });
    let report = markdown::report(case.bundle());
    assert!(report.contains(&how), "{report}");
    assert!(report.contains("989.40 T (bf16)"), "{report}");
    // A stage without MFU does not hide the other stage.
    let mfu = report.split("## MFU").nth(1).unwrap();
    assert!(mfu.contains("| prefill |") && mfu.contains("| decode "), "{mfu}");
}

/// A stage that closes before its GPU work ends, and one on two GPUs: shares stay below 100 %, and the report says why.
#[test]
fn shares_stay_shares() {
    let mut case = made(PLAIN);
    let stage = &mut case.analysis.stages[0];
    (stage.wall_ns, stage.late_ns, stage.busy_ns) = (1_000, 9_000, Some(9_900));
    let other = &mut case.analysis.stages[1];
    (other.device_count, other.devices_per_instance) = (2, 2.0);
    (other.wall_ns, other.busy_ns) = (10_000, Some(19_000));
    let text = text::render(&case.analysis, text::TextOptions::default());
    assert!(text.contains("  99.0  ") && text.contains("  95.0  "), "{text}");
    assert!(text.contains("close before the GPU has finished"), "{text}");
    let report = markdown::report(case.bundle());
    assert!(report.contains("close before the GPU has finished"), "{report}");
}

#[test]
fn json_of_a_made_up_trace() {
    let case = made(PLAIN);
    insta::assert_snapshot!("made_json", json::pretty(&case.analysis));
}

#[test]
fn html_of_a_made_up_trace() {
    let case = made(PLAIN);
    let page = page::render(case.bundle());
    // Style and script are files of their own; the hash of the script stands in the policy.
    let (_, body) = page.split_once("<body>").unwrap();
    let (body, _) = body.split_once("<script>(").unwrap();
    insta::assert_snapshot!("made_html", body.replace("><", ">\n<"));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let bytes = || files(fixture(&["h200/llama4.sqlite.gz"]).bundle());
    assert_eq!(bytes(), bytes());
}

/// The means of a Stage 1 runner stand beside one instance of each stage in every report.
#[test]
fn stage_1_figures_stand_beside_the_profiled_run() {
    use roofgap_trace::account::{Stage1Figures, Stage1Mfu, Stage1Operator, Stage1Time, Statistic};
    let mut case = made(PLAIN);
    let time = |name: &str, mean_ns, std_ns| Stage1Time { name: name.into(), mean_ns, std_ns };
    case.analysis.stage1 = Some(Stage1Figures {
        path: "/out/<b>".into(),
        times: vec![time("decode", 44_000_000, 1_000_000), time("sam", 2_000_000, 0)],
        tokens: Some(Statistic { mean: 64.0, std: 0.5 }),
        tokens_per_s: Some(Statistic { mean: 42.7, std: 0.9 }),
        mfu: vec![Stage1Mfu { name: "model".into(), pct: 10.0 }],
        peak_tflops: Some(989.0),
        operators: vec![Stage1Operator {
            name: "aten::mm".into(),
            calls: 12,
            cpu_ns: 3_000_000,
            gpu_ns: 7_500_000,
        }],
    });
    let schema: serde_json::Value = serde_json::from_str(json::SCHEMA).unwrap();
    let document = serde_json::from_str(&json::pretty(&case.analysis)).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    let report = markdown::report(case.bundle());
    let (_, section) = report.split_once("\n## Stage 1\n\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    insta::assert_snapshot!("stage1_section", section);
    assert!(page::render(case.bundle()).contains("aten::mm"));
    assert!(text::render(&case.analysis, text::TextOptions::default()).contains("tokens/s"));
    assert!(markdown::operators(case.bundle()).contains("\n## Stage 1\n"));
    // Without a timeline nothing stands beside them.
    case.analysis.stages.clear();
    let report = markdown::report(case.bundle());
    assert!(report.contains("| Stage 1 mean ms |") && !report.contains("profiled wall"), "{report}");
}
