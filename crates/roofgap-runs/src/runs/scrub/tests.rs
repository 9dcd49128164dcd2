use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::run_dir::folder::RunDir;
use flate2::read::GzDecoder;
use roofgap_analyze::{About, Options, Reason, analyze};
use roofgap_wire::{End, FrameBuilder, Header, Host, Record, Text};
use rusqlite::Connection;

use super::super::killed::{ChildTest, moments};
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

/// A run whose documents name its user, its host and secrets, with a real export whose environment was planted where nsys puts
/// it.
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
    drop(db);
    let session = serde_json::json!({
        "schema": "roofgap.session/1", "run_id": "20260101-000000", "roofgap_version": "1", "mode": "deep",
        "command_line": ["roofgap", "profile", "--", "serve", "--api-key", "sword fish"],
        "repeat_command": "cd /home/annabelle && serve --api-key 'sword fish'", "workload": "command",
        "started": "now", "finished": null, "state": "done", "exit_status": 0, "missing": [],
        "phases": [{
            "name": "baseline", "status": "failed", "why": "it failed", "log_tail": "printed by the program",
            "asked": true, "tool": null, "started": null, "finished": null, "wall_ns": null,
            "commands": [{
                "argv": ["serve", "--api-key", "sword fish"], "cwd": "/home/annabelle", "error": null,
                "env": {"MY_ID": PLAIN, "OMP_NUM_THREADS": "4"}, "shell": format!("MY_ID={PLAIN} serve"),
                "outcome": {"stderr": {"tail": "printed by the program"}},
            }],
            "outputs": [], "notes": [],
        }],
    });
    let write = |name: &str, text: &str| {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    };
    write("session.json", &session.to_string());
    write("metrics.json", &serde_json::to_string(&analysis).unwrap());
    write("env.json", "{\"tools\": {\"nsys\": {\"path\": \"/home/annabelle/bin/nsys\"}}}");
    write("config.yaml", &format!("workload:\n  env:\n    OTHER_ID: {PLAIN}\n  cwd: /home/annabelle/x\n"));
    for report in ["report.md", "kernels.md", "report.html"] {
        write(report, &format!("made by annabelle on gpubox-seven with {PLAIN}\n"));
    }
    let lines = "\"0\",\"python3\",\"127.0.0.1\",\"flash_fwd_kernel<128, 64>\"\n".repeat(8_000);
    write("ncu/plan_raw.csv", &format!("annabelle,gpubox-seven,{TOKEN}\n{lines}"));
    for other in ["nsys/run.nsys-rep", "ncu/plan.ncu-rep", "program/out.bin", "notes.md", "secrets.json"] {
        write(other, &format!("{TOKEN} {PLAIN}"));
    }
    write("baseline/program.err.log", &format!("loading with {TOKEN}\n"));
    root
}

