use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::run_dir::folder::RunDir;
use flate2::read::GzDecoder;
use roofgap_analyze::{Options, analyze};
use roofgap_wire::{End, FrameBuilder, Header, Host, Record, Text};
use rusqlite::Connection;

use super::super::killed::{ChildTest, moments};
use super::*;
use crate::run_dir::RunRef;
use roofgap_base::exit::Exit;

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

/// A run with a real export, into which an environment was planted in the places where nsys puts it.
fn run(base: &Path) -> PathBuf {
    let root = base.join("20260101-000000");
    let sqlite = root.join("nsys/run.sqlite");
    unpack(&fixture("nsys-versions/nsys-2023.4.4-cpu-nvtx.sqlite.gz"), &sqlite);
    let db = Connection::open(&sqlite).unwrap();
    let block = format!("LANG=C HF_TOKEN={TOKEN} MY_ID={PLAIN} HOME=/home/annabelle");
    db.execute(
        "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', ?1)",
        [format!("HF_TOKEN=\"{TOKEN}\"")],
    )
    .unwrap();
    db.execute(
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Local', 'DeviceEnvironment', 1, ?1)",
        [block.replace(' ', ";")],
    )
    .unwrap();
    db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Local', 'Hostname', 1, 'gpubox-seven')", [])
        .unwrap();
    db.execute("INSERT INTO StringIds VALUES (900001, ?1)", [&block]).unwrap();
    // A range of the program that gives away where its user lives.
    db.execute("UPDATE NVTX_EVENTS SET text = '/home/annabelle/model on gpubox-seven' WHERE rowid = 1", [])
        .unwrap();
    // A string that is deleted stays in the file until its page is used again.
    db.execute("INSERT INTO StringIds VALUES (900002, ?1)", [format!("{TOKEN}{}", "x".repeat(20_000))])
        .unwrap();
    db.execute("DELETE FROM StringIds WHERE id = 900002", []).unwrap();
    drop(db);
    let write = |name: &str, text: &str| {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    };
    write("session.json", &format!("{{\"note\": \"token {TOKEN}\"}}"));
    write("metrics.json", "{\"path\": \"/home/annabelle/run\"}");
    write("report.md", &format!("made by annabelle on gpubox-seven with {PLAIN}\n"));
    write("nsys/run.nsys-rep", &format!("binary {TOKEN}"));
    write("ncu/plan.ncu-rep", "binary");
    write("program/out.bin", "anything");
    let mut log = format!("loading with {TOKEN} ").into_bytes();
    log.extend([0xff, 0xfe, b'\n']);
    fs::create_dir_all(root.join("baseline")).unwrap();
    fs::write(root.join("baseline/program.err.log"), log).unwrap();
    root
}

fn props(pack: Option<PathBuf>) -> ScrubProps {
    ScrubProps {
        host: HostFacts { user: Some("annabelle".into()), ..HostFacts::default() },
        pack,
        dry_run: false,
    }
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
fn no_byte_of_what_was_planted_is_in_the_pack() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    assert!(holds(&fs::read(root.join("nsys/run.sqlite")).unwrap(), TOKEN));
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    let bytes = every_byte(&target);
    for private in [TOKEN, PLAIN, "annabelle", "gpubox-seven"] {
        assert!(!holds(&bytes, private), "{private}");
    }
    assert_eq!(
        names(&target),
        [
            "20260101-000000/baseline/program.err.log",
            "20260101-000000/metrics.json",
            "20260101-000000/nsys/run.sqlite",
            "20260101-000000/report.md",
            "20260101-000000/scrubbed.json",
            "20260101-000000/session.json",
        ]
    );
    let left: Vec<&str> = outcome.not_clean.iter().map(|kept| kept.path.to_str().unwrap()).collect();
    assert_eq!(left, ["ncu/plan.ncu-rep", "nsys/run.nsys-rep", "program/out.bin"]);
    assert!(outcome.dropped_tables.contains(&"TARGET_INFO_SYSTEM_ENV".to_owned()));
    assert!(outcome.removed.contains_key("the variable HF_TOKEN"), "{:?}", outcome.removed);
    // The run itself is clean as well, but for what cannot be.
    for name in ["nsys/run.sqlite", "session.json", "baseline/program.err.log", "scrubbed.json"] {
        assert!(!holds(&fs::read(root.join(name)).unwrap(), TOKEN), "{name}");
    }
    let log = fs::read(root.join("baseline/program.err.log")).unwrap();
    assert!(log.ends_with(&[0xff, 0xfe, b'\n']), "what is no text stays");
    // Nothing of the work is left.
    let hidden = fs::read_dir(root.join("nsys")).unwrap().flatten();
    assert!(hidden.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with('.')));
}

