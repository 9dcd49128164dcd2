//! The page of a run, which asks the server for windows of its timeline.

use super::support::Place;
use serde_json::json;

#[test]
fn a_window_of_the_timeline_is_given_within_bounds() {
    let place = Place::new();
    let run = place.profile();
    place.add_timeline(&run, "h200/dsocr2.sqlite.gz");
    let server = place.serve();
    let get = |query: &str| server.get(&format!("/profile/{run}/timeline{query}"));
    let whole = get("?limit=100000").json();
    assert_eq!(whole["schema"], "roofgap.timeline/1");
    assert_eq!((&whole["from_ns"], &whole["merged"]), (&json!(0), &json!(false)));
    assert_eq!(whole["to_ns"], whole["span_ns"]);
    let middle = whole["span_ns"].as_i64().unwrap() / 2;
    let part = get(&format!("?from_ns={middle}&to_ns={}", middle + 1_000_000)).json();
    assert_eq!(part["from_ns"], json!(middle));
    let items = |window: &serde_json::Value| window["items"].as_u64().unwrap();
    assert!(items(&part) > 0 && items(&part) < items(&whole));
    let few = get("?limit=50").json();
    assert_eq!(few["merged"], true);
    // Five kinds of lanes.
    assert!(items(&few) <= 5 * 50, "{}", items(&few));
    // No limit of a client is above that of the server.
    assert_eq!(get("?limit=18446744073709551615").status, 200);
    for wrong in [
        "?from_ns=5&to_ns=5",
        "?from_ns=9&to_ns=1",
        "?from_ns=x",
        "?limit=-1",
        "?limit=99999999999999999999999",
    ] {
        assert_eq!(get(wrong).status, 400, "{wrong}");
    }
    assert_eq!(server.get("/profile/20000101-000000/timeline").status, 404);
    assert_eq!(server.get("/profile/..%2f/timeline").status, 404);
}

#[test]
fn only_a_page_of_this_version_may_ask_its_server() {
    let place = Place::new();
    let run = place.profile();
    let server = place.serve();
    let page = || server.get(&format!("/runs/{run}/page"));
    let own = page();
    let policy = own.header("content-security-policy");
    assert!(policy.contains("connect-src 'self'"), "{policy}");
    assert!(policy.contains("default-src 'none'") && !policy.contains("script-src 'unsafe-inline'"));
    let source = format!("<meta name=\"roofgap-timeline\" content=\"/profile/{run}/timeline\">");
    assert!(own.text().contains(&source));
    let file = place.at("runs").join(&run).join("report.html");
    assert!(!std::fs::read_to_string(&file).unwrap().contains(&source));

    std::fs::write(&file, "<!DOCTYPE html><html><script>alert(1)</script></html>").unwrap();
    let other = page();
    assert!(other.header("content-security-policy").starts_with("sandbox allow-scripts"));
    assert!(!other.text().contains("roofgap-timeline"));
}
