//! Tokens, hosts, origins, and limits on requests.

use super::support::{Place, agent, answer};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

#[test]
fn every_operation_needs_the_token() {
    let place = Place::new();
    let server = place.serve();
    assert_eq!(std::fs::metadata(place.at("token")).unwrap().mode() & 0o777, 0o600);
    let url = |path: &str| format!("http://{}{path}", server.address);
    for path in [
        "/",
        "/runs",
        "/openapi.json",
        "/nothing",
        "/profile/x/artifacts",
        "/runs/x/page",
        "/compare?base=a&head=b",
        "/profile/x/timeline",
    ] {
        let refused = answer(agent().get(url(path)).call());
        assert_eq!(refused.status, 401, "{path}");
        assert_eq!(refused.header("www-authenticate"), "Bearer");
        for wrong in ["Bearer x", "Bearer ", "Basic Og==", &format!("Bearer {}x", server.token)] {
            let refused = answer(agent().get(url(path)).header("Authorization", wrong).call());
            assert_eq!(refused.status, 401, "{path} {wrong}");
        }
    }
    let refused = answer(agent().post(url("/profile/run")).send("{}"));
    assert_eq!(refused.status, 401);
    assert_eq!(server.get("/runs").status, 200);
    assert_eq!(server.get("/nothing").status, 404);
}

#[test]
fn a_browser_logs_in_with_the_token() {
    let place = Place::new();
    let server = place.serve();
    let url = |path: &str| format!("http://{}{path}", server.address);
    assert_eq!(answer(agent().get(url("/login?token=x")).call()).status, 401);
    let login = answer(agent().get(url(&format!("/login?token={}", server.token))).call());
    assert_eq!(login.status, 303);
    let cookie = login.header("set-cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let get = |origin: &str| {
        let request = agent().get(url("/")).header("Cookie", &cookie);
        answer(if origin.is_empty() { request.call() } else { request.header("Origin", origin).call() })
            .status
    };
    assert_eq!(get(""), 200);
    assert_eq!(get("null"), 403);
    assert_eq!(get("http://evil.example"), 403);
    assert_eq!(get(&format!("http://{}", server.address)), 200);
}

#[test]
fn nothing_can_be_started_or_changed() {
    let place = Place::new();
    let server = place.serve();
    let ask = |method: &str, path: &str, body: &str| {
        let length = body.len();
        server.raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}",
            server.address, server.token
        ))
    };
    for (method, path, body) in [
        ("POST", "/profile/run", r#"{"presets": ["workload=embedded"]}"#),
        ("POST", "/profile/20000101-000000/cancel", ""),
        ("DELETE", "/runs", ""),
        ("PUT", "/", "x"),
    ] {
        let answer = ask(method, path, body);
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
        assert!(answer.contains("`roofgap profile` starts a run"), "{answer}");
    }
    assert!(!place.at("runs").exists());
}

#[test]
fn other_hosts_and_origins_are_refused() {
    let place = Place::new();
    let server = place.serve_with(&["--host", "gpu.lab"]);
    let port = server.address.split(':').nth(1).unwrap().to_owned();
    let get = |host: &str, more: &str| {
        let request = format!(
            "GET /runs HTTP/1.1\r\n{host}Authorization: Bearer {}\r\n{more}Connection: close\r\n\r\n",
            server.token
        );
        server.raw(&request).split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(get(&format!("Host: localhost:{port}\r\n"), ""), "200");
    assert_eq!(get("Host: gpu.lab\r\n", ""), "200");
    assert_eq!(get("Host: gpu.lab\r\n", "Origin: https://gpu.lab\r\n"), "200");
    // The name of a page that was pointed at this machine.
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "0.0.0.0"] {
        assert_eq!(get(&format!("Host: {host}:{port}\r\n"), ""), "421", "{host}");
    }
    assert_eq!(get("", ""), "421");
    for origin in ["http://evil.example", "null", "http://localhost:1"] {
        let origin = format!("Origin: {origin}\r\n");
        assert_eq!(get(&format!("Host: localhost:{port}\r\n"), &origin), "403", "{origin}");
    }
}

#[test]
fn large_requests_are_refused() {
    let place = Place::new();
    let server = place.serve();
    let header =
        format!("GET /runs HTTP/1.1\r\nHost: {}\r\nX-Large: {}\r\n\r\n", server.address, "x".repeat(1 << 20));
    let answer = server.raw(&header);
    assert!(answer.starts_with("HTTP/1.1 431") || answer.is_empty(), "{answer}");
    assert_eq!(server.get("/runs").status, 200);
}

#[test]
fn an_address_that_others_reach_needs_a_flag() {
    let place = Place::new();
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_roofgap"))
            .args(["serve", "--token-file"])
            .arg(place.at("token"))
            .args(args)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, error) = run(&["--listen", "0.0.0.0:0"]);
    assert_eq!(status, Some(2));
    assert!(error.contains("--behind-tls-proxy"), "{error}");
    let (status, error) = run(&["--listen", "0.0.0.0:0", "--behind-tls-proxy"]);
    assert_eq!(status, Some(2));
    assert!(error.contains("--host"), "{error}");
}
