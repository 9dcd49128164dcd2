//! Unreadable inputs: status 2, nothing on stdout, and a message that names the file and the problem.

use crate::support::{Run, fixture, packed, roofgap, run, unpacked};
use proptest::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Analyses a file and checks the properties of every failure.
fn refused(path: &Path, said: &[&str]) {
    let run = run(["analyze".as_ref(), path.as_os_str()]);
    assert_refused(&run, path);
    for words in said {
        assert!(run.stderr.contains(words), "no {words:?} in: {}", run.stderr);
    }
}

fn assert_refused(run: &Run, path: &Path) {
    assert_eq!(run.status, Some(2), "{}", run.stderr);
    assert_eq!(run.stdout, "", "a partial answer");
    assert!(run.stderr.starts_with("error: "), "{}", run.stderr);
    let name = path.file_name().unwrap().to_string_lossy();
    assert!(run.stderr.contains(&*name), "{name} is not named: {}", run.stderr);
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

#[test]
fn nothing_there() {
    refused(&Folder::new().0.path().join("absent.sqlite"), &["cannot read"]);
}

#[test]
fn an_empty_file() {
    refused(
        &Folder::new().put("empty.sqlite", b""),
        &["an empty file", "expected an nsys report or its SQLite export"],
    );
}

#[test]
fn a_folder_that_is_no_run() {
    let folder = Folder::new();
    let path = folder.0.path().join("folder");
    std::fs::create_dir(&path).unwrap();
    refused(&path, &["a folder that is no run", "expected"]);
}

#[test]
fn cut_short() {
    let folder = Folder::new();
    for name in ["h200/llama4.sqlite.gz", "h200/llama4.kineto.json.gz"] {
        let whole = unpacked(name);
        refused(&folder.put("half", &whole[..whole.len() / 2]), &["damaged or incomplete"]);
        let gzip = std::fs::read(fixture(name)).unwrap();
        refused(&folder.put("half.gz", &gzip[..gzip.len() / 2]), &["damaged or incomplete"]);
    }
}

/// ncu writes complete reports and pages: a truncated one is a broken copy that lacks launches.
#[test]
fn counters_of_ncu_cut_short() {
    let folder = Folder::new();
    for name in ["ncu/mt_basic.ncu-rep.gz", "ncu/mt_basic_raw.csv.gz", "ncu/mt_basic_details.csv.gz"] {
        let whole = unpacked(name);
        for end in [1000, whole.len() / 2, whole.len() - 2] {
            refused(&folder.put("cut", &whole[..end]), &["damaged or incomplete"]);
        }
    }
}

#[test]
fn a_database_of_another_program() {
    let folder = Folder::new();
    let path = folder.0.path().join("places.sqlite");
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch("CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x')").unwrap();
    drop(database);
    refused(&path, &["an export of Nsight Systems", "bookmarks"]);
}

#[test]
fn json_that_is_no_trace() {
    let folder = Folder::new();
    refused(
        &folder.put("package.json", br#"{"name": "x", "version": "1.0.0"}"#),
        &["JSON that is not a trace", "a PyTorch trace"],
    );
    refused(&folder.put("events.json", br#"{"traceEvents": 7}"#), &[]);
}

#[test]
fn json_that_nests_two_hundred_thousand_deep() {
    let folder = Folder::new();
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let nest = format!("{}1{}", open.repeat(200_000), close.repeat(200_000));
        refused(&folder.put("bare.json", nest.as_bytes()), &[]);
        let inside = format!(
            r#"{{"schemaVersion": 1, "traceEvents": [{{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {{"x": {nest}}}}}]}}"#
        );
        refused(&folder.put("trace.json", inside.as_bytes()), &[]);
    }
}

#[test]
fn text_and_programs() {
    let folder = Folder::new();
    refused(&folder.put("notes.txt", b"hello, world\n"), &["hello, world"]);
    refused(Path::new(crate::support::ROOFGAP), &["a program"]);
    refused(&folder.put("page.csv", b"a,b\n1,2\n"), &["expected"]);
    refused(&folder.put("wide.csv", b"\xff\xfeT\0i\0m\0e\0"), &["save it as UTF-8"]);
}

/// Formats are detected from content, so a capture is opened more than once.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe() {
    let run: Run = Command::new("sh")
        .args(["-c", r#"echo x | "$0" analyze /dev/stdin"#, crate::support::ROOFGAP])
        .output()
        .unwrap()
        .into();
    assert_refused(&run, Path::new("/dev/stdin"));
    assert!(run.stderr.contains("write it to a file first"), "{}", run.stderr);
}

/// Reads files that decompress to many times their size, with little memory.
#[cfg(target_os = "linux")]
#[test]
fn gzip_bombs() {
    let folder = Folder::new();
    let bomb = |begin: &[u8], fill: u8, megabytes: usize| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(begin).unwrap();
        for _ in 0..megabytes {
            encoder.write_all(&[fill; 1 << 20]).unwrap();
        }
        encoder.finish().unwrap()
    };
    for (name, bytes) in [
        ("zeros.gz", bomb(b"", 0, 1024)),
        ("trace.json.gz", bomb(br#"{"traceEvents": ["#, b' ', 192)),
        ("nested.json.gz", bomb(br#"{"traceEvents": ["#, b'[', 192)),
        ("bomb.sqlite.gz", bomb(b"SQLite format 3\0", 0, 512)),
    ] {
        let path = folder.put(name, &bytes);
        // The shell limits the address space, in kB (threads and libraries take some hundred MB of it), and the
        // file size, in blocks of 512 or 1024 bytes: 100 or 200 MB.
        let limited = r#"ulimit -v 1500000; ulimit -f 200000; exec "$0" analyze "$1""#;
        let mut command = Command::new("sh");
        command.args(["-c", limited, crate::support::ROOFGAP]).arg(&path);
        // Decompressed files are removed with the folder of the test.
        let run: Run = command.env("TMPDIR", folder.0.path()).output().unwrap().into();
        assert_refused(&run, &path);
    }
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 4, "a temporary file stays");
}

#[test]
fn nowhere_to_unpack() {
    let folder = Folder::new();
    let path = folder.put("llama4.sqlite.gz", &std::fs::read(fixture("h200/llama4.sqlite.gz")).unwrap());
    let mut command = roofgap(["analyze".as_ref(), path.as_os_str()]);
    let run: Run = command.env("TMPDIR", folder.0.path().join("absent")).output().unwrap().into();
    assert_refused(&run, &path);
    assert!(run.stderr.contains("set TMPDIR"), "{}", run.stderr);
}

#[test]
fn a_good_file_does_not_hide_a_broken_one() {
    let folder = Folder::new();
    let path = folder.put("raw.csv.gz", b"\x1f\x8b\x08\x00nonsense");
    let run: Run = roofgap(["analyze", "fixtures/h200/llama4.sqlite.gz"]).arg(&path).output().unwrap().into();
    assert_refused(&run, &path);
}

/// Small real files, one per format.
const REAL: [&str; 8] = [
    "h200/llama4.sqlite.gz",
    "h200/llama4.kineto.json.gz",
    "h200/llama4_cuda_gpu_kern_sum.csv.gz",
    "ncu/llama4_light_raw_base.csv.gz",
    "ncu/mt_basic_details.csv.gz",
    "ncu/mt_basic.ncu-rep.gz",
    "native/stand-in.rgcap",
    "nsys-versions/nsys-2022.4.2-cpu-nvtx.sqlite.gz",
];

fn real(name: &str) -> Vec<u8> {
    if name.ends_with(".gz") { unpacked(name) } else { std::fs::read(fixture(name)).unwrap() }
}

/// Checks that there is an answer or an error, never a panic, a crash or a partial answer.
fn sound(bytes: &[u8]) -> Result<(), TestCaseError> {
    let folder = Folder::new();
    let path = folder.put("damaged", bytes);
    let run = run(["analyze".as_ref(), "--format=json".as_ref(), path.as_os_str()]);
    match run.status {
        Some(0) => {
            let answer = serde_json::from_str::<serde_json::Value>(&run.stdout);
            prop_assert!(answer.is_ok(), "half an answer: {answer:?}");
        }
        Some(2) => {
            prop_assert_eq!(run.stdout, "");
            prop_assert!(run.stderr.contains("damaged"), "{}", run.stderr);
        }
        other => prop_assert!(false, "status {other:?}: {}", run.stderr),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits(name in prop::sample::select(&REAL[..]), flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..40)) {
        let mut bytes = real(name);
        for (place, bit) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
        }
        sound(&bytes)?;
    }

    #[test]
    fn cut_anywhere(name in prop::sample::select(&REAL[..]), end in any::<prop::sample::Index>()) {
        let bytes = real(name);
        sound(&bytes[..end.index(bytes.len())])?;
    }

    #[test]
    fn flipped_bits_in_a_packed_file_are_always_seen(place in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut bytes = packed(&unpacked("ncu/llama4_light_raw_base.csv.gz"));
        // After the header, whose time stamp and flags do not matter.
        let place = 10 + place.index(bytes.len() - 10);
        bytes[place] ^= 1 << bit;
        // A few other bits do not matter either: the text is the same.
        let decoded = std::io::copy(&mut flate2::read::MultiGzDecoder::new(&bytes[..]), &mut std::io::sink());
        prop_assume!(decoded.is_err());
        let folder = Folder::new();
        let path = folder.put("damaged.gz", &bytes);
        let run = run(["analyze".as_ref(), path.as_os_str()]);
        prop_assert_eq!(run.status, Some(2), "{}", run.stderr);
        prop_assert_eq!(run.stdout, "");
    }
}
