//! Reports of ncu input without a timeline.

use crate::fixtures::fixture;
use roofgap_report::{html, markdown, text};

#[test]
fn every_report_judges_the_kernels_that_ncu_measured() {
    let case = fixture(&["ncu/mt_basic.ncu-rep.gz"]);
    let text = text::render(&case.analysis, text::TextOptions::default());
    insta::assert_snapshot!("measured_text", text);
    let reports = [
        text,
        markdown::report(case.bundle()),
        markdown::stakeholder_summary(case.bundle()),
        markdown::kernels(case.bundle()),
        html::page(case.bundle()),
    ];
    for report in reports {
        assert!(!report.contains("no GPU work"), "{report}");
        let device = report.contains("NVIDIA H200") || report.starts_with("# Kernels");
        assert!(device, "{report}");
        for words in [
            "compute-bound: compute 64.0 %",
            "latency-bound",
            "6 launches of 2 kernels",
        ] {
            assert!(report.contains(words), "no {words:?} in {report}");
        }
    }
    let report = markdown::report(case.bundle());
    assert!(report.contains("\n## Rules of ncu\n"), "{report}");
    assert!(html::page(case.bundle()).contains("<h3>Rules of ncu</h3>"));
}

#[test]
fn savings_are_of_the_measured_launches() {
    let case = fixture(&["ncu/llama4_light_raw_base.csv.gz"]);
    let text = text::render(&case.analysis, text::TextOptions::default());
    assert!(text.contains("% of the measured launches)"), "{text}");
    assert!(
        text.contains("\nCounters\n"),
        "several shapes of a kernel have rows: {text}"
    );
}
