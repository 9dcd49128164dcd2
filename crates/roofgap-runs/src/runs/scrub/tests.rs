use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run_dir::folder::RunDir;
use flate2::read::GzDecoder;
use roofgap_analyze::{About, Options, Reason, analyze};
use roofgap_wire::{FrameBuilder, HEADER_LEN, Host, Reader, Record, Text};
use rusqlite::Connection;

use super::*;

const TOKEN: &str = "hf_PlantedSecretToken0123456789";
const PLAIN: &str = "planted-plain-value-4711";

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn unpack(from: &Path, to: &Path) {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(from).unwrap()).read_to_end(&mut bytes).unwrap();
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::write(to, bytes).unwrap();
}

fn write(root: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A secret that no rule knows, in the encodings that documents have. Only what is never packed may hold it.
const UNKNOWN: [&str; 6] = [
    "S3cr3t'p@ss w+rd-42",
    r"S3cr3t'\''p@ss w+rd-42",
    "S3cr3t%27p%40ss%20w%2Brd-42",
    "UzNjcjN0J3BAc3MgdytyZC00Mg==",
    "dTpTM2NyM3QncEBzcyB3K3JkLTQy",
    "533363723374277040737320772b72642d3432",
];

/// Files of the run that are never packed.
const OTHERS: [&str; 14] = [
    "baseline/program.err.log",
    "config.yaml",
    "core.1234",
    "env.json",
    "inputs.yaml",
    "ncu/plan.ncu-rep",
    "notes.md",
    "nsys/export.err.log",
    "nsys/run.nsys-rep",
    "program/out.bin",
    "program/workload.json",
    "scripts/hf_driver.py",
    "secrets.json",
    "torch/trace.json.gz",
];

/// A run whose files name its user, its host and secrets, with a real export whose environment was planted where nsys puts it.
fn run(base: &Path) -> PathBuf {
    let root = base.join("20260101-000000");
    let sqlite = root.join("nsys/run.sqlite");
    unpack(&fixture("nsys-versions/nsys-2023.4.4-cpu-nvtx.sqlite.gz"), &sqlite);
    let mut analysis =
        analyze(&roofgap_trace::read(std::slice::from_ref(&sqlite)).unwrap().trace, &Options::default())
            .analysis;
    analysis.sources[0].path = "/home/annabelle/run.sqlite".to_owned();
    analysis.reasons.push(Reason::new(About::Sources, format!("on gpubox-seven with {PLAIN}\n{TOKEN}")));
    let db = Connection::open(&sqlite).unwrap();
    db.execute("UPDATE NVTX_EVENTS SET text = ?1 WHERE rowid = 1", [format!("load {TOKEN}")]).unwrap();
    for text in ["TOKEN=Env1ronment\0HOME=/home/annabelle", "printed by the program"] {
        db.execute("INSERT INTO StringIds (id, value) SELECT max(id) + 1, ?1 FROM StringIds", [text])
            .unwrap();
    }
    drop(db);
    let session = serde_json::json!({
        "schema": "roofgap.session/1", "run_id": "20260101-000000", "roofgap_version": "1", "mode": "deep",
        "command_line": ["roofgap", "profile", "--", "serve", "--api-key", "sword fish"],
        "repeat_command": "cd /home/annabelle && serve --api-key 'sword fish'", "workload": "command",
        "started": "now", "finished": null, "state": "done", "exit_status": 0, "missing": UNKNOWN,
        "phases": [{
            "name": "baseline", "status": "failed", "why": UNKNOWN[0], "log_tail": "printed by the program",
            "asked": true, "tool": null, "started": null, "finished": null, "wall_ns": 7,
            "commands": [{
                "argv": ["serve", "--api-key", "sword fish"], "cwd": "/home/annabelle", "error": null,
                "env": {"MY_ID": PLAIN, "OMP_NUM_THREADS": "4"}, "shell": format!("MY_ID={PLAIN} serve"),
                "outcome": {"stderr": {"tail": "printed by the program"}},
            }],
            "outputs": [], "notes": UNKNOWN,
        }],
    });
    let everything = format!("{TOKEN} {PLAIN} {}", UNKNOWN.join("\n"));
    OTHERS.iter().for_each(|name| write(&root, name, &everything));
    write(&root, "session.json", session.to_string());
    write(&root, "metrics.json", serde_json::to_string(&analysis).unwrap());
    write(
        &root,
        "config.yaml",
        format!("workload:\n  env:\n    OTHER_ID: {PLAIN}\n  cwd: /home/annabelle/x\n"),
    );
    for report in ["report.md", "kernels.md", "report.html"] {
        write(&root, report, &everything);
    }
    let account =
        serde_json::json!({ "model": format!("at /home/annabelle/{TOKEN}"), "log_tail": UNKNOWN[0] });
    write(&root, "baseline/workload.json", account.to_string());
    unpack(&fixture("ncu/llama4_light_raw_base.csv.gz"), &root.join("ncu/plan_raw.csv"));
    let page = fs::read_to_string(root.join("ncu/plan_raw.csv")).unwrap();
    let before = format!("{everything}\n==PROF== Connected to process 7 (/home/annabelle/bin/python3)\n");
    write(&root, "ncu/plan_raw.csv", before + &page.replace("\"127.0.0.1\"", "\"gpubox-seven\""));
    root
}

fn variables() -> Vec<(String, String)> {
    let variables = [("HOSTNAME", "gpubox-seven"), ("USER", "annabelle"), ("HF_TOKEN", TOKEN)];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// What an archive must not show.
const PRIVATE: [&str; 7] =
    [TOKEN, PLAIN, "annabelle", "gpubox-seven", "sword fish", "printed by the program", "Env1ronment"];

/// Files of an archive by their paths in the run, as the tar of this machine unpacks them.
fn unpacked(pack: &Path) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let done = Command::new("tar").arg("-xzf").arg(pack).arg("-C").arg(folder.path()).output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    let root = folder.path().join("20260101-000000");
    let content =
        |file: super::super::artifacts::FoundFile| (file.name(), fs::read(root.join(&file.path)).unwrap());
    files(&root).unwrap().into_iter().map(content).collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

/// Packs a run and checks that nothing private is in the archive.
fn pack(root: &Path, target: &Path) -> (ScrubOutcome, BTreeMap<String, Vec<u8>>) {
    let outcome = scrub(&RunRef::at(root), &variables(), target).unwrap();
    let files = unpacked(target);
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let mut packed = outcome.packed.clone();
    packed.sort();
    assert_eq!(names, packed);
    for (name, bytes) in &files {
        let in_name = PRIVATE.iter().find(|private| name.contains(*private));
        // A part gives a secret away as well.
        let halves = UNKNOWN.iter().map(|secret| &secret[..secret.len() / 2]);
        let in_bytes = PRIVATE.into_iter().chain(halves).find(|private| holds(bytes, private));
        assert_eq!((in_name, in_bytes), (None, None), "{name}");
    }
    (outcome, files)
}

fn why<'a>(outcome: &'a ScrubOutcome, path: &str) -> &'a str {
    outcome.left_out.iter().find(|file| file.path == path).map_or("", |file| file.why.as_str())
}

