//! Sessions: following, cancelling, queueing, and restarts of the server.

use super::support::{Place, Server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

/// Follows a job or run to its end. Calls `each` for every event.
fn follow(server: &Server, id: &str, mut each: impl FnMut(&str, &Value)) -> Vec<(String, Value)> {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "GET /profile/{id}/events HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address, server.token
    )
    .unwrap();
    let mut events = Vec::new();
    let mut name = String::new();
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        if let Some(event) = line.strip_prefix("event: ") {
            name = event.to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            let data: Value = serde_json::from_str(data).unwrap();
            each(&name, &data);
            events.push((name.clone(), data));
        }
    }
    events
}

fn is_running(state: &Value) -> bool {
    state["state"] == "under_way" && state["run_id"].is_string()
}

#[test]
fn a_session_is_followed_to_its_end() {
    let place = Place::new();
    let server = place.serve();
    let job = server.start(&json!({ "presets": ["workload=nano"] }));
    let events = follow(&server, &job, |_, _| {});
    let all = |name: &str| {
        events.iter().filter(|(event, _)| event == name).map(|(_, data)| data).collect::<Vec<_>>()
    };
    let phases: Vec<_> = all("phase")
        .iter()
        .filter(|phase| phase["status"] != "running")
        .map(|phase| phase["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        phases,
        ["preflight", "baseline", "timeline", "operators", "select", "counters", "analyze", "report"]
    );
    assert!(!all("log").is_empty());
    let (name, end) = events.last().unwrap();
    assert_eq!(name, "end");
    assert_eq!(end["state"], "done", "{end}");
    assert_eq!(end["run_id"], all("run")[0]["run_id"]);
    // A run that has ended can be followed too.
    let run = end["run_id"].as_str().unwrap();
    assert_eq!(follow(&server, run, |_, _| {}).last().unwrap().1, *end);
}

#[test]
fn a_running_session_is_cancelled_and_keeps_what_it_has() {
    let place = Place::new();
    let server = place.serve();
    let job = server.start(&json!({ "presets": ["workload=slow"] }));
    let mut cancelled = false;
    let events = follow(&server, &job, |name, _| {
        if name == "progress" && !cancelled {
            let answer = server.post(&format!("/profile/{job}/cancel"), &json!({}));
            assert_eq!(answer.status, 202, "{}", answer.text());
            cancelled = true;
        }
    });
    let end = &events.last().unwrap().1;
    assert_eq!(end["state"], "interrupted", "{end}");
    assert_eq!(end["exit_status"], 130);
    let run = end["run_id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/runs/{run}")).json()["status"], "interrupted");
    let state = server.wait_for(&job, |state| state["state"] == "ended");
    assert_eq!(state["exit_status"], 130);
    let again = server.post(&format!("/profile/{run}/cancel"), &json!({}));
    assert_eq!(again.status, 409);
}

