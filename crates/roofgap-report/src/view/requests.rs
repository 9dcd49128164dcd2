//! Requests that a load generator sent to a server: latency and throughput.

use super::numbers::{count, or_none, plural, time};
use super::table::Table;
use roofgap_analyze::RequestStats;

/// Builds the table of latencies.
pub(crate) fn table(requests: &RequestStats) -> Table {
    let mut table = Table::new(&["latency", "mean>", "p50>", "p90>", "p99>", "max>"]);
    for (name, value) in [
        ("time to first token", requests.ttft_ns),
        ("time between tokens", requests.itl_ns),
        ("whole request", requests.e2e_ns),
    ] {
        let cell = |ns: Option<i64>| or_none(ns, time);
        table.row([
            name.to_owned(),
            cell(value.map(|p| p.mean)),
            cell(value.map(|p| p.p50)),
            cell(value.map(|p| p.p90)),
            cell(value.map(|p| p.p99)),
            cell(value.map(|p| p.max)),
        ]);
    }
    table
}

/// Describes the number of requests, their tokens and the throughput.
pub(crate) fn sentences(requests: &RequestStats) -> Vec<String> {
    let mut lines = Vec::new();
    let failed = match requests.failed {
        0 => String::new(),
        failed => format!(", {} failed", count(failed)),
    };
    lines.push(format!(
        "{} completed{failed}, in {}",
        plural(requests.completed, "request"),
        time(requests.window_ns)
    ));
    let tokens = |tokens: Option<u64>| or_none(tokens, count);
    if requests.prompt_tokens.is_some() || requests.output_tokens.is_some() {
        lines.push(format!(
            "{} prompt tokens, {} generated tokens, as the server counts them",
            tokens(requests.prompt_tokens),
            tokens(requests.output_tokens)
        ));
    }
    let rate = |rate: Option<f64>, what: &str| rate.map(|rate| format!("{rate:.2} {what}"));
    let rates: Vec<String> = [
        rate(requests.tokens_per_s, "generated tokens/s"),
        rate(requests.requests_per_s, "requests/s"),
        rate(requests.good_requests_per_s, "requests/s within the limits"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !rates.is_empty() {
        lines.push(rates.join(", "));
    }
    for failure in &requests.failures {
        lines.push(format!(
            "{} failed: {}",
            plural(failure.count, "request"),
            failure.why
        ));
    }
    lines
}

/// Renders the requests for a terminal.
pub fn requests_text(requests: &RequestStats) -> String {
    let mut out = table(requests).text();
    for line in sentences(requests) {
        out.push_str(&super::table::plain(&line));
        out.push('\n');
    }
    out
}
