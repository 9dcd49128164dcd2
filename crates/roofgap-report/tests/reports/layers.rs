//! Kernel time by layer in every report.

use crate::fixtures::{Case, PLAIN, made};
use roofgap_analyze::{About, LayerRow, LayerSpread, Reason};
use roofgap_report::{json, markdown, page, text};

fn with_layers() -> Case {
    let mut case = made(PLAIN);
    let row = |layer: Option<&str>, kernel_ns, share_pct| LayerRow {
        stage: "decode".into(),
        layer: layer.map(str::to_owned),
        block: layer.map(|_| "dense feed-forward".to_owned()),
        layers: layer.map(|_| 28),
        kernel_ns,
        kernel_count: 56,
        calls: layer.map(|_| 28),
        share_pct,
        spread: layer.map(|_| LayerSpread {
            min_ns: 1_000,
            median_ns: 2_000,
            max_ns: 3_000,
            longest: "model.layers.7.mlp".into(),
        }),
    };
    case.analysis.layers = vec![row(Some("model.layers.*.mlp"), 56_000, 80.0), row(None, 14_000, 20.0)];
    let why = "kernels of CUDA graphs without a layer, because the capture of the graph was not recorded: 56";
    case.analysis.reasons.push(Reason::new(About::Other("layers".into()), why));
    case
}

#[test]
fn layers_are_in_every_report() {
    let case = with_layers();
    let text = text::render(&case.analysis, text::TextOptions::default());
    let line = text.lines().find(|line| line.contains("layers.*.mlp")).unwrap();
    let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells, ["decode", "model.layers.*.mlp", "28", "0.056", "80.0", "56", "28", "0.001 to 0.003"]);
    let report = markdown::report(case.bundle());
    let page = page::render(case.bundle());
    for (name, document) in [("text", &text), ("markdown", &report), ("html", &page)] {
        assert!(document.contains("(no module)"), "{name}");
    }
    for (name, document) in [("text", &text), ("markdown", &report)] {
        assert!(document.contains("the capture of the graph was not recorded: 56"), "{name}");
    }
    assert!(report.contains("dense feed-forward"));
    assert!(page.contains("id=\"layers\"") && page.contains("model.layers.7.mlp"));
}

#[test]
fn a_report_without_layers_does_not_mention_them() {
    let case = made(PLAIN);
    let text = text::render(&case.analysis, text::TextOptions::default());
    assert!(!text.contains("by layer"));
    assert!(!markdown::report(case.bundle()).contains("by layer"));
    assert!(!page::render(case.bundle()).contains("id=\"layers\""));
}

#[test]
fn layers_of_each_stage_are_cut_to_the_first() {
    let mut case = with_layers();
    let rows = case.analysis.layers.clone();
    for stage in ["prefill", "mixed"] {
        case.analysis.layers.extend(rows.iter().map(|row| LayerRow { stage: stage.into(), ..row.clone() }));
    }
    let options = text::TextOptions { kernels: 1, ..text::TextOptions::default() };
    let text = text::render(&case.analysis, options);
    assert_eq!(text.lines().filter(|line| line.contains("layers.*.mlp")).count(), 3);
    assert!(!text.contains("(no module)") && text.contains("and 3 more"), "{text}");
}

#[test]
fn layers_keep_to_the_schema() {
    let schema: serde_json::Value = serde_json::from_str(json::SCHEMA).unwrap();
    let document = serde_json::from_str(&json::pretty(&with_layers().analysis)).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
}
