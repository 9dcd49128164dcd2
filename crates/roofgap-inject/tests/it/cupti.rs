//! A CUPTI that refuses, is missing or serves another profiler.

use crate::support::{RANGES, run};

#[test]
fn another_profiler_leaves_the_annotations_and_a_loss() {
    let run = run("exit", &[("STANDIN_SUBSCRIBE", "39")]);
    assert!(run.status.success());
    let capture = run.capture();
    assert!(capture.kernels.is_empty());
    assert_eq!(capture.ranges, RANGES);
    assert!(capture.losses.contains_key("cupti.other_profiler"), "{:?}", capture.losses);
}

#[test]
fn a_cupti_that_refuses_or_is_missing_is_a_loss() {
    let refused = run("exit", &[("STANDIN_REFUSE", "2")]);
    let capture = refused.capture();
    assert_eq!(capture.kernels.len(), 10);
    assert!(capture.losses["cupti.kind_refused"].1.contains("memory sets"), "{:?}", capture.losses);
    let missing = run("exit", &[("CUPTI_LIBRARY", "/nowhere/libcupti.so")]);
    assert!(missing.status.success());
    let capture = missing.capture();
    assert!(capture.losses["cupti.missing"].1.contains("/nowhere/libcupti.so"), "{:?}", capture.losses);
    assert_eq!(capture.ranges, RANGES);
}

#[test]
fn the_other_profiler_is_named() {
    let run = run("exit", &[("STANDIN_SUBSCRIBE", "39")]);
    let capture = run.capture();
    assert!(capture.losses["cupti.other_profiler"].1.contains("CUPTI for Monitor"), "{:?}", capture.losses);
}
