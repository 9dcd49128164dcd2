//! Two tools that watched the same program agree on what ran.

use crate::bench::fixture;
use roofgap_analyze::counters::canonical;
use roofgap_analyze::{Options, analyze};
use std::collections::BTreeMap;

/// Calls of each kernel, in the stages alone or in the whole trace.
fn calls(name: &str, stages_only: bool) -> BTreeMap<String, u64> {
    let input = roofgap_trace::read(&[fixture(name)]).unwrap();
    let analysis = analyze(&input.trace, &Options::default()).analysis;
    let kernels: Vec<_> = if stages_only {
        let names: Vec<&str> = analysis.stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names, ["prefill", "decode"]);
        analysis.stages.iter().flat_map(|stage| &stage.kernels).collect()
    } else {
        analysis.kernels.iter().collect()
    };
    let mut calls = BTreeMap::new();
    for kernel in kernels {
        *calls.entry(canonical(&kernel.name)).or_default() += kernel.calls;
    }
    calls
}

/// torch.profiler watched prefill and decode alone; nsys watched the whole program.
#[test]
fn pytorch_and_nsys_agree_on_kernels_and_calls() {
    let nsys = calls("h200/llama4.sqlite.gz", true);
    let kineto = calls("h200/llama4.kineto.json.gz", false);
    assert_eq!(nsys.values().sum::<u64>(), 1496 + 183);
    assert_eq!(nsys, kineto);
}
