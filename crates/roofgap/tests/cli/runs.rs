//! `roofgap runs`, `roofgap report` and `roofgap compare`.

use crate::support::{Run, ok, packed, roofgap, run, unpacked};
use serde_json::Value;
use std::path::Path;

/// Creates three runs of a program that does nothing.
fn runs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("artifacts.stage2_dir='{}'", folder.path().display());
    for _ in 0..3 {
        ok(["profile", "--quiet", &place, "runner=unwatched", "--", "true"]);
    }
    folder
}

fn json(args: &[&str], base: &Path) -> Value {
    let dir = format!("--dir={}", base.display());
    let run: Run = roofgap(args).args([&dir, "--format=json"]).output().unwrap().into();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn runs_are_listed_shown_and_found_by_name() {
    let folder = runs();
    let base = folder.path();
    let list = json(&["runs", "list"], base);
    let ids: Vec<&str> = list.as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    let newest = ids.iter().max().unwrap();
    for wanted in ["latest", newest, base.join(newest).to_str().unwrap()] {
        let artifacts = json(&["runs", "artifacts", wanted], base);
        assert_eq!(artifacts["run_id"], *newest, "{wanted}");
        let files = artifacts["artifacts"].as_array().unwrap();
        let metrics = files.iter().find(|file| file["path"] == "metrics.json").unwrap();
        assert_eq!(metrics["sha256"].as_str().unwrap().len(), 64);
    }
    json(&["runs", "show", "latest"], base);

    let dir = format!("--dir={}", base.display());
    let text = ok(["runs", "list", &dir]).stdout;
    assert!(ids.iter().all(|id| text.contains(id)), "{text}");
    let written = ok(["report", "latest", &dir]).stdout;
    assert!(written.lines().all(|line| line.contains(newest)), "{written}");

    // All ids have this prefix.
    let several = run(["runs", "show", &newest[..4], &dir]);
    assert_eq!(several.status, Some(2));
    assert!(several.stderr.contains("3 runs"), "{}", several.stderr);
    let none = run(["runs", "show", "nonsense", &dir]);
    assert_eq!(none.status, Some(2));
    assert_eq!(none.stdout, "");
}

#[test]
fn pruning_says_first_what_it_would_do() {
    let folder = runs();
    let place = format!("artifacts.stage2_dir='{}'", folder.path().display());
    let before = crate::support::listing(folder.path());
    let plan = ok(["runs", "prune", "--dry-run", "--format=json", "retention.keep=1", &place]);
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(plan["runs"].as_array().unwrap().len(), 3);
    assert_eq!(crate::support::listing(folder.path()), before);
    ok(["runs", "prune", "retention.keep=1", &place]);
    // The pruned runs can still be read.
    let dir = format!("--dir={}", folder.path().display());
    let list = ok(["runs", "list", &dir, "--format=json"]).stdout;
    for run in serde_json::from_str::<Value>(&list).unwrap().as_array().unwrap() {
        let path = folder.path().join(run["run_id"].as_str().unwrap());
        ok(["analyze".as_ref(), path.as_os_str()]);
    }
}

#[test]
fn a_scrubbed_run_is_packed_without_what_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("runs");
    let place = format!("artifacts.stage2_dir='{}'", base.display());
    let secret = "tok_8e1f6d0c2b9a47d3";
    let profiled: Run = roofgap(["profile", "--quiet", &place, "runner=unwatched", "--"])
        .args(["sh", "-c", "echo it is $MY_API_TOKEN"])
        .env("MY_API_TOKEN", secret)
        .output()
        .unwrap()
        .into();
    assert_eq!(profiled.status, Some(0), "{}", profiled.stderr);
    let dir = format!("--dir={}", base.display());
    let pack = folder.path().join("pack.tar.gz");
    let scrubbed: Run = roofgap(["runs", "scrub", "latest", &dir, "--pack"])
        .arg(&pack)
        .env("MY_API_TOKEN", secret)
        .output()
        .unwrap()
        .into();
    assert_eq!(scrubbed.status, Some(0), "{}", scrubbed.stderr);
    let mut archive = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(std::fs::File::open(&pack).unwrap());
    std::io::Read::read_to_end(&mut decoder, &mut archive).unwrap();
    let found = |needle: &[u8]| archive.windows(needle.len()).any(|window| window == needle);
    assert!(found(b"metrics.json"));
    assert!(!found(secret.as_bytes()), "the token is in the archive");
    assert!(!scrubbed.stdout.contains(secret) && !scrubbed.stderr.contains(secret));
}

const LLAMA: &str = "fixtures/h200/llama4.sqlite.gz";

