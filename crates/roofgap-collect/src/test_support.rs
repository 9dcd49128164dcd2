//! Support for tests that need a program of this machine.

use std::time::Duration;

use crate::child::probe;
use crate::command::CommandLine;

/// Returns true when `python3` works; see [`require`].
pub fn has_python() -> bool {
    let answer = probe(&CommandLine::new("python3").arg("--version"), Duration::from_secs(60));
    require("python3", answer.is_ok_and(|output| output.success))
}

/// Returns `found`. Prints the reason of a skip; panics instead when `ROOFGAP_TEST_NO_SKIP` is 1.
#[allow(clippy::print_stderr, clippy::panic)]
pub fn require(program: &str, found: bool) -> bool {
    if !found {
        let no_skip = std::env::var("ROOFGAP_TEST_NO_SKIP").is_ok_and(|value| value == "1");
        assert!(!no_skip, "{program} is missing, and ROOFGAP_TEST_NO_SKIP forbids skips");
        eprintln!("skipped: {program} is missing");
    }
    found
}