fn props(pack: Option<PathBuf>) -> ScrubProps {
    let variables = [("HOSTNAME", "gpubox-seven"), ("USER", "annabelle")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    ScrubProps { variables, pack, ..ScrubProps::default() }
}

/// What a scrubbed run must not show.
const PRIVATE: [&str; 6] =
    [TOKEN, PLAIN, "annabelle", "gpubox-seven", "sword fish", "printed by the program"];

/// Files of the run that can be shared.
const SHARED: [&str; 9] = [
    "config.yaml",
    "env.json",
    "kernels.md",
    "metrics.json",
    "ncu/plan_raw.csv",
    "report.html",
    "report.md",
    "scrubbed.json",
    "session.json",
];

fn left_out(outcome: &ScrubOutcome) -> Vec<&str> {
    outcome.not_clean.iter().map(|file| file.path.to_str().unwrap()).collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

/// Every byte of an archive, as it is and unpacked.
fn every_byte(pack: &Path) -> Vec<u8> {
    let mut bytes = fs::read(pack).unwrap();
    GzDecoder::new(File::open(pack).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn names(pack: &Path) -> Vec<String> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(pack).unwrap()));
    let entries = archive.entries().unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
    names.sort();
    names
}

#[test]
fn the_archive_has_what_is_on_the_list_and_no_byte_that_is_private() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let export = fs::read(root.join("nsys/run.sqlite")).unwrap();
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    assert_eq!(outcome.exit(), Exit::Done, "{:?}", outcome.not_clean);
    let bytes = every_byte(&target);
    for private in PRIVATE {
        assert!(!holds(&bytes, private), "{private}");
        for name in SHARED {
            assert!(!holds(&fs::read(root.join(name)).unwrap(), private), "{private} in {name}");
        }
    }
    assert_eq!(names(&target), SHARED.map(|name| format!("20260101-000000/{name}")));
    assert_eq!(
        left_out(&outcome),
        [
            "baseline/program.err.log",
            "ncu/plan.ncu-rep",
            "notes.md",
            "nsys/run.nsys-rep",
            "nsys/run.sqlite",
            "program/out.bin",
            "secrets.json",
        ]
    );
    assert!(outcome.removed.contains_key("the variable MY_ID"), "{:?}", outcome.removed);
    assert_eq!(fs::read(root.join("nsys/run.sqlite")).unwrap(), export, "what is left out stays as it was");
    // The documents are whole: the analysis reads back, and the reports show it.
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let analysis: Analysis = serde_json::from_str(&read("metrics.json")).unwrap();
    assert_eq!(analysis.sources[0].path, "~/run.sqlite");
    assert!(read("report.md").contains("~/run.sqlite"), "{}", read("report.md"));
    SessionRecord::read(&root).unwrap();
    let hidden = fs::read_dir(&root).unwrap().flatten();
    assert!(hidden.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with('.')));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_the_user_names_is_packed_unless_it_has_a_secret() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    fs::write(root.join("baseline/program.out.log"), "on gpubox-seven: 12 tokens\n").unwrap();
    let target = base.path().join("share.tar.gz");
    let named = ["baseline/program.out.log", "baseline/program.err.log", "nsys/run.sqlite"];
    let mut props = props(Some(target.clone()));
    props.include = named.map(PathBuf::from).into();
    let outcome = scrub(&RunRef::at(&root), &props).unwrap();
    assert_eq!(outcome.exit(), Exit::Partial);
    let packed = names(&target);
    for (name, is_packed) in named.into_iter().zip([true, false, false]) {
        assert_eq!(packed.iter().any(|path| path.ends_with(name)), is_packed, "{name}");
        assert_eq!(left_out(&outcome).contains(&name), !is_packed, "{name}");
    }
    assert!(!holds(&every_byte(&target), TOKEN));
    props.include = vec!["absent.log".into()];
    let error = scrub(&RunRef::at(&root), &props).unwrap_err().to_string();
    assert!(error.contains("has no file absent.log"), "{error}");
}

#[test]
fn secrets_by_shape_are_removed_from_every_document() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let secrets = [
        "--api-key swordfish1",
        "Authorization: Basic swordfish2",
        "https://swordfish3@host/",
        "--password=swordfish4",
        "{\"clientSecret\": \"swordfish5\"}",
        "DB_PWD=swordfish6",
    ];
    let mut session: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(root.join("session.json")).unwrap()).unwrap();
    session["missing"] = secrets.iter().map(|text| format!("one\n\u{1b}[31m{text}\ntwo")).collect();
    fs::write(root.join("session.json"), session.to_string()).unwrap();
    fs::write(root.join("inputs.yaml"), format!("- prompt: '{}'\n", secrets[0])).unwrap();
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    assert_eq!(outcome.exit(), Exit::Done, "{:?}", outcome.not_clean);
    assert!(!holds(&every_byte(&target), "swordfish"));
    assert!(names(&target).contains(&"20260101-000000/inputs.yaml".to_owned()));
}

#[test]
fn a_document_that_cannot_be_cleaned_is_named_and_left_out() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    fs::write(root.join("env.json"), "{\"password\": 12345678}").unwrap();
    fs::write(root.join("metrics.json"), "{").unwrap();
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    assert_eq!(outcome.exit(), Exit::Partial);
    for name in ["env.json", "report.md", "report.html"] {
        assert!(left_out(&outcome).contains(&name), "{name}: {:?}", outcome.not_clean);
        assert!(!names(&target).iter().any(|path| path.ends_with(name)), "{name}");
    }
    assert!(!holds(&every_byte(&target), "12345678"));
}

#[test]
fn a_secret_among_the_names_of_a_native_capture_is_found() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let capture = root.join("native/1.rgcap");
    fs::create_dir(root.join("native")).unwrap();
    fs::copy(fixture("native/stand-in.rgcap"), &capture).unwrap();
    let target = base.path().join("share.tar.gz");
    let packed = || names(&target).iter().any(|name| name.ends_with(".rgcap"));
    scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    assert!(packed());
    let input = roofgap_trace::read(std::slice::from_ref(&capture)).unwrap();
    let (_, name) = input.trace.names.iter().max_by_key(|(_, name)| name.len()).unwrap();
    let mut props = props(Some(target.clone()));
    props.variables.push(("SOME_SECRET".to_owned(), name.to_owned()));
    let outcome = scrub(&RunRef::at(&root), &props).unwrap();
    let left = outcome.not_clean.iter().find(|file| file.path.ends_with("1.rgcap"));
    assert_eq!(left.unwrap().why, "still holds the variable SOME_SECRET");
    assert!(!packed());
}