#[test]
fn the_archive_has_what_is_on_the_list_and_no_byte_that_is_private() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let listing = || -> Vec<(PathBuf, Vec<u8>)> {
        let found = files(&root).unwrap().into_iter();
        found.map(|file| (file.path.clone(), fs::read(root.join(&file.path)).unwrap())).collect()
    };
    let before = listing();
    let target = base.path().join("share.tar.gz");
    let (outcome, files) = pack(&root, &target);
    assert!(listing() == before, "the run was changed");
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        [
            "baseline/workload.json",
            "kernels.md",
            "metrics.json",
            "ncu/plan_raw.csv",
            "report.html",
            "report.md",
            "timeline.pftrace",
        ]
    );
    assert_eq!(outcome.exit(), Exit::Done, "{:?}", outcome.left_out);
    let left_out: BTreeSet<&str> = outcome.left_out.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(
        left_out,
        OTHERS.into_iter().chain(["nsys/run.sqlite", "session.json"]).collect::<BTreeSet<_>>()
    );
    assert!(why(&outcome, "nsys/run.nsys-rep").contains("environment of every process; do not share it"));
    let analysis: Analysis = serde_json::from_slice(&files["metrics.json"]).unwrap();
    assert_eq!(analysis.sources[0].path, "run.sqlite");
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    let text = super::super::text::scrubbed(&outcome, Default::default());
    assert!(
        text.contains("share.tar.gz: 7 files") && text.contains("program/out.bin: not on the list"),
        "{text}"
    );
}