#[test]
fn secrets_by_shape_and_in_other_encodings_are_not_in_the_pack() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let sqlite = root.join("nsys/run.sqlite");
    let shaped = "glpat-Ab3dEf6hIj9kLmN0pQr5";
    Connection::open(&sqlite)
        .unwrap()
        .execute("UPDATE NVTX_EVENTS SET text = ?1 WHERE rowid = 2", [format!("load {shaped}")])
        .unwrap();
    // The base64 of the planted token.
    let encoded = "aGZfUGxhbnRlZFNlY3JldFRva2VuMDEyMzQ1Njc4OQ";
    let utf16: String = TOKEN.chars().flat_map(|c| [c, '\0']).collect();
    let log = format!(
        "run --api-key swordfish1\nAuthorization: Bearer swordfish2\nhttps://swordfish3@host/\n--password=swordfish4\n{encoded}\n{utf16}\n"
    );
    fs::write(root.join("baseline/program.out.log"), log).unwrap();
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    assert_eq!(outcome.exit(), Exit::Done, "{:?}", outcome.not_clean);
    let bytes = every_byte(&target);
    for secret in [shaped, "swordfish", encoded, &utf16] {
        assert!(!holds(&bytes, secret), "{secret}");
    }
    assert!(names(&target).contains(&"20260101-000000/baseline/program.out.log".to_owned()));
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(&target).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
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
    props.host.variables.push(("SOME_SECRET".to_owned(), name.to_owned()));
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
    fs::write(root.join("notes.md"), "rank 3 on node-of-another-cluster").unwrap();
    let outcome = scrub(&RunRef::at(&root), &props(None)).unwrap();
    assert!(outcome.changed.contains(&PathBuf::from("native/1.rgcap")), "{outcome:?}");
    assert_eq!(roofgap_trace::native::host(&capture).unwrap(), None);
    let notes = fs::read_to_string(root.join("notes.md")).unwrap();
    assert!(!notes.contains("another-cluster"), "{notes}");
}

#[test]
fn once_more_changes_nothing() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let place = RunRef::at(&root);
    scrub(&place, &props(None)).unwrap();
    let before = fs::read(root.join("nsys/run.sqlite")).unwrap();
    let again = scrub(&place, &props(Some(base.path().join("x.tar.gz")))).unwrap();
    assert!(again.removed.is_empty(), "{:?}", again.removed);
    assert_eq!(fs::read(root.join("nsys/run.sqlite")).unwrap(), before);
}

#[test]
fn a_timeline_says_the_same_afterwards() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("20260101-000000");
    let sqlite = root.join("nsys/run.sqlite");
    unpack(&fixture("h200/llama4.sqlite.gz"), &sqlite);
    let measure = || {
        let input = roofgap_trace::read(std::slice::from_ref(&sqlite)).unwrap();
        let mut analysis = analyze(&input.trace, &Options::default()).analysis;
        analysis.sources.clear();
        analysis
    };
    let before = measure();
    scrub(&RunRef::at(&root), &props(None)).unwrap();
    assert_eq!(measure(), before);
}

#[test]
fn a_compressed_timeline_stays_compressed() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("20260101-000000");
    fs::create_dir_all(root.join("nsys")).unwrap();
    let packed = root.join("nsys/run.sqlite.gz");
    fs::copy(fixture("nsys-versions/nsys-2022.4.2-cpu-nvtx.sqlite.gz"), &packed).unwrap();
    let outcome = scrub(&RunRef::at(&root), &props(None)).unwrap();
    assert!(outcome.not_clean.is_empty(), "{:?}", outcome.not_clean);
    assert!(outcome.dropped_tables.contains(&"ProcessStreams".to_owned()));
    let input = roofgap_trace::read(&[packed]).unwrap();
    assert!(!input.trace.ranges.rows.is_empty());
}

#[test]
fn a_run_under_way_is_not_touched() {
    let base = tempfile::tempdir().unwrap();
    let live = RunDir::create(base.path()).unwrap();
    let error = scrub(&RunRef::at(live.path()), &props(None)).unwrap_err().to_string();
    assert!(error.contains("is in progress"), "{error}");
}