#[test]
fn one_session_runs_at_a_time_and_the_queue_is_bounded() {
    let place = Place::new();
    let server = place.serve_with(&["--allow-run", "--max-queue", "2"]);
    let first = server.start(&json!({ "presets": ["workload=slow"] }));
    server.wait_for(&first, is_running);
    let second = server.start(&json!({ "presets": ["workload=nano"] }));
    let third = server.start(&json!({ "presets": ["workload=nano"] }));
    let refused = server.post("/profile/run", &json!({ "presets": ["workload=nano"] }));
    assert_eq!(refused.status, 429, "{}", refused.text());
    let state = server.get(&format!("/profile/{third}")).json();
    assert_eq!((&state["state"], &state["sessions_before"]), (&json!("queued"), &json!(2)));
    let queue = server.get("/runs").json()["queue"].clone();
    let jobs: Vec<_> = queue.as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap()).collect();
    assert_eq!(jobs, [first.as_str(), second.as_str(), third.as_str()]);
    // One that waits is cancelled at once; the others have their turn.
    assert_eq!(server.post(&format!("/profile/{second}/cancel"), &json!({})).status, 202);
    assert_eq!(follow(&server, &second, |_, _| {}).last().unwrap().1["state"], "cancelled");
    assert_eq!(server.post(&format!("/profile/{first}/cancel"), &json!({})).status, 202);
    let third = server.wait_for(&third, |state| state["state"] == "ended");
    assert_eq!(third["run_state"], "done", "{third}");
    let first = server.get(&format!("/profile/{first}")).json();
    assert_eq!(first["run_state"], "interrupted", "{first}");
    assert_eq!(server.get("/runs").json()["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn a_stopped_server_interrupts_its_session_and_the_next_one_goes_on_with_the_queue() {
    let place = Place::new();
    let server = place.serve();
    let slow = server.start(&json!({ "presets": ["workload=slow"] }));
    let run = server.wait_for(&slow, is_running)["run_id"].as_str().unwrap().to_owned();
    let waiting = server.start(&json!({ "presets": ["workload=nano"] }));
    assert_eq!(server.stop(), Some(0));

    let server = place.serve();
    assert_eq!(server.get(&format!("/runs/{run}")).json()["status"], "interrupted");
    let state = server.get(&format!("/profile/{slow}")).json();
    assert_eq!((&state["state"], &state["run_id"]), (&json!("ended"), &json!(run)));
    let state = server.wait_for(&waiting, |state| state["state"] == "ended");
    assert_eq!(state["run_state"], "done", "{state}");
}

#[test]
fn what_a_server_may_not_start_waits_and_can_be_cancelled() {
    let place = Place::new();
    let server = place.serve_with(&["--allow-run", "--allow-command"]);
    let slow = server.start(&json!({ "presets": ["workload=slow"] }));
    server.wait_for(&slow, is_running);
    let touched = place.at("touched");
    let command = server.start(&json!({ "command": ["touch", touched] }));
    assert_eq!(server.stop(), Some(0));

    // The next one in the queue that this server may start has its turn.
    let server = place.serve();
    let nano = server.start(&json!({ "presets": ["workload=nano"] }));
    server.wait_for(&nano, |state| state["state"] == "ended");
    let state = server.get(&format!("/profile/{command}")).json();
    assert_eq!(state["state"], "queued");
    assert!(state["waits_for"].as_str().unwrap().contains("--allow-command"), "{state}");
    assert_eq!(server.stop(), Some(0));

    // Also a server that starts nothing cancels it.
    let server = place.serve_with(&[]);
    let answer = server.post(&format!("/profile/{command}/cancel"), &json!({}));
    assert_eq!((answer.status, &answer.json()["state"]), (202, &json!("cancelled")), "{}", answer.text());
    assert_eq!(server.stop(), Some(0));
    let server = place.serve_with(&["--allow-run", "--allow-command"]);
    let nano = server.start(&json!({ "presets": ["workload=nano"] }));
    server.wait_for(&nano, |state| state["state"] == "ended");
    assert!(!touched.exists());
}

#[test]
fn the_queue_has_one_server_and_is_private() {
    let place = Place::new();
    std::fs::create_dir_all(place.at("runs/.serve")).unwrap();
    let server = place.serve();
    let second = place.serve_command(&["--allow-run"]).output().unwrap();
    let message = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{message}");
    assert!(message.contains("another roofgap serve"), "{message}");
    assert!(second.stdout.is_empty());
    let mode = std::fs::metadata(place.at("runs/.serve")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // The right ends with its owner, however that ends.
    server.kill();
    assert_eq!(place.serve().stop(), Some(0));
}

#[test]
fn a_killed_server_leaves_no_session_behind_and_its_state_is_right_afterwards() {
    let place = Place::new();
    let server = place.serve();
    let slow = server.start(&json!({ "presets": ["workload=slow"] }));
    let run = server.wait_for(&slow, is_running)["run_id"].as_str().unwrap().to_owned();
    server.kill();

    let server = place.serve();
    let state = server.wait_for(&slow, |state| state["state"] == "ended");
    assert_eq!(state["run_id"], json!(run));
    assert!(["abandoned", "interrupted"].contains(&state["run_state"].as_str().unwrap()), "{state}");
    assert_eq!(server.get(&format!("/runs/{run}")).json()["status"], state["run_state"]);
    // The next one has its turn.
    let next = server.start(&json!({ "presets": ["workload=nano"] }));
    assert_eq!(server.wait_for(&next, |state| state["state"] == "ended")["run_state"], "done");
}
