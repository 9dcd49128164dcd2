//! What is written holds what was made, and is the same every time.

use roofgap_testkit::{Graphs, Program, Spec, kineto, nsys};
use rusqlite::Connection;

#[test]
fn the_export_holds_every_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.sqlite");
    let program = Program::run(&Spec::tangled(3_000));
    nsys::write(&program, &path).unwrap();
    let db = Connection::open(&path).unwrap();
    let one = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(one("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL"), 3_000);
    assert_eq!(
        one("SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL"),
        program.expected.totals.kernel_ns
    );
    assert_eq!(one("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME"), program.events.calls.len() as i64);
    assert_eq!(
        one("SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59"),
        program.events.ranges.len() as i64
    );
    let shared = "SELECT count(*) FROM (SELECT 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY correlationId \
                  HAVING count(DISTINCT globalTid >> 24) > 1)";
    assert!(one(shared) > 100, "correlation ids collide across processes");
    let unnamed = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN StringIds s ON s.id = k.demangledName \
                   WHERE s.value IS NULL";
    assert_eq!(one(unnamed), 0);
    assert!(nsys::write(&program, &path).is_err(), "nothing is written over");
}

#[test]
fn the_same_spec_gives_the_same_program() {
    let spec = Spec { graphs: Graphs::Whole, ..Spec::tangled(6_000) };
    let (first, second) = (Program::run(&spec), Program::run(&spec));
    assert_eq!(first, second);
    assert!(!first.events.graphs.is_empty());
    assert_ne!(first, Program::run(&Spec { seed: 3, ..spec }));
}

#[test]
fn the_trace_is_json_with_every_kernel() {
    let program = Program::run(&Spec { streams: 2, ..Spec::simple(500) });
    let mut text = Vec::new();
    kineto::write(&program, &mut text).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |category: &str| events.iter().filter(|e| e["cat"] == category).count();
    assert_eq!(of("kernel"), 500);
    assert_eq!(of("cuda_runtime") + of("cuda_driver"), program.events.calls.len());
    assert_eq!(of("user_annotation"), program.events.ranges.len());
    assert!(of("cpu_op") >= 500);
    let on_gpu = program.events.ranges.iter().filter(|r| r.gpu.is_some()).count();
    assert!(on_gpu > 30);
    assert_eq!(of("gpu_user_annotation"), on_gpu);
}
