//! Runs as a session leaves them: listed, shown, compressed, scrubbed, compared.

use std::fs;
use std::path::Path;

use crate::support::{Bench, MODEL};
use roofgap_analyze::compare::{Side, compare};
use roofgap_base::exit::Exit;
use roofgap_collect::child::Cancel;
use roofgap_collect::tool::Search;
use roofgap_report::Screen;
use roofgap_runs::open::{Exporter, OpenedSide, Overrides, open_side};
use roofgap_runs::runs::{PruneProps, RunRef, artifacts, execute, list, plan, resolve, scrub, show, text};

/// No overrides, and no nsys.
fn defaults() -> (Overrides, Exporter) {
    let exporter = Exporter::new(Search { named: None, path: Vec::new(), root: None }, Cancel::new());
    (Overrides::default(), exporter)
}

fn gates(base: &OpenedSide, head: &OpenedSide, gate: &str) -> Exit {
    fn side(opened: &OpenedSide) -> Side<'_> {
        Side { analysis: &opened.analysis, facts: &opened.facts }
    }
    compare(side(base), side(head), &[gate.parse().unwrap()]).verdict()
}

#[test]
fn a_run_is_listed_shown_and_compared() {
    let bench = Bench::new();
    let program = bench.script("program", MODEL);
    let outcome = bench.run(&[program.to_str().unwrap()], &[]);
    let base = bench.path("runs");
    let runs = list(&base).unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!((runs[0].status.as_str(), runs[0].exit_status), ("partial", Some(3)));
    assert_eq!(runs[0].model.as_deref(), Some("stand-in"));
    assert_eq!(runs[0].devices, ["a CPU"]);
    assert_eq!(runs[0].stages[1].wall_ns, 8_000_000);
    let line = text::list(&runs, &base, Screen::default());
    assert!(line.contains("prefill 5.00 ms, decode 8.00 ms"), "{line}");

    let latest = resolve(&base, "latest").unwrap();
    let page = text::show(&show(&latest).unwrap(), Screen::default());
    for part in ["exit status 3", "preflight", "decode", "Missing"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let files = artifacts(&latest).unwrap();
    assert!(files.artifacts.iter().any(|file| file.path == "metrics.json" && file.sha256.is_some()));
    assert!(text::artifacts(&files, Screen::default()).contains("record of the session"));

    // The same program a quarter slower in decode, by its own account.
    let slower = MODEL
        .replace("8000000", "10000000")
        .replace("2000000, 2000000, 2000000, 2000000", "2500000, 2500000, 2500000, 2500000");
    let program = bench.script("slower", &slower);
    bench.run(&[program.to_str().unwrap()], &[]);
    let (overrides, exporter) = defaults();
    let old = open_side(&base, outcome.run_dir.to_str().unwrap(), &overrides, &exporter).unwrap();
    let new = open_side(&base, "latest", &overrides, &exporter).unwrap();
    assert_eq!(old.facts.mode.as_deref(), Some("deep"));
    assert_eq!(old.facts.unwatched["decode"], [8_000_000]);
    assert_eq!(gates(&old, &new, "5%"), Exit::GateBroken);
    assert_eq!(gates(&new, &old, "5%"), Exit::Done);
    assert_eq!(gates(&old, &old, "0%"), Exit::Done);

    // Packed by hand, the program's own account is still read.
    let account = outcome.run_dir.join("baseline/workload.json");
    let packed = std::process::Command::new("gzip").arg(&account).status();
    assert!(packed.unwrap().success() && !account.exists());
    let again = open_side(&base, outcome.run_dir.to_str().unwrap(), &overrides, &exporter).unwrap();
    assert_eq!(again.facts, old.facts);
}

#[test]
fn captures_and_analyses_are_sides_too() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/h200/llama4.sqlite.gz");
    let base = tempfile::tempdir().unwrap();
    let (overrides, exporter) = defaults();
    let side = open_side(base.path(), capture.to_str().unwrap(), &overrides, &exporter).unwrap();
    assert_eq!(side.analysis.stages.len(), 2);
    let written = base.path().join("out");
    fs::create_dir(&written).unwrap();
    fs::write(written.join("metrics.json"), serde_json::to_vec(&side.analysis).unwrap()).unwrap();
    for path in [written.clone(), written.join("metrics.json")] {
        let again = open_side(base.path(), path.to_str().unwrap(), &overrides, &exporter).unwrap();
        assert_eq!(gates(&side, &again, "0%"), Exit::Done);
    }
    fs::write(written.join("metrics.json"), r#"{"schema": "another"}"#).unwrap();
    let error = open_side(base.path(), written.to_str().unwrap(), &overrides, &exporter).unwrap_err();
    assert!(error.to_string().starts_with("cannot parse "), "{error}");
    let error = open_side(base.path(), "nothing", &overrides, &exporter).unwrap_err().to_string();
    assert!(error.contains("no runs in"), "{error}");
}

#[test]
fn a_watched_run_is_compressed_scrubbed_and_still_says_the_same() {
    let bench = Bench::new();
    let outcome = bench.watched(&[]);
    let run = RunRef::at(&outcome.run_dir);
    let base = bench.path("runs");
    let (overrides, exporter) = defaults();
    let before = open_side(&base, &run.id, &overrides, &exporter).unwrap();
    assert!(!before.analysis.kernels.is_empty(), "{:?}", outcome.record.missing);

    let plan = plan(&PruneProps { base: base.clone(), keep: 0, max_run_bytes: u64::MAX }).unwrap();
    assert!(text::plan(&plan, Screen::default()).contains("compress"));
    let done = execute(&plan, &Cancel::new(), &mut |_, _| {});
    assert!(done.failed.is_empty(), "{done:?}");
    assert!(text::pruned(&done, Screen::default()).ends_with("saved\n"));
    assert!(outcome.run_dir.join("nsys/run.sqlite.gz").is_file());
    assert!(list(&base).unwrap()[0].compressed);

    let share = bench.path("share.tar.gz");
    let scrubbed = scrub(&run, &[], &share).unwrap();
    assert!(text::scrubbed(&scrubbed, Screen::default()).contains("share.tar.gz"));
    assert!(scrubbed.packed.contains(&"timeline.pftrace".to_owned()), "{scrubbed:?}");

    // Compressed and scrubbed, its reports can be written again, with the same numbers.
    roofgap_record::run::write_reports(&outcome.run_dir).unwrap();
    let after = open_side(&base, &run.id, &overrides, &exporter).unwrap();
    assert!(after.analysis.stages == before.analysis.stages);
    assert!(after.analysis.kernels == before.analysis.kernels);
    assert!(after.analysis.counters == before.analysis.counters);
    assert!(!before.facts.unwatched.is_empty() && after.facts == before.facts);
    assert_eq!(gates(&before, &after, "0%"), Exit::Done);
}
