//! `metrics.json` against its schema.

use crate::fixtures::{Case, PLAIN, fixture, made};
use roofgap_report::json;
use serde_json::{Value, json};

fn validator() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(json::SCHEMA).expect("the schema is JSON");
    jsonschema::validator_for(&schema).expect("the schema is a schema")
}

fn document(case: &Case) -> Value {
    serde_json::from_str(&json::pretty(&case.analysis)).expect("the analysis is JSON")
}

#[test]
fn every_fixture_keeps_to_the_schema() {
    let validator = validator();
    let cases: [&[&str]; 10] = [
        &["h200/llama4.sqlite.gz"],
        &["h200/dsocr2.sqlite.gz"],
        &["h200/llama4.kineto.json.gz"],
        &["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"],
        &["h200/llama4_cuda_gpu_kern_sum.csv.gz"],
        &["ncu/llama2_roofline_raw.csv.gz"],
        &["ncu/llama2_roofline_details.csv.gz"],
        &["ncu/mt_basic.ncu-rep.gz"],
        &["nsys-versions/nsys-2022.4.2-cpu-nvtx.sqlite.gz"],
        &["vllm/vllm_dense_graph.sqlite.gz"],
    ];
    for names in cases {
        let document = document(&fixture(names));
        let errors: Vec<String> =
            validator.iter_errors(&document).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{names:?}: {}", errors.join("\n"));
    }
}

#[test]
fn what_is_wrong_is_refused() {
    let validator = validator();
    let good = document(&made(PLAIN));
    assert!(validator.is_valid(&good));
    let wrong: [(&str, Value); 7] = [
        ("/schema", json!("roofgap.analysis/2")),
        ("/totals/kernel_ns", json!("12")),
        ("/totals/kernel_count", json!(1.5)),
        ("/stages/0/wall_ns", json!(null)),
        ("/kernels/0/name", json!(3)),
        ("/devices", json!({})),
        ("/findings/0/bound_ns", json!("much")),
    ];
    for (path, value) in wrong {
        let mut bad = good.clone();
        *bad.pointer_mut(path).expect(path) = value;
        assert!(!validator.is_valid(&bad), "{path}");
    }
    let mut bad = good.clone();
    bad.as_object_mut().unwrap().remove("totals");
    assert!(!validator.is_valid(&bad), "a missing field");
}

#[test]
fn the_analysis_reads_back() {
    let case = fixture(&["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"]);
    let again: roofgap_analyze::Analysis = serde_json::from_str(&json::pretty(&case.analysis)).unwrap();
    assert_eq!(json::pretty(&again), json::pretty(&case.analysis));
}
