//! Cancelling a query to a tool. A test binary of its own, because the flag is one for the whole process.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use roofgap_collect::child::{Cancel, cancel_probes_with, probe};
use roofgap_collect::command::CommandLine;

#[test]
fn a_probe_ends_when_the_session_is_cancelled() {
    let cancel = Cancel::new();
    cancel_probes_with(&cancel);
    let quick = probe(&CommandLine::new("true"), Duration::from_secs(60)).unwrap();
    assert!(quick.success);
    cancel.request();
    // Longer than any test may take.
    let limit = Duration::from_secs(1_000_000);
    let deaf = CommandLine::new("bash").args(["-c", "trap '' INT TERM; while :; do sleep 0.1; done"]);
    let output = probe(&deaf, limit).unwrap();
    assert!(!output.exited && output.ended.contains("interrupted"), "{}", output.ended);
}