#[test]
fn the_host_of_a_native_capture_is_removed_everywhere() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let capture = root.join("native/1.rgcap");
    fs::create_dir(root.join("native")).unwrap();
    let mut frame = FrameBuilder::new();
    let name = Text(b"node-of-another-cluster");
    frame.put(&Record::Host(Host { name }));
    let mut bytes = Header::new(1, 2, 3).encode().to_vec();
    bytes.extend_from_slice(frame.close());
    frame.put(&Record::End(End { how: 1, at: 9 }));
    bytes.extend_from_slice(frame.close());
    fs::write(&capture, bytes).unwrap();
    fs::write(root.join("inputs.yaml"), "rank 3 on node-of-another-cluster").unwrap();
    let outcome = scrub(&RunRef::at(&root), &props(None)).unwrap();
    assert!(outcome.changed.contains(&PathBuf::from("native/1.rgcap")), "{outcome:?}");
    assert_eq!(roofgap_trace::native::host(&capture).unwrap(), None);
    let inputs = fs::read_to_string(root.join("inputs.yaml")).unwrap();
    assert!(!inputs.contains("another-cluster"), "{inputs}");
}

#[test]
fn once_more_changes_nothing() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let place = RunRef::at(&root);
    scrub(&place, &props(None)).unwrap();
    let again = scrub(&place, &props(Some(base.path().join("x.tar.gz")))).unwrap();
    assert!(again.removed.is_empty() && again.changed.is_empty(), "{again:?}");
}

#[test]
fn a_compressed_table_stays_compressed() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let table = root.join("ncu/plan_raw.csv");
    assert!(std::process::Command::new("gzip").arg(&table).status().unwrap().success());
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    assert!(outcome.changed.contains(&PathBuf::from("ncu/plan_raw.csv.gz")), "{outcome:?}");
    unpack(&root.join("ncu/plan_raw.csv.gz"), &table);
    let text = fs::read_to_string(&table).unwrap();
    assert!(text.starts_with("<removed>,<removed>,<removed>\n") && text.contains("flash_fwd"), "{text:.80}");
}

#[test]
fn the_nodes_of_a_job_are_treated_like_runs() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    for (name, text) in [
        ("nodes/a/secrets.json", "not JSON"),
        ("nodes/a/program/out.txt", "anything"),
        ("nodes/a/session.json", "{\"note\": \"/home/annabelle/a\"}"),
        ("nodes/b/inputs.yaml", "at: /home/annabelle/b\n"),
        ("nodes/b/baseline/program.err.log", "/home/annabelle/b\n"),
    ] {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    }
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    let packed = names(&target);
    for (name, is_packed) in [
        ("nodes/a/secrets.json", false),
        ("nodes/a/program/out.txt", false),
        ("nodes/a/session.json", true),
        ("nodes/b/inputs.yaml", true),
        ("nodes/b/baseline/program.err.log", false),
    ] {
        assert_eq!(packed.iter().any(|path| path.ends_with(name)), is_packed, "{name}");
        assert_eq!(left_out(&outcome).contains(&name), !is_packed, "{name}");
    }
    // The record of a node tells what to look for in the others.
    let position = |name: &str| outcome.changed.iter().position(|file| file == Path::new(name));
    let record = position("nodes/a/session.json").unwrap();
    assert!(position("nodes/b/inputs.yaml").unwrap() < record);
    assert!(position("report.md").unwrap() < record);
}

#[test]
fn a_merged_run_is_private_and_knows_the_secrets_of_every_node() {
    use std::os::unix::fs::PermissionsExt;
    let base = tempfile::tempdir().unwrap();
    let first = run(&base.path().join("a"));
    let second = base.path().join("b/20260101-000000");
    let capture = second.join("native/1.rgcap");
    fs::create_dir_all(second.join("native")).unwrap();
    fs::copy(fixture("native/stand-in.rgcap"), &capture).unwrap();
    let input = roofgap_trace::read(std::slice::from_ref(&capture)).unwrap();
    let (_, secret) = input.trace.names.iter().max_by_key(|(_, name)| name.len()).unwrap();
    let mut session: serde_json::Value =
        serde_json::from_slice(&fs::read(first.join("session.json")).unwrap()).unwrap();
    session["command_line"] = serde_json::json!(["roofgap", "profile", "--", "serve", "--api-key", secret]);
    fs::write(second.join("session.json"), session.to_string()).unwrap();
    let merged = base.path().join("job");
    for _ in 0..2 {
        let runs = [RunRef::at(&first), RunRef::at(&second)];
        super::super::merge(&runs, &merged).unwrap();
    }
    assert_eq!(fs::metadata(&merged).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(
        fs::read_dir(merged.join("nodes")).unwrap().count(),
        1,
        "a merge that is repeated adds nothing"
    );
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&merged), &props(Some(target.clone()))).unwrap();
    let left = outcome.not_clean.iter().find(|file| file.path == Path::new("native/1.rgcap"));
    assert_eq!(left.unwrap().why, "still holds the value of --api-key");
    let bytes = every_byte(&target);
    for private in PRIVATE.into_iter().chain([secret]) {
        assert!(!holds(&bytes, private), "{private}");
    }
}