#[test]
fn a_capture_compared_with_itself_has_not_changed() {
    let text = ok(["compare", LLAMA, LLAMA, "--fail-on=5%,decode.wall=1%", "--fail-on=decode.step=1%"]);
    assert!(text.stdout.contains("decode"), "{}", text.stdout);
    let json = ok(["compare", LLAMA, LLAMA, "--format=json"]).stdout;
    let comparison: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(comparison["schema"], "roofgap.comparison/1");
    assert_eq!(comparison["differences"].as_array().unwrap().len(), 0);
    assert!(ok(["compare", LLAMA, LLAMA, "--format=markdown"]).stdout.contains('|'));
    assert!(ok(["compare", LLAMA, LLAMA, "--format=html"]).stdout.starts_with("<!"));
}

#[test]
fn slower_kernels_break_a_gate() {
    // The same capture with every kernel 50 % longer.
    let folder = tempfile::tempdir().unwrap();
    let slower = folder.path().join("slower.sqlite");
    std::fs::write(&slower, unpacked("h200/llama4.sqlite.gz")).unwrap();
    let database = rusqlite::Connection::open(&slower).unwrap();
    database
        .execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start + (end - start) * 3 / 2", [])
        .unwrap();
    drop(database);
    let compare = |gates: &[&str]| -> Run {
        let mut command = roofgap(["compare", LLAMA]);
        command.arg(&slower).args(gates).output().unwrap().into()
    };
    assert_eq!(compare(&[]).status, Some(0), "without a gate it only tells");
    let broken = compare(&["--fail-on=5%"]);
    assert_eq!(broken.status, Some(5), "{}", broken.stderr);
    assert!(broken.stdout.contains("decode"), "{}", broken.stdout);
    assert_eq!(compare(&["--fail-on=decode.kernel=80%"]).status, Some(0));
    let unknown = compare(&["--fail-on=no_such_stage=5%"]);
    assert_eq!(unknown.status, Some(3), "{}", unknown.stdout);
    for nonsense in ["--fail-on=lots", "--fail-on=decode.beauty=5%"] {
        let run = compare(&[nonsense]);
        assert_eq!(run.status, Some(2), "{nonsense}");
        assert_eq!(run.stdout, "", "{nonsense}");
    }
}

#[test]
fn a_gate_that_cannot_be_judged_says_why() {
    // Only decode has steps, so a gate on steps applies to decode.
    ok(["compare", LLAMA, LLAMA, "--fail-on=step=1%"]);
    for (gate, why) in [
        ("prefill.step=1%", "prefill.step was measured on neither side"),
        ("mfu=1%", "decode.mfu was measured on neither side"),
        ("nowhere=1%", "no stage nowhere on the base; both have: prefill, decode"),
    ] {
        let run = run(["compare", LLAMA, LLAMA, "--fail-on", gate]);
        assert_eq!(run.status, Some(3), "{gate}: {}", run.stdout);
        assert!(
            run.stdout.contains("a gate was not measured") && run.stdout.contains(why),
            "{gate}: {}",
            run.stdout
        );
    }
}

