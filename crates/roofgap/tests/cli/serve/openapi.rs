//! The served description, checked against the answers.

use super::support::{Answer, Place};
use serde_json::Value;

/// Checks that a status is described, and that a JSON answer follows the schema of that status.
fn check(document: &Value, path: &str, answer: &Answer) {
    let responses = &document["paths"][path]["get"]["responses"];
    let status = answer.status.to_string();
    let mut response = &responses[&status];
    if let Some(reference) = response["$ref"].as_str() {
        response = document.pointer(reference.trim_start_matches('#')).unwrap();
    }
    assert!(response["description"].is_string(), "{path}: {status} is not described");
    let kind = answer.header("content-type").split(';').next().unwrap().to_owned();
    let Some(content) = response["content"].as_object() else {
        return;
    };
    let described = content.get(&kind);
    let described = described.unwrap_or_else(|| panic!("{path} {status}: {kind:?} is not described"));
    if kind == "application/json" {
        let mut schema = described["schema"].clone();
        schema["components"] = document["components"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let body = answer.json();
        let errors: Vec<String> = validator.iter_errors(&body).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{path} {status}: {errors:?}\n{body}");
    }
}

#[test]
fn every_answer_follows_the_description() {
    let place = Place::new();
    let (run, timed) = (place.profile(), place.profile());
    place.add_timeline(&timed, "h200/dsocr2.sqlite.gz");
    let server = place.serve();
    let document = server.get("/openapi.json").json();
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let get = |path: &str, concrete: &str| check(&document, path, &server.get(concrete));
    let of_run = |path: &str, id: &str| path.replace("{run_id}", id).replace("{path}", "metrics.json");
    get("/runs", "/runs");

    let mut checked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        if operations.get("get").is_some() && path.contains("{run_id}") {
            get(path, &of_run(path, &run));
            get(path, &of_run(path, "20000101-000000"));
            checked += 1;
        }
    }
    assert_eq!(checked, 5);
    get("/", "/");
    get("/openapi.json", "/openapi.json");
    get("/login", "/login?token=x");
    get("/login", &format!("/login?token={}", server.token));
    get("/login", "/login");
    for format in ["json", "html", "markdown"] {
        get("/compare", &format!("/compare?base={run}&head={run}&format={format}"));
    }
    get("/compare", "/compare?base=x&head=y");
    get("/compare", "/compare");
    for query in ["from_ns=0&to_ns=1000000&limit=10", "from_ns=5&to_ns=5", "limit=x"] {
        get("/profile/{run_id}/timeline", &format!("/profile/{timed}/timeline?{query}"));
    }
}
