//! Runs, pages and files.

use super::support::{Place, sha256};
use serde_json::json;
use std::os::unix::fs::symlink;

#[test]
fn runs_are_listed_shown_and_compared() {
    let place = Place::new();
    let (base, head) = (place.profile(), place.profile());
    let server = place.serve();
    let list = server.get("/runs").json();
    let ids: Vec<_> = list["runs"].as_array().unwrap().iter().map(|run| run["run_id"].clone()).collect();
    assert_eq!(ids, [json!(base), json!(head)]);
    assert_eq!(server.get(&format!("/runs/{base}")).json()["status"], "done");

    let front = server.get("/");
    assert!(front.text().contains(&format!("/runs/{head}/page")), "{}", front.text());
    let page = server.get(&format!("/runs/{base}/page"));
    assert_eq!(page.status, 200);
    assert!(page.text().contains("<!DOCTYPE html>"));
    let policy = page.header("content-security-policy");
    assert!(policy.contains("script-src 'sha256-"), "{policy}");

    let compare = |format: &str| server.get(&format!("/compare?base={base}&head={head}{format}"));
    assert_eq!(compare("").json()["schema"], "roofgap.comparison/1");
    assert!(compare("&format=html").text().contains("<html"));
    assert!(compare("&format=markdown").text().contains("decode"));
    assert_eq!(server.get(&format!("/compare?base={base}&head=20000101-000000")).status, 404);
    assert_eq!(server.get(&format!("/compare?base={base}")).status, 400);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn files_are_listed_and_given_with_their_hashes() {
    let place = Place::new();
    let run = place.profile();
    let server = place.serve();
    let list = server.get(&format!("/profile/{run}/artifacts")).json();
    assert_eq!(list["schema"], "roofgap.artifacts/1");
    assert_eq!(list["state"], "done");
    let artifacts = list["artifacts"].as_array().unwrap();
    assert!(artifacts.len() > 8, "{list}");
    for artifact in artifacts {
        let path = artifact["path"].as_str().unwrap();
        let file = server.get(&format!("/profile/{run}/artifacts/{path}"));
        assert_eq!(file.status, 200, "{path}");
        assert_eq!(json!(file.body.len()), artifact["bytes"], "{path}");
        let hash = artifact["sha256"].as_str().unwrap();
        assert_eq!(sha256(&place.at(""), &file.body), hash, "{path}");
        assert_eq!(file.header("etag"), format!("\"{hash}\""), "{path}");
    }
}

#[test]
fn a_file_is_given_in_parts() {
    let place = Place::new();
    let run = place.profile();
    let server = place.serve();
    let path = format!("/profile/{run}/artifacts/metrics.json");
    let whole = server.get(&path);
    let size = whole.body.len();
    let part = server.get_with(&path, &[("Range", "bytes=10-19")]);
    assert_eq!(part.status, 206);
    assert_eq!(part.body, whole.body[10..20]);
    assert_eq!(part.header("content-range"), format!("bytes 10-19/{size}"));
    let end = server.get_with(&path, &[("Range", "bytes=-5")]);
    assert_eq!(end.body, whole.body[size - 5..]);
    let beyond = server.get_with(&path, &[("Range", &format!("bytes={size}-"))]);
    assert_eq!(beyond.status, 416);
    assert_eq!(beyond.header("content-range"), format!("bytes */{size}"));
    let known = server.get_with(&path, &[("If-None-Match", whole.header("etag"))]);
    assert_eq!((known.status, known.body.len()), (304, 0));
}

#[test]
fn nothing_outside_of_a_run_is_given() {
    let place = Place::new();
    let run = place.profile();
    let folder = place.at("runs").join(&run);
    symlink(place.at("token"), folder.join("link")).unwrap();
    symlink(place.at(""), folder.join("up")).unwrap();
    std::fs::create_dir_all(folder.join("nodes/a")).unwrap();
    for name in ["secrets.json", "nodes/a/secrets.json"] {
        std::fs::write(folder.join(name), "{}").unwrap();
    }
    symlink(&folder, place.at("runs/20000101-000000")).unwrap();
    let server = place.serve();
    for path in [
        "../../token",
        "..%2F..%2Ftoken",
        "%2e%2e/%2e%2e/token",
        "nsys/../../../token",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "link",
        "up/token",
        "secrets.json",
        "secrets.json/",
        "secrets.json/.",
        "./secrets.json",
        "nodes/a/secrets.json",
        "",
        ".",
        "none",
        "a%00b",
    ] {
        let request = format!(
            "GET /profile/{run}/artifacts/{path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            server.address, server.token
        );
        let answer = server.raw(&request);
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(["404", "400"].contains(&status), "{path}: {answer}");
        assert!(!answer.contains(&server.token), "{path}: {answer}");
    }
    for run in ["..", "%2e%2e", ".serve", "20000101-000000", "latest", "runs%2F..", "a%00"] {
        for path in ["artifacts", "timeline"] {
            let request = format!(
                "GET /profile/{run}/{path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
                server.address, server.token
            );
            let answer = server.raw(&request);
            assert!(
                answer.starts_with("HTTP/1.1 404") || answer.starts_with("HTTP/1.1 400"),
                "{run}: {answer}"
            );
        }
    }
}