#[test]
fn two_runs_are_compared_by_name() {
    let folder = runs();
    let dir = format!("--dir={}", folder.path().display());
    let run = run(["compare", "latest", "latest", &dir, "--format=json"]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let absent = crate::support::run(["compare", "latest", "nonsense", &dir]);
    assert_eq!(absent.status, Some(2));
    assert!(absent.stderr.contains("nonsense"), "{}", absent.stderr);
}

#[test]
fn the_timeline_for_other_tools() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let run = ok(["export", "perfetto", LLAMA, "--out", &at("trace.json")]);
    assert!(run.stderr.contains("trace.json"), "{}", run.stderr);
    let trace: Value = serde_json::from_slice(&std::fs::read(at("trace.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().filter(|event| event["ph"] == "X").count() > 3490);

    // Totals are not a timeline.
    let path = folder.path().join("totals.csv.gz");
    std::fs::write(&path, packed(&unpacked("h200/llama4_cuda_gpu_kern_sum.csv.gz"))).unwrap();
    let refused = roofgap(["export", "perfetto", "--out", &at("none.json")]).arg(&path).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(!Path::new(&at("none.json")).exists());
}

#[test]
fn tables_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join("tables");
    let add = || run(["export", "parquet", LLAMA, "--to", tables.to_str().unwrap()]);
    let first = add();
    if cfg!(feature = "parquet") {
        assert!(first.status == Some(0) && first.stderr.contains("tables/runs/date="), "{}", first.stderr);
        let again = add();
        assert!(again.status == Some(0) && again.stderr.contains(" is in "), "{}", again.stderr);
        let bad = folder.path().join("bad.json");
        std::fs::write(&bad, "{").unwrap();
        let some = run(["export", "parquet", bad.to_str().unwrap(), LLAMA, "--to", tables.to_str().unwrap()]);
        assert_eq!(some.status, Some(3), "{}", some.stderr);
        let none = run(["export", "parquet", bad.to_str().unwrap(), "--to", tables.to_str().unwrap()]);
        assert_eq!(none.status, Some(2), "{}", none.stderr);
    } else {
        assert_eq!(first.status, Some(2));
        assert!(first.stderr.contains("built without the export of Parquet"), "{}", first.stderr);
    }
}

#[test]
fn formats_take_their_own_output() {
    for args in [["parquet", LLAMA, "--out=x"], ["perfetto", LLAMA, "--to=x"]] {
        if args[0] == "parquet" && !cfg!(feature = "parquet") {
            continue;
        }
        let refused = run(["export"].into_iter().chain(args));
        assert_eq!(refused.status, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("--to"), "{}", refused.stderr);
    }
}

#[test]
fn an_output_without_a_folder_is_refused_before_the_analysis() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("file"), "").unwrap();
    for (command, option, name) in [
        (&["export", "perfetto"][..], "--out", "absent/trace.json"),
        (&["export", "folded"], "--out", "file/stacks.txt"),
        (&["export", "folded"], "--out", ""),
        (&["export", "parquet"], "--to", "file/tables"),
        (&["analyze"], "--out", "file/reports"),
    ] {
        if option == "--to" && !cfg!(feature = "parquet") {
            continue;
        }
        let option = format!("{option}={}", at(name));
        let run = run(command.iter().copied().chain([LLAMA, &option]));
        assert_eq!(run.status, Some(2), "{option}: {}", run.stderr);
        let line = format!("cannot write {}", at(name));
        assert!(run.stderr.contains(&line), "{option}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{option}");
    }
}

#[test]
fn a_side_that_is_neither_a_file_nor_a_run_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().display().to_string();
    let absent = run(["compare", "absent.sqlite", LLAMA, "--dir", &runs]);
    assert_eq!(absent.status, Some(2));
    let words = "there is no file absent.sqlite, and no runs in ";
    assert!(absent.stderr.contains(words), "{}", absent.stderr);
    let empty = run(["try", &runs, "--dir", &runs]);
    assert_eq!(empty.status, Some(2));
    let words = format!("{runs} is a folder but not a run");
    assert!(empty.stderr.contains(&words), "{}", empty.stderr);
}

#[test]
fn whole_traces_of_different_work_are_not_judged() {
    let kineto = "fixtures/h200/llama4.kineto.json.gz";
    let shown = ok(["compare", LLAMA, kineto]).stdout;
    let headline = "NOT COMPARABLE: different launches, timeline, common kernels. by instance: no time of a stage compares";
    assert_eq!(shown.lines().next(), Some(headline), "{shown}");
    assert!(shown.contains("launches: 3,490 against "), "{shown}");
    let gated = run(["compare", LLAMA, kineto, "--fail-on", "total.kernel=5%"]);
    assert_eq!(gated.status, Some(3), "{}", gated.stdout);
}

/// The same requests, scheduled differently: prefill has 768 tokens on one side and 256 on the other.
#[test]
fn captures_with_different_tokens_compare_by_step_and_token() {
    let (base, head) =
        ("fixtures/vllm/vllm_dense_graph.sqlite.gz", "fixtures/vllm/vllm_dense_graph.kineto.json.gz");
    let plain = ok(["compare", base, head]).stdout;
    let headline = plain.lines().find(|line| line.starts_with("NOT COMPARABLE")).unwrap();
    assert!(headline.contains("prefill.tokens"), "{headline}");
    assert!(plain.contains("no breakdown of the change: different "), "{plain}");
    // 17.234 ms for 768 tokens against 23.373 ms for 256.
    let per_token = plain.lines().find(|line| line.starts_with("per token µs")).unwrap();
    assert!(per_token.contains(" 22.44 ") && per_token.contains(" 91.30 "), "{per_token}");
    for (gate, status) in
        // The profilers differ, so that only a change beyond a factor of two is judged.
        [
            ("prefill.wall=5%", 3),
            ("total.kernel=5%", 3),
            ("prefill.token=5%", 5),
            ("decode.token=500%", 3),
        ]
    {
        let run = run(["compare", base, head, "--fail-on", gate]);
        assert_eq!(run.status, Some(status), "{gate}: {}", run.stdout);
    }
}