#[test]
fn a_native_capture_that_cannot_be_searched_is_left_out() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    fs::create_dir(root.join("native")).unwrap();
    fs::write(root.join("native/1.rgcap"), "not a capture").unwrap();
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    assert_eq!(outcome.exit(), Exit::Partial);
    let left = outcome.not_clean.iter().find(|file| file.path == Path::new("native/1.rgcap"));
    assert!(left.unwrap().why.contains("cannot be searched"), "{left:?}");
    assert!(!names(&target).iter().any(|name| name.ends_with(".rgcap")));
}

#[test]
fn a_run_under_way_is_not_touched() {
    let base = tempfile::tempdir().unwrap();
    let live = RunDir::create(base.path()).unwrap();
    let error = scrub(&RunRef::at(live.path()), &props(None)).unwrap_err().to_string();
    assert!(error.contains("is in progress"), "{error}");
}

#[test]
fn an_archive_that_cannot_be_written_leaves_nothing() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let target = base.path().join("missing/share.tar.gz");
    let error = scrub(&RunRef::at(&root), &props(Some(target))).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
}

/// The child of the next two tests: scrubs until it is killed or its disk is full. Does nothing when it is run as a test.
#[test]
fn scrub_as_a_child() {
    if let Some(root) = std::env::var_os("ROOFGAP_TEST_SCRUB_CHILD") {
        let _ = scrub(&RunRef::at(Path::new(&root)), &props(None));
    }
}

/// Scrubs an interrupted run again and checks the result.
fn ends_clean(base: &Path, root: &Path) {
    let target = base.join("share.tar.gz");
    let outcome = scrub(&RunRef::at(root), &props(Some(target.clone()))).unwrap();
    assert_eq!(outcome.exit(), Exit::Done, "{:?}", outcome.not_clean);
    let bytes = every_byte(&target);
    for private in PRIVATE {
        assert!(!holds(&bytes, private), "{private}");
    }
    assert_eq!(names(&target), SHARED.map(|name| format!("20260101-000000/{name}")));
    let left = super::super::artifacts::files(root).unwrap();
    let known = left_out(&outcome);
    for file in left.iter().filter(|file| !known.contains(&file.path.to_str().unwrap())) {
        assert!(!holds(&fs::read(root.join(&file.path)).unwrap(), TOKEN), "{:?}", file.path);
    }
}

#[test]
fn a_kill_at_any_moment_can_be_made_good() {
    let child =
        ChildTest { name: "runs::scrub::tests::scrub_as_a_child", variable: "ROOFGAP_TEST_SCRUB_CHILD" };
    let base = tempfile::tempdir().unwrap();
    let whole = child.whole(&run(base.path()));
    for moment in moments(8, whole) {
        let base = tempfile::tempdir().unwrap();
        let root = run(base.path());
        child.kill_after(&root, moment);
        ends_clean(base.path(), &root);
    }
    let in_the_middle = || {
        let base = tempfile::tempdir().unwrap();
        let root = run(base.path());
        let is_hit = child.kill_in_the_middle(&root);
        ends_clean(base.path(), &root);
        is_hit
    };
    assert!((0..50).any(|_| in_the_middle()), "no kill was in the middle");
}

#[test]
fn a_full_disk_can_be_made_good() {
    // Files that may not grow beyond so many blocks: to the writer the same as a disk without room.
    for blocks in [0, 2, 64, 200] {
        let base = tempfile::tempdir().unwrap();
        let root = run(base.path());
        let status = std::process::Command::new("/bin/sh")
            .args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "runs::scrub::tests::scrub_as_a_child"])
            .env("ROOFGAP_TEST_SCRUB_CHILD", &root)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "it fails in order: {status}");
        ends_clean(base.path(), &root);
    }
}

#[test]
fn an_archive_replaces_neither_a_pipe_nor_a_device() {
    use std::os::unix::fs::FileTypeExt;
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let pipe = base.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let error = scrub(&RunRef::at(&root), &props(Some(pipe.clone()))).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(!root.join("scrubbed.json").exists(), "refused before any work");
    // A link, so that only the link could be replaced.
    let device = base.path().join("device");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    let outcome = scrub(&RunRef::at(&root), &props(Some(device.clone()))).unwrap();
    assert!(fs::symlink_metadata(&device).unwrap().is_symlink());
    let archive = outcome.pack.unwrap();
    assert!(archive.bytes > 0 && !archive.sha256.is_empty(), "{archive:?}");
}
