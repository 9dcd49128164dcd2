//! A fixed number of damaged inputs of every format. `cargo run -p roofgap-testkit --example fuzz` runs more of them.

#[path = "../../fuzz/mod.rs"]
mod fuzz;

use fuzz::{Corpus, Outcome};
use std::process::Command;

/// Inputs of a run.
const INPUTS: u64 = 240;

/// Set in the process that runs the inputs.
const LIMITED: &str = "ROOFGAP_FUZZ_LIMITED";

/// No damaged input panics, takes too much memory, or has an impossible result.
#[cfg(unix)]
#[test]
fn damaged_inputs_are_refused_or_analysed() {
    if std::env::var_os(LIMITED).is_some() {
        return run();
    }
    // The shell limits the address space, in kB; threads reserve a part of it without using it.
    let script =
        r#"ulimit -v 6000000; exec "$0" damaged::damaged_inputs_are_refused_or_analysed --exact --nocapture"#;
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{:?}\n{text}", output.status);
}

/// Inputs that once failed do not fail again: a folder for each target.
#[test]
fn inputs_that_once_failed_are_refused_or_analysed() {
    let folder = tempfile::tempdir().unwrap();
    let crashes = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/crashes");
    let entries = |path: &std::path::Path| {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.collect::<Vec<_>>()
    };
    let mut tried = 0;
    for target in entries(&crashes).iter().filter(|path| path.is_dir()) {
        let name = target.file_name().unwrap().to_str().unwrap();
        for input in entries(target) {
            let outcome = fuzz::try_input(name, &std::fs::read(&input).unwrap(), folder.path());
            assert!(outcome.is_ok(), "{}: {outcome:?}", input.display());
            tried += 1;
        }
    }
    assert!(tried > 0);
}

fn run() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = Corpus::load();
    let mut analysed = 0;
    for number in 0..INPUTS {
        match corpus.run(number, folder.path()) {
            Ok(outcome) => analysed += u64::from(outcome == Outcome::Analysed),
            Err(why) => {
                let kept = folder.keep();
                panic!("{why}; the input is {}", kept.join("input").display());
            }
        }
    }
    // Damage that every reader refuses tests nothing but the refusal.
    assert!(analysed > INPUTS / 4, "{analysed} of {INPUTS} were analysed");
}