#[test]
fn what_is_packed_gives_the_same_analysis() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    for (fixture_name, name) in [
        ("h200/llama4.sqlite.gz", "nsys/run.sqlite"),
        ("ncu/llama4_light_raw_base.csv.gz", "ncu/plan_raw.csv"),
    ] {
        unpack(&fixture(fixture_name), &root.join(name));
    }
    let (outcome, files) = pack(&root, &base.path().join("share.tar.gz"));
    assert_eq!(outcome.exit(), Exit::Done, "{:?}", outcome.left_out);
    let after = base.path().join("after");
    let names = ["timeline.pftrace", "ncu/plan_raw.csv"];
    names.iter().for_each(|name| write(&after, name, &files[*name]));
    let analysis = |paths: [PathBuf; 2]| {
        let input = roofgap_trace::read(&paths).unwrap();
        let options = Options { counters: input.counters, ..Options::default() };
        analyze(&input.trace, &options).analysis
    };
    let before = analysis([root.join("nsys/run.sqlite"), root.join("ncu/plan_raw.csv")]);
    let after = analysis(names.map(|name| after.join(name)));
    assert!(!before.counters.is_empty() && !before.stages.is_empty());
    assert_eq!(before.totals, after.totals);
    assert_eq!(before.counters, after.counters);
    let stages = |analysis: &Analysis| -> Vec<_> {
        let facts = |stage: &roofgap_analyze::Stage| {
            (
                stage.name.clone(),
                stage.wall_ns,
                stage.busy_ns,
                stage.kernel_ns,
                stage.kernel_count,
                stage.idle,
            )
        };
        analysis.stages.iter().map(facts).collect()
    };
    assert_eq!(stages(&before), stages(&after));
    let kernels = |analysis: &Analysis| -> BTreeSet<_> {
        analysis.kernels.iter().map(|kernel| (kernel.name.clone(), kernel.total_ns, kernel.calls)).collect()
    };
    assert_eq!(kernels(&before), kernels(&after));
}

#[test]
fn a_document_that_cannot_be_written_again_is_named_and_left_out() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    write(&root, "metrics.json", "{");
    write(&root, "ncu/plan_details.csv", "no page");
    write(&root, "nsys/run.sqlite", "no database");
    write(&root, &format!("ncu/{TOKEN}.csv"), "x");
    let (outcome, files) = pack(&root, &base.path().join("share.tar.gz"));
    assert_eq!(outcome.exit(), Exit::Partial);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["baseline/workload.json", "ncu/plan_raw.csv"]);
    for name in ["metrics.json", "report.html", "ncu/plan_details.csv"] {
        assert!(!why(&outcome, name).is_empty(), "{name}: {:?}", outcome.left_out);
    }
    assert_eq!(why(&outcome, "ncu/<removed>.csv"), "its name holds private data");
}

