//! The original contract: `POST /profile/run` and `GET /profile/{run_id}/artifacts`.

use super::support::{Place, sha256};
use serde_json::json;

#[test]
fn a_run_is_made_and_its_artifacts_have_their_hashes() {
    let place = Place::new();
    let server = place.serve();
    let answer = server.post("/profile/run", &json!({ "presets": ["workload=nano"], "wait": true }));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let profiled = answer.json();
    assert_eq!(profiled["schema"], "roofgap.profile/1");
    assert_eq!(profiled["state"], "done");
    let run = profiled["run_id"].as_str().unwrap();

    let list = server.get(&format!("/profile/{run}/artifacts")).json();
    assert_eq!(list["schema"], "roofgap.artifacts/1");
    assert_eq!(list["state"], "done");
    let artifacts = list["artifacts"].as_array().unwrap();
    assert!(artifacts.len() > 8, "{list}");
    for artifact in artifacts {
        let path = artifact["path"].as_str().unwrap();
        if path == "secrets.json" {
            continue;
        }
        let file = server.get(&format!("/profile/{run}/artifacts/{path}"));
        assert_eq!(file.status, 200, "{path}");
        assert_eq!(json!(file.body.len()), artifact["bytes"], "{path}");
        let hash = artifact["sha256"].as_str().unwrap();
        assert_eq!(sha256(&place.at(""), &file.body), hash, "{path}");
        assert_eq!(file.header("etag"), format!("\"{hash}\""), "{path}");
    }
}

#[test]
fn the_exit_status_becomes_an_http_status() {
    let place = Place::new();
    let server = place.serve_with(&["--allow-run", "--allow-command"]);
    let command = |command: &[&str]| {
        let body = json!({ "command": command, "presets": ["runner=unwatched"], "wait": true });
        server.post("/profile/run", &body)
    };
    let answer = command(&["/bin/false"]);
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert_eq!(answer.json()["exit_status"], 4);
    let answer = command(&["/no/such/program"]);
    assert!([400, 422].contains(&answer.status), "{}", answer.text());
    let answer = command(&["/bin/true"]);
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn only_presets_run_unless_commands_are_allowed() {
    let place = Place::new();
    let server = place.serve();
    let refused = |body: serde_json::Value, status: u16| {
        let answer = server.post("/profile/run", &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
    };
    refused(json!({ "command": ["/bin/true"] }), 403);
    refused(json!({ "presets": ["workload=none"] }), 400);
    refused(json!({ "presets": ["artifacts.stage2_dir=/tmp/x"] }), 400);
    refused(json!({ "presets": ["+workload.env.A=1"] }), 400);
    refused(json!({ "mode": "wild" }), 400);
    refused(json!({ "stage2_dir": "/tmp/x" }), 400);
    refused(json!([]), 400);
    drop(server);
    let server = place.serve_with(&[]);
    let answer = server.post("/profile/run", &json!({ "presets": ["workload=nano"] }));
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(!place.at("runs").read_dir().unwrap().any(|entry| entry.unwrap().file_name() != ".serve"));
}
