//! The distance to the roof, from a trace with shapes to the tables.

use roofgap_analyze::gpu::UserLimits;
use roofgap_analyze::{Analysis, Options, RoofSource, analyze};

/// An operator on the CPU from `at` µs on, which launches kernels of the given durations, µs.
fn operator(name: &str, dims: &str, types: &str, at: u32, kernels: &[u32]) -> String {
    let mut events = vec![format!(
        r#"{{"ph":"X","cat":"cpu_op","name":"{name}","pid":1,"tid":1,"ts":{at},"dur":50,"args":{{"Input type":{types},"Input Dims":{dims}}}}}"#
    )];
    for (i, duration) in kernels.iter().enumerate() {
        let (start, correlation) = (at + 1 + i as u32, at + i as u32);
        events.push(format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{start},"dur":1,"args":{{"correlation":{correlation}}}}}"#
        ));
        events.push(format!(
            r#"{{"ph":"X","cat":"kernel","name":"kernel of {name}","pid":0,"tid":7,"ts":{},"dur":{duration},"args":{{"device":0,"stream":7,"correlation":{correlation},"grid":[8,1,1],"block":[128,1,1]}}}}"#,
            start + 10
        ));
    }
    events.join(",\n")
}

/// Analyses a trace of operators on a device of 100 TFLOP/s and 1000 GB/s.
fn analysis(operators: &[String]) -> Analysis {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let trace = format!(
        r#"{{"schemaVersion":1,"deviceProperties":[{{"id":0,"name":"NVIDIA H200","computeMajor":9,"computeMinor":0,"numSms":132}}],"traceEvents":[{}]}}"#,
        operators.join(",\n")
    );
    std::fs::write(&path, trace).unwrap();
    let options = Options {
        limits: UserLimits { peak_tflops: Some(100.0), bandwidth_gbs: Some(1000.0) },
        ..Options::default()
    };
    let input = roofgap_trace::read(&[path]).unwrap();
    analyze(&input.trace, &options).analysis
}

const BF16: &str = r#"["c10::BFloat16","c10::BFloat16"]"#;

#[test]
fn shapes_of_a_product_give_its_roof() {
    let dims = "[[1024, 4096], [4096, 4096]]";
    let analysis = analysis(&[operator("aten::mm", dims, BF16, 100, &[1000])]);
    // 2 * 1024 * 4096 * 4096 operations at 100 TFLOP/s take 343,597 ns; 50 MB at 1000 GB/s take 50,332 ns.
    let roof = analysis.kernels[0].roof;
    assert_eq!(roof.roof_source, Some(RoofSource::Modelled));
    assert_eq!(roof.roof_covered_ns, Some(1_000_000));
    assert_eq!(roof.above_roof_ns, Some(1_000_000 - 343_597));
    assert!((roof.roof_pct.unwrap() - 34.359_738).abs() < 1e-3, "{roof:?}");
    assert_eq!(analysis.stages[0].roof, roof);
}

#[test]
fn a_product_of_one_row_is_bound_by_its_bytes() {
    let dims = "[[1, 4096], [4096, 4096]]";
    let analysis = analysis(&[operator("aten::mm", dims, BF16, 100, &[50])]);
    // (4096 + 4096 * 4096 + 4096) * 2 bytes at 1000 GB/s.
    assert_eq!(analysis.kernels[0].roof.above_roof_ns, Some(50_000 - 33_571));
}

#[test]
fn a_fast_launch_does_not_make_up_for_a_slow_one() {
    let dims = "[[1, 4096], [4096, 4096]]";
    let launches =
        [operator("aten::mm", dims, BF16, 100, &[20]), operator("aten::mm", dims, BF16, 200, &[50])];
    let roof = analysis(&launches).kernels[0].roof;
    // The first is faster than its roof of 33,571 ns.
    assert_eq!(roof.roof_covered_ns, Some(70_000));
    assert_eq!(roof.above_roof_ns, Some(50_000 - 33_571));
}

#[test]
fn what_the_shapes_do_not_tell_has_no_roof() {
    let dims = "[[1024, 4096], [4096, 4096]]";
    let float = r#"["float","float"]"#;
    for trace in [
        // Two kernels: which of them does the work is not known.
        operator("aten::mm", dims, BF16, 100, &[500, 500]),
        operator("aten::mm", dims, float, 100, &[1000]),
        operator("aten::mul", dims, BF16, 100, &[1000]),
    ] {
        let analysis = analysis(&[trace]);
        assert_eq!(analysis.kernels[0].roof.roof_pct, None);
        assert_eq!(analysis.stages[0].roof.above_roof_ns, None);
    }
}
