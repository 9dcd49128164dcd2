//! Copies, whole graphs, communication and ranks in every report.

use crate::fixtures::{Case, PLAIN, made};
use roofgap_analyze::{CommunicationRow, GraphRow, RankInfo};
use roofgap_report::{json, markdown, page, text};

fn distributed() -> Case {
    let mut case = made(PLAIN);
    case.analysis.communication.push(CommunicationRow {
        rank: Some(3),
        device: Some(0),
        on: "gpu".into(),
        collective: "all_reduce".into(),
        group: Some("7 (mesh_tp)".into()),
        group_size: Some(8),
        calls: 1_200,
        untimed_calls: 0,
        bytes: Some(4_000_000),
        total_ns: 200_000,
        exposed_ns: 160_000,
        bus_bandwidth_bytes_per_s: Some(35e9),
        algorithm_bandwidth_bytes_per_s: Some(20e9),
        link: Some("NVLink".into()),
        peak_bytes_per_s: Some(450e9),
        peak_pct: Some(7.8),
    });
    case.analysis.graphs.push(GraphRow {
        device: Some(0),
        graph: Some(17),
        launches: 1_500,
        total_ns: 3_000_000,
    });
    case.analysis.ranks.push(RankInfo {
        rank: 3,
        world_size: Some(8),
        devices: vec![0],
        told_by: "trace".into(),
        ..RankInfo::default()
    });
    case
}

/// Returns the cells of the first line that starts with `word`.
fn cells<'a>(report: &'a str, word: &str) -> Vec<&'a str> {
    let mut lines = report.lines().map(|line| line.trim_start_matches("| ").trim_end_matches(" |"));
    let line = lines.find(|line| line.starts_with(word)).expect(word);
    let separator = if line.contains('|') { "|" } else { "  " };
    line.split(separator).map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn tables_are_in_text_and_markdown() {
    let case = distributed();
    let text = text::render(&case.analysis, text::TextOptions::default());
    assert_eq!(
        cells(&text, "all_reduce"),
        [
            "all_reduce",
            "7 (mesh_tp)",
            "8",
            "1,200",
            "4.0 MB",
            "0.200",
            "0.040",
            "0.160",
            "35.0",
            "7.8",
            "NVLink, 450.0 GB/s"
        ]
    );
    assert_eq!(cells(&text, "17 "), ["17", "1,500", "3.000", "0.002"]);
    assert!(text.contains("rank: 3 of 8 ranks"), "{text}");
    assert!(text.contains(", 1,500 launches of whole graphs"), "{text}");
    // The copy of the made-up trace: 4096 bytes in 1 us.
    let copy = cells(&text, "host to device");
    assert_eq!(copy[..6], ["host to device", "pageable", "1", "4.1 kB", "0.001", "4.10"]);
    let report = markdown::report(case.bundle());
    for title in ["## Graphs", "## Copies", "## Communication"] {
        assert!(report.contains(title), "{title}");
    }
    assert_eq!(
        cells(&report, "all\\_reduce")[4..],
        ["1,200", "4.0 MB", "0.200", "0.040", "0.160", "35.0", "7.8", "NVLink, 450.0 GB/s"]
    );
}

#[test]
fn the_page_has_a_section_for_each_table_with_rows() {
    let page = page::render(distributed().bundle());
    for id in ["graphs", "copies", "communication"] {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
        assert!(page.contains(&format!("<a href=\"#{id}\">")), "{id}");
    }
    let plain = page::render(made(PLAIN).bundle());
    assert!(!plain.contains("id=\"communication\"") && !plain.contains("id=\"graphs\""));
}

/// Time that was not measured is a dash in tables and no bar.
#[test]
fn communication_without_a_time_has_dashes() {
    let mut case = distributed();
    case.analysis.communication.push(CommunicationRow {
        on: "cpu".into(),
        collective: "broadcast".into(),
        calls: 4,
        untimed_calls: 4,
        ..CommunicationRow::default()
    });
    let text = text::render(&case.analysis, text::TextOptions::default());
    let row = cells(&text, "broadcast");
    assert_eq!(row[row.len() - 4..], ["–"; 4], "{row:?}");
    let page = page::render(case.bundle());
    assert!(page.contains("all_reduce, GPU 0: 80.0 % exposed"));
    assert!(page.contains("broadcast") && !page.contains("broadcast, CPU: "));
    case.analysis.communication[1].untimed_calls = 3;
    case.analysis.communication[1].total_ns = 7_000;
    let page = page::render(case.bundle());
    assert!(page.contains("broadcast, CPU: 0.0 % exposed"));
    let unknown = RankInfo { untimed_calls: 4, ..RankInfo::default() };
    assert_eq!((unknown.hidden_ns(), unknown.measured_exposed_ns()), (None, None));
    assert_eq!(RankInfo::default().hidden_ns(), Some(0), "a rank that talks to no other");
}

#[test]
fn rows_keep_to_the_schema() {
    let schema = serde_json::from_str(json::SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good: serde_json::Value = serde_json::from_str(&json::pretty(&distributed().analysis)).unwrap();
    let errors: Vec<String> = validator.iter_errors(&good).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    for (path, value) in [
        ("/communication/0/total_ns", serde_json::json!(null)),
        ("/graphs/0/launches", serde_json::json!(-1)),
        ("/copies/0/kind", serde_json::json!("sideways")),
        ("/ranks/0/world_size", serde_json::json!("8")),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(path).expect(path) = value;
        assert!(!validator.is_valid(&bad), "{path}");
    }
}

/// A stage that waited for earlier work says so, and the time is a part of its bar.
#[test]
fn queued_time_is_shown() {
    let mut case = made(PLAIN);
    let stage = &mut case.analysis.stages[1];
    let outside = stage.outside().idle_ns;
    assert!(outside > 0);
    stage.queued_ns = outside / 2;
    let text = text::render(&case.analysis, text::TextOptions::default());
    assert!(text.contains("queued ms"), "{text}");
    assert!(page::render(case.bundle()).contains("class=\"queued\""));
    let plain = page::render(made(PLAIN).bundle());
    assert!(!plain.contains("class=\"queued\""));
}
