//! The kind of kernel records: serial where kernels of CUDA graphs do not overlap, and no kernel is lost in a change.

#![cfg(target_os = "linux")]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may panic"
)]

mod support;

use support::{built, run};

#[test]
fn graphs_change_the_kind_and_lose_no_kernel() {
    let built = built();
    for cupti in [&built.cupti, &built.old_cupti] {
        let run = run("graphs", &[("CUPTI_LIBRARY", cupti.to_str().unwrap())]);
        assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
        let capture = run.capture();
        let launched: usize = run.stdout.trim().parse().unwrap();
        assert_eq!((capture.kernels.len(), capture.without_call), (launched, 0));
        // The steps are on the thread that launches, so that nothing was launched during a change.
        let losses: Vec<&str> = capture.losses.keys().map(String::as_str).collect();
        assert_eq!(losses, ["cupti.serial_kernels"]);
        assert_eq!((capture.version, capture.edges.len()), (1, 0));
    }
}

#[test]
fn a_program_without_steps_has_its_calls_during_a_change_counted() {
    let run = run("graphs-without-steps", &[]);
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    let capture = run.capture();
    let launched: usize = run.stdout.trim().parse().unwrap();
    let during_change = capture.losses.get("cupti.during_change").map_or(0, |loss| loss.0);
    let lost = launched - capture.kernels.len();
    assert!(
        lost as u64 <= 8 * during_change,
        "{lost} kernels, {during_change} calls"
    );
    assert!(capture.losses.contains_key("cupti.serial_kernels"));
}

#[test]
fn branches_of_a_graph_are_recorded_as_they_overlap() {
    let run = run("parallel-graph", &[]);
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    let capture = run.capture();
    assert_eq!(capture.kernels.len(), 2 * 2000 * 8);
    assert!(capture.losses.is_empty(), "{:?}", capture.losses);
}

#[test]
fn the_kind_can_be_set() {
    for (kernels, status) in [("concurrent", 41), ("serial", 42)] {
        // The program ends with this status where the kind that it waits for never comes.
        let run = run(
            "graphs",
            &[("ROOFGAP_NATIVE_KERNELS", kernels), ("REPLAYS", "1500")],
        );
        assert_eq!(run.status.code(), Some(status), "{kernels}");
        assert!(run.capture().losses.is_empty());
    }
}
