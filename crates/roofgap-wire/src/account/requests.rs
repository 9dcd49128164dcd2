//! Requests that a load generator sent to a server.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Latency and throughput of the requests of one window of load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestStats {
    /// Requests sent, without those of the warm-up.
    pub sent: u64,
    /// Requests that were answered completely. All figures below are of these.
    pub completed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Prompt tokens, as the server counts them; `None` if it does not.
    pub prompt_tokens: Option<u64>,
    /// Generated tokens, as the server counts them; `None` if it does not.
    pub output_tokens: Option<u64>,
    /// Start of the window, ns since 1970.
    pub start_unix_ns: i64,
    /// Time from the first request to the end of the last answer, ns.
    pub window_ns: i64,
    /// Time from the request to its first token, ns.
    pub ttft_ns: Option<Percentiles>,
    /// Time between parts of an answer, ns. A part is one token unless the server sends several at once.
    pub itl_ns: Option<Percentiles>,
    /// Time from the request to the end of the answer, ns.
    pub e2e_ns: Option<Percentiles>,
    /// Generated tokens per second of the window.
    pub tokens_per_s: Option<f64>,
    /// Completed requests per second of the window.
    pub requests_per_s: Option<f64>,
    /// Completed requests per second within the limits that the user set; `None` without limits.
    pub good_requests_per_s: Option<f64>,
    /// Failures by message, the most frequent first.
    pub failures: Vec<RequestFailure>,
    /// Change of the counters that the server exports, over the window.
    pub metrics: BTreeMap<String, f64>,
}

/// Mean and percentiles of a time, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Percentiles {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: i64,
    /// Median.
    pub p50: i64,
    /// 90th percentile.
    pub p90: i64,
    /// 99th percentile.
    pub p99: i64,
    /// Largest value.
    pub max: i64,
}

/// Failures with the same message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestFailure {
    /// Message.
    pub why: String,
    /// Number of requests.
    pub count: u64,
}

impl RequestStats {
    /// Iterates over all times with a name.
    pub(super) fn times(&self) -> impl Iterator<Item = (&str, i64)> {
        let lists = [("ttft", self.ttft_ns), ("itl", self.itl_ns), ("e2e", self.e2e_ns)];
        let each = lists.into_iter().filter_map(|(name, list)| Some((name, list?)));
        let each = each.flat_map(|(name, p)| [p.mean, p.p50, p.p90, p.p99, p.max].map(|ns| (name, ns)));
        each.chain([("window", self.window_ns)])
    }
}
