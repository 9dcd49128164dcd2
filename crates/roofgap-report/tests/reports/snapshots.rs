//! Snapshots of every text format. `INSTA_UPDATE=always cargo test -p roofgap-report` accepts changes.

use crate::fixtures::{PLAIN, fixture, made};
use roofgap_analyze::{Mfu, Term};
use roofgap_report::{files, json, markdown, page, text};

#[test]
fn text_and_markdown_of_a_timeline_with_counters() {
    let case = fixture(&["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"]);
    insta::assert_snapshot!("llama4_text", text::render(&case.analysis, text::TextOptions::default()));
    insta::assert_snapshot!("llama4_kernels", markdown::kernels(case.bundle()));
    insta::assert_snapshot!("llama4_operators", markdown::operators(case.bundle()));
    insta::assert_snapshot!("llama4_report", markdown::report(case.bundle()));
    insta::assert_snapshot!("llama4_summary", markdown::stakeholder_summary(case.bundle()));
}

#[test]
fn summary_of_a_model_that_is_launch_bound() {
    let case = fixture(&["h200/dsocr2.sqlite.gz"]);
    let summary = markdown::stakeholder_summary(case.bundle());
    let first = summary.lines().find(|l| l.starts_with("- ")).unwrap();
    assert!(first.contains("decode is launch-bound"), "{first}");
    let (top, _) = summary.split_once("\n## ").unwrap();
    assert!(top.lines().filter(|l| l.starts_with("- ")).count() <= 10, "{top}");
    assert!(!summary.contains("_ns"), "numbers without a unit are for programs");
    for table in summary.lines().filter(|l| l.starts_with("| stage ")) {
        assert!(table.len() < 170, "{table}");
    }
    insta::assert_snapshot!("dsocr2_summary", summary);
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
    assert!(markdown::stakeholder_summary(case.bundle()).contains("| tokens/s "));
    assert!(page::render(case.bundle()).contains("aten::mm"));
    assert!(text::render(&case.analysis, text::TextOptions::default()).contains("tokens/s"));
    assert!(markdown::operators(case.bundle()).contains("\n## Stage 1\n"));
    // Without a timeline nothing stands beside them.
    case.analysis.stages.clear();
    let summary = markdown::stakeholder_summary(case.bundle());
    assert!(summary.contains("| Stage 1 mean ms |") && !summary.contains("profiled wall"), "{summary}");
}