#[test]
fn the_nodes_of_a_job_are_treated_like_runs() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    for (name, text) in [
        ("nodes/a/secrets.json", "not JSON"),
        ("nodes/a/program/out.txt", "anything"),
        ("nodes/a/session.json", "{\"note\": \"/home/annabelle/a\"}"),
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
        ("nodes/b/baseline/program.err.log", true),
    ] {
        assert_eq!(packed.iter().any(|path| path.ends_with(name)), is_packed, "{name}");
        let named = outcome.not_clean.iter().any(|file| file.path == Path::new(name));
        assert_eq!(named, !is_packed, "{name}");
    }
    // The record of a node tells what to look for in the others.
    let position = |name: &str| outcome.changed.iter().position(|file| file == Path::new(name));
    let record = position("nodes/a/session.json").unwrap();
    assert!(position("nodes/b/baseline/program.err.log").unwrap() < record);
    assert!(position("report.md").unwrap() < record);
}

#[test]
fn a_damaged_timeline_is_named_and_left_out() {
    let base = tempfile::tempdir().unwrap();
    let root = run(base.path());
    let sqlite = root.join("nsys/run.sqlite");
    let bytes = fs::read(&sqlite).unwrap();
    fs::write(&sqlite, bytes.get(..5000).unwrap()).unwrap();
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    assert!(outcome.not_clean.iter().any(|kept| kept.path == Path::new("nsys/run.sqlite")));
    assert_eq!(outcome.exit(), Exit::Partial);
    assert!(!names(&target).iter().any(|name| name.ends_with(".sqlite")));
    assert_eq!(fs::read(&sqlite).unwrap().len(), 5000, "it stays as it was");
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
    let ranges = roofgap_trace::read(&[root.join("nsys/run.sqlite")]).unwrap().trace.ranges;
    assert_eq!(ranges.rows.len(), 18, "the timeline is whole at every moment");
    let target = base.join("share.tar.gz");
    let outcome = scrub(&RunRef::at(root), &props(Some(target.clone()))).unwrap();
    assert_eq!(outcome.exit(), Exit::Done, "{:?}", outcome.not_clean);
    let bytes = every_byte(&target);
    for private in [TOKEN, PLAIN, "annabelle", "gpubox-seven"] {
        assert!(!holds(&bytes, private), "{private}");
    }
    let left = super::super::files::files(root).unwrap();
    for file in left.iter().filter(|file| !file.path.ends_with("run.nsys-rep")) {
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

/// Scrubs a real capture of a program with a token in its environment.
#[test]
#[ignore = "needs nsys: set ROOFGAP_TEST_NSYS"]
fn real_nsys_a_real_capture_is_clean() {
    let nsys = std::env::var_os("ROOFGAP_TEST_NSYS").expect("ROOFGAP_TEST_NSYS is not set");
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("20260101-000000");
    fs::create_dir_all(root.join("nsys")).unwrap();
    let command = |args: &[&str]| {
        let out = std::process::Command::new(&nsys)
            .args(args)
            .current_dir(root.join("nsys"))
            .env("HF_TOKEN", TOKEN)
            .env("MY_ID", PLAIN)
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    command(&["profile", "--trace=nvtx,osrt", "-o", "run", "/bin/sh", "-c", "echo $HF_TOKEN; sleep 0.2"]);
    command(&["export", "--type=sqlite", "-o", "run.sqlite", "run.nsys-rep"]);
    assert!(holds(&fs::read(root.join("nsys/run.sqlite")).unwrap(), TOKEN));
    let target = base.path().join("share.tar.gz");
    let outcome = scrub(&RunRef::at(&root), &props(Some(target.clone()))).unwrap();
    let bytes = every_byte(&target);
    assert!(!holds(&bytes, TOKEN) && !holds(&bytes, PLAIN));
    assert!(names(&target).contains(&"20260101-000000/nsys/run.sqlite".to_owned()));
    assert_eq!(outcome.not_clean.len(), 1, "{:?}", outcome.not_clean);
    roofgap_trace::read(&[root.join("nsys/run.sqlite")]).unwrap();
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
    assert!(archive.bytes > 0 && archive.sha256.is_some(), "{archive:?}");
}
