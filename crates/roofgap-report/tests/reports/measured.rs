//! Reports of ncu input without a timeline.

use crate::fixtures::{fixture, fixture_with_model};
use roofgap_report::{markdown, page, text};

#[test]
fn every_report_judges_the_kernels_that_ncu_measured() {
    let case = fixture(&["ncu/mt_basic.ncu-rep.gz"]);
    let text = text::render(&case.analysis, text::TextOptions::default());
    insta::assert_snapshot!("measured_text", text);
    let reports = [
        text,
        markdown::report(case.bundle()),
        markdown::kernels(case.bundle()),
        page::render(case.bundle()),
    ];
    for report in reports {
        assert!(!report.contains("no GPU work"), "{report}");
        let device = report.contains("NVIDIA H200") || report.starts_with("# Kernels");
        assert!(device, "{report}");
        for words in ["compute-bound: compute 64.0 %", "latency-bound", "6 launches of 2 kernels"] {
            assert!(report.contains(words), "no {words:?} in {report}");
        }
    }
    let report = markdown::report(case.bundle());
    assert!(report.contains("\n## Rules of ncu\n"), "{report}");
    assert!(page::render(case.bundle()).contains("<h2>Rules of ncu</h2>"));
}

#[test]
fn savings_are_of_the_measured_launches() {
    let case = fixture(&["ncu/llama4_light_raw_base.csv.gz"]);
    let text = text::render(&case.analysis, text::TextOptions::default());
    assert!(text.contains("% of the measured launches)"), "{text}");
    assert!(text.contains("\nCounters\n"), "several shapes of a kernel have rows: {text}");
}

/// The first lines say how fast decode is, what limits it, what could be gained and what to do.
#[test]
fn every_report_begins_with_what_a_manager_asks() {
    let case = fixture_with_model(&["h200/dsocr2.sqlite.gz"], "deepseek_ocr2", (512, 8));
    let report = markdown::report(case.bundle());
    let text = text::render(&case.analysis, text::TextOptions::default());
    let page = page::render(case.bundle());
    for report in [&report, &text, &page] {
        // 29.9 ms a token, of which a graph leaves 2.75 ms.
        for words in [
            "A step of decode takes 29.3 ms at the median (33.4 tokens/s over all steps)",
            "CUDA graphs could make it 10.9 times as fast",
        ] {
            assert!(report.contains(words), "no {words:?} in {report}");
        }
        assert!(report.contains("time to first token"), "{report}");
        assert!(report.replace('\\', "").contains("deepseek_ocr2"), "{report}");
    }
    assert!(report.contains("\n## Per run\n"), "{report}");
}

#[test]
fn without_tokens_the_first_line_is_about_steps() {
    let case = fixture(&["h200/dsocr2.sqlite.gz"]);
    let report = markdown::report(case.bundle());
    assert!(report.contains("A step of decode takes 29.3 ms at the median;"), "{report}");
    let summary = markdown::stakeholder_summary(case.bundle());
    assert!(
        summary.contains("A step of decode takes 29.3 ms at the median;") && !summary.contains("tokens/s"),
        "{summary}"
    );
}
