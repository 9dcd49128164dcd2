//! Support for tests: runs the binary, makes lakes, compares answers.

use roofgap_lake::query::Engine;
use roofgap_lake::query::saved::{Query, fill};
use roofgap_lake::store::Store;
use roofgap_lake::tables::TABLES;
use roofgap_lake::tables::Table;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Builds a command that runs the binary.
pub(crate) fn lake<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roofgap-lake"));
    command.args(args).env_remove("ROOFGAP_LAKE");
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
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs the binary.
pub(crate) fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    lake(args).output().unwrap().into()
}

/// Runs the binary and checks that it succeeds.
pub(crate) fn ok<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    let run = run(args);
    assert_eq!(run.status, Some(0), "{}{}", run.stdout, run.stderr);
    run.stdout
}

/// Returns the path of a fixture.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

/// A lake in a temporary folder.
pub(crate) struct TestLake(pub(crate) tempfile::TempDir);

impl TestLake {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Makes a synthetic lake with the example `synth_lake`, which is built with the tests.
    pub(crate) fn synthetic(more: &[&str]) -> (Self, Value) {
        let lake = Self::new();
        let program = Path::new(env!("CARGO_BIN_EXE_roofgap-lake")).with_file_name("examples/synth_lake");
        let made = Command::new(program).args(["--to", lake.path()]).args(more).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        (lake, serde_json::from_slice(&made.stdout).unwrap())
    }

    pub(crate) fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// Answers a query as JSON.
    pub(crate) fn ask(&self, query: &str) -> Vec<Value> {
        let text = ok(["query", query, "--lake", self.path(), "--format", "json"]);
        serde_json::from_str(&text).unwrap()
    }

    /// Opens the lake in this process, for many queries.
    pub(crate) fn engine(&self) -> Engine {
        Engine::open(&Store::open(self.path()).unwrap(), None).unwrap()
    }

    /// Returns the number of rows of a table.
    pub(crate) fn count(&self, table: &str) -> u64 {
        let rows = self.ask(&format!("select count(*) as n from {table}"));
        rows[0]["n"].as_u64().unwrap()
    }

    /// Returns the number of rows of every table, in the order of the tables.
    pub(crate) fn counts(&self) -> Vec<u64> {
        let count =
            |(at, table): (usize, &Table)| format!("select {at} as at, count(*) as n from {}", table.name);
        let counts: Vec<String> = TABLES.iter().enumerate().map(count).collect();
        let rows = self.ask(&format!("{} order by at", counts.join(" union all ")));
        rows.iter().map(|row| row["n"].as_u64().unwrap()).collect()
    }

    /// Lists the files below the lake by path, with their content.
    pub(crate) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        walk(self.0.path(), self.0.path(), &mut found);
        found.sort();
        found
    }
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(root, &path, found);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((name, std::fs::read(&path).unwrap()));
        }
    }
}

/// Answers a saved query in this process.
pub(crate) fn answer(engine: &Engine, query: Query) -> Value {
    let sql = fill(query.text, &BTreeMap::new()).unwrap();
    let answer = engine.query(&sql).unwrap();
    serde_json::from_slice(&answer.json().unwrap()).unwrap()
}

/// Copies a file into a lake.
pub(crate) fn put(lake: &TestLake, path: &str, bytes: &[u8]) {
    let path = lake.0.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Tells whether two answers are equal, numbers up to rounding.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, value)| b.get(name).is_some_and(|other| same(value, other)))
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
        }
        _ => a == b,
    }
}