#[test]
fn a_native_capture_gives_its_timeline_without_its_host() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    fs::remove_file(root.join("nsys/run.sqlite")).unwrap();
    let host = "node-of-another-cluster";
    let capture = fs::read(fixture("native/stand-in.rgcap")).unwrap();
    let mut reader = Reader::open(capture.as_slice()).unwrap();
    let mut frame = FrameBuilder::new();
    let mut bytes = capture[..HEADER_LEN].to_vec();
    frame.put(&Record::Host(Host { name: Text(host.as_bytes()) }));
    // The frames are numbered, so that all are encoded again.
    while let Some(records) = reader.next_frame().unwrap() {
        records.for_each(|record| frame.put(&record));
        bytes.extend_from_slice(frame.close());
    }
    write(&root, "native/1.rgcap", bytes);
    write(&root, "torch/workload.json", format!("{{\"device\": \"rank 3 on {host}\"}}"));
    let (outcome, files) = pack(&root, &base.path().join("share.tar.gz"));
    assert!(files.contains_key("timeline.pftrace"), "{:?}", outcome.left_out);
    assert!(files.values().all(|bytes| !holds(bytes, host)));
    assert!(why(&outcome, "native/1.rgcap").contains("the archive has its timeline"));
}

#[test]
fn a_compressed_table_is_packed_plain() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let before = pack(&root, &base.path().join("a.tar.gz")).1;
    for name in ["ncu/plan_raw.csv", "baseline/workload.json"] {
        assert!(Command::new("gzip").arg(root.join(name)).status().unwrap().success());
    }
    assert!(pack(&root, &base.path().join("b.tar.gz")).1 == before);
}

#[test]
fn the_nodes_of_a_merged_run_stay_out_and_tell_what_is_private() {
    let base = tempfile::tempdir().unwrap();
    let first = run(&base.path().join("a"));
    let second = base.path().join("b/20260101-000000");
    fs::create_dir_all(second.join("native")).unwrap();
    fs::copy(fixture("native/stand-in.rgcap"), second.join("native/1.rgcap")).unwrap();
    let secret = "clandestine";
    let mut session: Value = serde_json::from_slice(&fs::read(first.join("session.json")).unwrap()).unwrap();
    session["command_line"] = serde_json::json!(["roofgap", "profile", "--", "serve", "--api-key", secret]);
    fs::write(second.join("session.json"), session.to_string()).unwrap();
    let merged = base.path().join("20260101-000000");
    for _ in 0..2 {
        super::super::merge(&[RunRef::at(&first), RunRef::at(&second)], &merged).unwrap();
    }
    assert_eq!(fs::metadata(&merged).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(
        fs::read_dir(merged.join("nodes")).unwrap().count(),
        2,
        "a merge that is repeated adds nothing"
    );
    write(&merged, "try.json", format!("{{\"note\": \"{secret}\"}}"));
    let (_, files) = pack(&merged, &base.path().join("share.tar.gz"));
    assert!(files.contains_key("try.json") && files.keys().all(|name| !name.starts_with("nodes/")));
    assert!(files.values().all(|bytes| !holds(bytes, secret)));
}

#[test]
fn a_run_under_way_is_not_packed() {
    let base = tempfile::tempdir().unwrap();
    let live = RunDir::create(base.path()).unwrap();
    let target = base.path().join("share.tar.gz");
    let error = scrub(&RunRef::at(live.path()), &variables(), &target).unwrap_err().to_string();
    assert!(error.contains("is in progress"), "{error}");
    assert!(!target.exists());
}

#[test]
fn an_archive_replaces_neither_a_pipe_nor_a_device() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let pipe = base.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // A link, so that only the link could be replaced.
    let device = base.path().join("device");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    for target in [&pipe, &device, &base.path().to_owned()] {
        let before = fs::symlink_metadata(target).unwrap().file_type();
        let error = scrub(&RunRef::at(&root), &variables(), target).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        assert_eq!(fs::symlink_metadata(target).unwrap().file_type(), before);
    }
    let error = scrub(&RunRef::at(&root), &variables(), &base.path().join("missing/x")).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}
