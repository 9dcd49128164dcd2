//! `metrics.json` against its schema, and the schemas against the types that they are derived from.

use crate::fixtures::{Case, fixture};
use roofgap_analyze::{Analysis, SCHEMA, TRY_SCHEMA, Trial};
use roofgap_report::json;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Variable that makes the test below write the schemas instead of comparing them.
const REWRITE: &str = "ROOFGAP_TEST_REWRITE_SCHEMAS";

#[test]
fn the_schemas_are_those_of_the_types() {
    let null = "a value that was not measured is null";
    let analysis =
        format!("Times are integer nanoseconds, sizes are bytes, percentages run from 0 to 100; {null}.");
    let trials = format!(
        "Times are integer nanoseconds, sizes are bytes, ratios are time before divided by time after; {null}."
    );
    for (file, derived, stored) in [
        ("analysis-1.schema.json", derived::<Analysis>(SCHEMA, &analysis), json::SCHEMA),
        ("try-2.schema.json", derived::<Trial>(TRY_SCHEMA, &trials), json::TRY_SCHEMA),
    ] {
        if std::env::var_os(REWRITE).is_some_and(|value| value == "1") {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
            std::fs::write(folder.join(file), derived).unwrap();
        } else {
            assert!(derived == stored, "{file} is not the schema of the types; {REWRITE}=1 rewrites it");
        }
    }
}

/// Derives the schema of a result.
fn derived<T: JsonSchema>(title: &str, description: &str) -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(RecursiveTransform(close));
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema.insert("description".to_owned(), description.into());
    json::pretty(&schema)
}

/// Refuses unknown fields, and makes fields with a default optional: older versions did not write all of them.
fn close(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    object.remove("format");
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    let Some(Value::Object(properties)) = object.get_mut("properties") else {
        return;
    };
    let fields = properties.iter_mut().filter_map(|(name, field)| Some((name, field.as_object_mut()?)));
    let optional: Vec<String> =
        fields.filter_map(|(name, field)| field.remove("default").map(|_| name.clone())).collect();
    object.insert("additionalProperties".to_owned(), Value::Bool(false));
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.retain(|name| !optional.iter().any(|optional| name == optional));
    }
}

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
    let good = document(&fixture(&["h200/llama4.sqlite.gz"]));
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
