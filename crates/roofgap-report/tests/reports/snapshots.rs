//! Every text format as a person reads it. `INSTA_UPDATE=always cargo test -p roofgap-report` takes a wanted change over.

use crate::fixtures::{PLAIN, fixture, made};
use roofgap_report::{files, html, json, markdown, text};

#[test]
fn text_and_markdown_of_a_timeline_with_counters() {
    let case = fixture(&["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"]);
    insta::assert_snapshot!("llama4_text", text::render(&case.analysis, text::Look::default()));
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
    insta::assert_snapshot!("dsocr2_summary", summary);
}

#[test]
fn json_of_a_made_up_trace() {
    let case = made(PLAIN);
    insta::assert_snapshot!("made_json", json::pretty(&case.analysis));
}

#[test]
fn html_of_a_made_up_trace() {
    let case = made(PLAIN);
    let page = String::from_utf8(html::html(case.bundle())).unwrap();
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
