//! The tables, read back in Rust and, in an ignored test, by DuckDB, pandas and Polars.

use crate::fixtures::{Case, PLAIN, fixture, made};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use roofgap_report::ExportError;
use roofgap_report::export::parquet::{Partition, save};
use std::fs::File;
use std::path::Path;
use std::process::Command;

fn partition(run: &str, rank: u32) -> Partition {
    Partition { run: run.into(), rank }
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
    let files = save(case.bundle(), dir.path(), &partition("20250101-000000", 0)).unwrap();
    let names: Vec<_> = files.iter().map(|f| f.strip_prefix(dir.path()).unwrap().to_str().unwrap()).collect();
    assert_eq!(names[0], "run=20250101-000000/rank=0/kernels.parquet");
    let kernels = rows(&files[0]);
    assert_eq!(kernels.len() as u64, case.analysis.totals.kernel_count);
    for stage in &case.analysis.stages {
        let own = kernels.iter().filter(|r| text(r, "stage") == Some(&stage.name));
        let total: i64 = own.map(|r| long(r, "duration_ns")).sum();
        assert_eq!(Some(total), stage.kernel_ns, "{}", stage.name);
    }
    let copies: i64 = rows(&files[1])
        .iter()
        .filter(|r| text(r, "kind") == Some("memcpy"))
        .map(|r| long(r, "duration_ns"))
        .sum();
    assert_eq!(Some(copies), case.analysis.totals.memcpy_ns);
    assert_eq!(rows(&files[2]).len(), case.trace.calls.len());
    assert_eq!(rows(&files[3]).len(), case.trace.ranges.rows.len());
    let counters = rows(&files[4]);
    assert_eq!(counters.len(), case.analysis.counters.len());
    assert_eq!(text(&counters[0], "kernel"), Some(case.analysis.counters[0].kernel.as_str()));
}

#[test]
fn what_was_not_recorded_is_null_and_names_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let name = "a|`<script>\n\u{0}";
    let case = made([name, PLAIN[1], PLAIN[2]]);
    let files = save(case.bundle(), dir.path(), &partition("x", 3)).unwrap();
    let kernels = rows(&files[0]);
    assert_eq!(text(&kernels[0], "name"), Some(name));
    assert_eq!(text(&kernels[0], "stage"), Some("prefill"));
    assert_eq!(field(&kernels[0], "graph_node"), &Field::Null);
    assert_eq!(field(&kernels[0], "grid_x"), &Field::Int(8));
    let copy = &rows(&files[1])[0];
    assert_eq!((long(copy, "bytes"), text(copy, "source_memory")), (4096, Some("pageable")));
    assert!(rows(&files[4]).is_empty(), "a table without rows reads all the same");
}

#[test]
fn a_run_is_a_plain_name() {
    let dir = tempfile::tempdir().unwrap();
    let case = made(PLAIN);
    for bad in ["", "..", "a/b", "a=b", "a b"] {
        let error = save(case.bundle(), dir.path(), &partition(bad, 0)).unwrap_err();
        assert!(matches!(error, ExportError::RunName { .. }), "{bad}: {error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Two runs as one data set, through `tests/read_parquet.py`.
#[test]
#[ignore = "needs python3 with duckdb, pandas and pyarrow: run tests/read_parquet.sh"]
fn others_read_the_tables() {
    let python = "python3";
    let dir = tempfile::tempdir().unwrap();
    let write =
        |case: &Case, run: &str, rank: u32| save(case.bundle(), dir.path(), &partition(run, rank)).unwrap();
    let real = fixture(&["h200/llama4.sqlite.gz"]);
    write(&real, "first", 0);
    write(&real, "first", 1);
    write(&made(PLAIN), "second", 0);
    let expected = format!(
        "{} {} {}",
        2 * real.analysis.totals.kernel_count + 5,
        2 * real.analysis.totals.kernel_ns + 15_000,
        2 * real.trace.calls.len() + 6
    );
    let output = Command::new(python).args(["tests/read_parquet.py".as_ref(), dir.path()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() >= 2, "{said}");
    for line in lines {
        let (reader, numbers) = line.split_once(": ").unwrap();
        assert_eq!(numbers, expected, "{reader}");
    }
}
