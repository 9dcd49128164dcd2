//! Support for tests: runs the binary, reads fixtures.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// The binary under test.
pub(crate) const ROOFGAP: &str = env!("CARGO_BIN_EXE_roofgap");

/// Returns whether a test can run here. Otherwise prints the reason, or fails if `ROOFGAP_TEST_NO_SKIP` is 1.
pub(crate) fn can_run(can: bool, otherwise: &str) -> bool {
    let forbidden = std::env::var_os("ROOFGAP_TEST_NO_SKIP").is_some_and(|value| value == "1");
    assert!(can || !forbidden, "cannot run: {otherwise}");
    if !can {
        eprintln!("skipped: {otherwise}");
    }
    can
}

/// Returns a port for a server to listen on. The system gives ports of another range to programs that ask for any, so that none of
/// them takes it meanwhile.
pub(crate) fn free_port() -> u16 {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    loop {
        let asked = ASKED.fetch_add(1, Ordering::SeqCst);
        let number = std::process::id().wrapping_mul(8).wrapping_add(asked);
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the path of a fixture.
pub(crate) fn fixture(name: &str) -> PathBuf {
    root().join("fixtures").join(name)
}

/// Decompresses a fixture.
pub(crate) fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(fixture(name)).unwrap();
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Compresses bytes with gzip.
pub(crate) fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

/// Builds a command that runs the binary in the root of the repository, without variables that change its behaviour.
pub(crate) fn roofgap<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(ROOFGAP);
    command.args(args).current_dir(root());
    for name in ["NO_COLOR", "COLUMNS", "ROOFGAP_WORKLOAD_JSON", "ROOFGAP_RUN_DIR", "ROOFGAP_PHASE"] {
        command.env_remove(name);
    }
    command
}

/// Exit status and output of the binary.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Run {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs the binary.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    roofgap(args).output().unwrap().into()
}

/// Runs the binary and checks that it succeeds.
pub(crate) fn ok<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    let run = run(args);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    run
}

/// Lists every file below a folder with its size and modification time.
pub(crate) fn listing(folder: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let facts = std::fs::symlink_metadata(&path).unwrap();
        if facts.is_dir() {
            found.extend(listing(&path));
        }
        found.push((path, facts.len(), facts.modified().unwrap()));
    }
    found.sort();
    found
}
