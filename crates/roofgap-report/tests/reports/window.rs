//! Windows of the timeline, and the page that asks a server for them.

use crate::fixtures::{PLAIN, fixture, made};
use roofgap_analyze::{Options, analyze};
use roofgap_report::Bundle;
use roofgap_report::page::{self, NoTimeline, served, timeline_window};
use serde_json::Value;

/// Sums the items of the lanes of a group.
fn items(lanes: &Value, group: &str) -> u64 {
    let lanes = lanes.as_array().unwrap().iter();
    lanes.filter(|lane| lane["group"] == group).map(|lane| lane["count"].as_u64().unwrap()).sum()
}

fn labels(lanes: &Value) -> Vec<&str> {
    let lanes = lanes.as_array().unwrap().iter();
    lanes.map(|lane| lane["label"].as_str().unwrap()).collect()
}

/// Reads the description of the timeline in a page.
fn meta(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"timeline-meta\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_window_has_the_lanes_of_the_page_and_the_items_around_it() {
    let case = fixture(&["h200/dsocr2.sqlite.gz"]);
    let page = meta(&page::render(case.bundle()));
    let whole = timeline_window(case.bundle(), 0, i64::MAX, 100_000).unwrap();
    assert_eq!((whole.from_ns, whole.to_ns), (0, whole.span_ns));
    let whole = serde_json::to_value(&whole).unwrap();
    assert_eq!(whole["lanes"], page["lanes"]);
    assert_eq!(whole["names"], page["names"]);

    let (from, to) =
        (whole["span_ns"].as_i64().unwrap() / 2, whole["span_ns"].as_i64().unwrap() / 2 + 2_000_000);
    let part = timeline_window(case.bundle(), from, to, 100_000).unwrap();
    assert!(!part.merged);
    let part = serde_json::to_value(&part).unwrap();
    assert_eq!(labels(&part["lanes"]), labels(&page["lanes"]));
    let (first, _) = case.trace.span().unwrap();
    let reaches = |start: i64, end: i64| start - first <= to && end - first >= from;
    let ops = &case.trace.ops;
    let inside: Vec<usize> =
        (0..ops.start.len()).filter(|&row| reaches(ops.start[row], ops.end[row])).collect();
    let calls = &case.stages.launches().call_of_op;
    let launched_inside = (0..ops.start.len()).filter(|&row| {
        let call = calls[row] as usize;
        !inside.contains(&row)
            && call < case.trace.calls.len()
            && reaches(case.trace.calls.start[call], case.trace.calls.end[call])
    });
    assert!(!inside.is_empty());
    assert_eq!(items(&part["lanes"], "streams"), (inside.len() + launched_inside.count()) as u64);
    assert!(items(&part["lanes"], "streams") < items(&page["lanes"], "streams"));
    assert!(items(&part["lanes"], "calls") < items(&page["lanes"], "calls"));
    assert!(items(&part["lanes"], "ranges") > 0, "the ranges around the window");
}

#[test]
fn a_window_has_the_ranges_around_its_launches_and_not_those_between() {
    let mut case = made(PLAIN);
    let mut add = |name: &str, start: i64, end: i64| {
        let range = roofgap_trace::Range {
            start,
            end,
            name: case.trace.names.intern(name),
            ..case.trace.ranges.rows[0]
        };
        case.trace.ranges.rows.push(range);
    };
    // The kernel from 43,000 to 46,000 ns was launched from 41,000 to 42,500 ns.
    add("around the launch", 40_900, 42_600);
    add("after the launch", 42_600, 45_000);
    case.trace.sort();
    let analyzed = analyze(&case.trace, &Options::default());
    (case.analysis, case.stages) = (analyzed.analysis, analyzed.stages);
    let (first, _) = case.trace.span().unwrap();
    let window = timeline_window(case.bundle(), 45_500 - first, 45_900 - first, 100).unwrap();
    let window = serde_json::to_value(&window).unwrap();
    // With the decode stage and its second step.
    assert_eq!(items(&window["lanes"], "ranges"), 3);
    let names = window["names"].to_string();
    assert!(names.contains("around the launch"), "{names}");
    assert!(!names.contains("after the launch"), "{names}");
}

#[test]
fn a_window_keeps_to_its_limit() {
    let case = fixture(&["h200/dsocr2.sqlite.gz"]);
    let window = timeline_window(case.bundle(), -5, i64::MAX, 200).unwrap();
    assert!(window.merged);
    let window = serde_json::to_value(&window).unwrap();
    for group in ["ranges", "operators", "calls", "streams", "idle"] {
        assert!(items(&window["lanes"], group) <= 200, "{group}");
    }
}

#[test]
fn inputs_without_a_timeline_have_no_window() {
    let totals = fixture(&["h200/llama4_cuda_gpu_kern_sum.csv.gz"]);
    assert!(matches!(timeline_window(totals.bundle(), 0, 1, 10), Err(NoTimeline::TotalsOnly)));
    let case = made(PLAIN);
    let without = Bundle { trace: None, ..case.bundle() };
    assert!(matches!(timeline_window(without, 0, 1, 10), Err(NoTimeline::NoCapture)));
}

#[test]
fn only_a_page_with_this_script_is_told_where_its_timeline_is() {
    let page = page::render(made(PLAIN).bundle());
    assert!(!page.contains("<meta name=\"roofgap-timeline\""));
    let given = served(&page, "/profile/20260101-000000/timeline").unwrap();
    assert!(
        given.page.contains("<meta name=\"roofgap-timeline\" content=\"/profile/20260101-000000/timeline\">")
    );
    assert!(given.policy.contains("connect-src 'self'") && given.policy.contains("frame-ancestors 'none'"));
    assert!(
        given.policy.contains("script-src 'sha256-") && !given.policy.contains("script-src 'unsafe-inline'")
    );
    let older = page.replace("sha256-", "sha256-AAAA");
    assert!(served(&older, "/x").is_none());
    assert!(served("<html><script>alert(1)</script>", "/x").is_none());
}
