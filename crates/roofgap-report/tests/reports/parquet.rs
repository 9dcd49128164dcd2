//! The tables, read back.

use crate::fixtures::{Case, PLAIN, fixture, made};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use roofgap_report::RunFacts;
use roofgap_report::export::parquet::{has_run, save_events, save_run};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Writes all tables of a run and returns the path of one of them.
fn save(case: &Case, dir: &Path) -> impl Fn(&str) -> PathBuf + use<> {
    let facts = RunFacts { key: "k".into(), date: "2026-03-01".into(), ..RunFacts::default() };
    save_events(case.bundle(), &facts, 3, dir).unwrap();
    save_run(case.bundle(), &facts, dir).unwrap();
    let dir = dir.to_owned();
    move |table| {
        let key = if ["launches", "copies", "calls", "ranges"].contains(&table) { "k-3" } else { "k" };
        dir.join(format!("{table}/date=2026-03-01/{key}.parquet"))
    }
}

fn rows(path: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    reader.get_row_iter(None).unwrap().map(|r| r.unwrap()).collect()
}

fn field<'a>(row: &'a Row, name: &str) -> &'a Field {
    row.get_column_iter().find(|c| c.0 == name).expect(name).1
}

fn long(row: &Row, name: &str) -> i64 {
    match field(row, name) {
        Field::Long(v) => *v,
        other => panic!("{name}: {other}"),
    }
}

fn text<'a>(row: &'a Row, name: &str) -> Option<&'a str> {
    match field(row, name) {
        Field::Str(v) => Some(v),
        Field::Null => None,
        other => panic!("{name}: {other}"),
    }
}

#[test]
fn tables_agree_with_the_analysis() {
    let dir = tempfile::tempdir().unwrap();
    let case = fixture(&["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"]);
    let path = save(&case, dir.path());
    let read = |table: &str| rows(&path(table));
    let [run] = read("runs").try_into().unwrap();
    assert_eq!((text(&run, "run_key"), long(&run, "kernel_ns")), (Some("k"), case.analysis.totals.kernel_ns));
    let launches = read("launches");
    assert_eq!(launches.len() as u64, case.analysis.totals.kernel_count);
    assert!(launches.iter().all(|row| long(row, "rank") == 3));
    let stages = read("stages");
    assert_eq!(stages.len(), case.analysis.stages.len());
    for (row, stage) in stages.iter().zip(&case.analysis.stages) {
        let own = launches.iter().filter(|r| text(r, "stage") == Some(&stage.name));
        let total: i64 = own.map(|r| long(r, "duration_ns")).sum();
        assert_eq!((Some(total), Some(long(row, "kernel_ns"))), (stage.kernel_ns, stage.kernel_ns));
    }
    let kernels: i64 = read("kernels").iter().map(|row| long(row, "total_ns")).sum();
    assert_eq!(kernels, case.analysis.totals.kernel_ns);
    let copies: i64 = read("copies")
        .iter()
        .filter(|r| text(r, "kind") == Some("memcpy"))
        .map(|r| long(r, "duration_ns"))
        .sum();
    assert_eq!(Some(copies), case.analysis.totals.memcpy_ns);
    assert_eq!(read("calls").len(), case.trace.calls.len());
    assert_eq!(read("ranges").len(), case.trace.ranges.rows.len());
    assert_eq!(read("findings").len(), case.analysis.findings.len());
    let counters = read("counters");
    assert_eq!(counters.len(), case.analysis.counters.len());
    assert_eq!(text(&counters[0], "kernel"), Some(case.analysis.counters[0].kernel.as_str()));
}

#[test]
fn what_was_not_recorded_is_null_and_names_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let name = "a|`<script>\n\u{0}";
    let path = save(&made([name, PLAIN[1], PLAIN[2]]), dir.path());
    let launch = &rows(&path("launches"))[0];
    assert_eq!(text(launch, "name"), Some(name));
    assert_eq!(text(launch, "stage"), Some("prefill"));
    assert_eq!(field(launch, "graph_node"), &Field::Null);
    assert_eq!(long(launch, "grid_x"), 8);
    let copy = &rows(&path("copies"))[0];
    assert_eq!((long(copy, "bytes"), text(copy, "source_memory")), (4096, Some("pageable")));
    assert_eq!(field(&rows(&path("runs"))[0], "driver"), &Field::Null);
    assert!(rows(&path("counters")).is_empty(), "a table without rows reads all the same");
}

#[test]
fn a_file_is_written_once_and_a_run_is_there_when_all_of_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let case = made(PLAIN);
    assert!(!has_run(dir.path(), "k"));
    let path = save(&case, dir.path());
    assert!(has_run(dir.path(), "k") && !has_run(dir.path(), "other"));
    // As a killed export leaves it: tables without their run, and a file that has no name yet.
    std::fs::remove_file(path("runs")).unwrap();
    std::fs::write(path("runs").with_file_name(".k.parquet.1-0-0.tmp"), "PAR1").unwrap();
    assert!(!has_run(dir.path(), "k"));
    let old = File::options().append(true).open(path("kernels")).unwrap();
    old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    _ = save(&case, dir.path());
    assert!(has_run(dir.path(), "k"));
    let modified = std::fs::metadata(path("kernels")).unwrap().modified().unwrap();
    assert_eq!(modified, SystemTime::UNIX_EPOCH, "it is left as it is");
}
