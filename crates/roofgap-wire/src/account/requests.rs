//! Requests that a load generator sent to a server.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Latency and throughput of the requests of one window of load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RequestStats {
    /// Requests sent, without those of the warm-up.
    pub sent: u64,
    /// Requests that were answered completely. All figures below are of these.
    pub completed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Prompt tokens, as the server counts them; null if it does not.
    pub prompt_tokens: Option<u64>,
    /// Generated tokens, as the server counts them; null if it does not.
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
    /// Completed requests per second within the limits that the user set; null without limits.
    pub good_requests_per_s: Option<f64>,
    /// Failures by message, the most frequent first.
    pub failures: Vec<RequestFailure>,
    /// Change of the counters that the server exports, over the window.
    pub metrics: BTreeMap<String, f64>,
    /// Gauges that the server exports, sampled about once a second of the window.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gauges: BTreeMap<String, GaugeStats>,
    /// Change of the wall clock against the steady clock over the window, ns; left out where it was not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_change_ns: Option<i64>,
    /// Times of the completed requests, by their start; at most 10,000; left out without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<RequestTimes>,
}

/// Most requests whose times are kept.
pub const MOST_KEPT: usize = 10_000;

/// Times of one request, ns from `RequestStats::start_unix_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RequestTimes {
    /// Time at which the request was due.
    pub start_ns: i64,
    /// Arrival of the first token.
    pub first_ns: i64,
    /// Arrival of the last token.
    pub last_ns: i64,
    /// Tokens of the prompt, as the server counts them.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, as the server counts them.
    pub output_tokens: Option<u64>,
}

/// Samples of a gauge. Usages are the largest over the labels of the gauge, other values are sums.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GaugeStats {
    /// Number of samples.
    pub samples: u64,
    /// Value before the window.
    pub first: f64,
    /// Value after the window.
    pub last: f64,
    /// Mean of the samples.
    pub mean: f64,
    /// Largest sample.
    pub max: f64,
}

/// Overhead of the collector, from windows of one server under steady load with the collector armed and dormant in turn.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PairedOverhead {
    /// Number of pairs of windows.
    pub pairs: u64,
    /// Length of a window, ns.
    pub window_ns: i64,
    /// Mean time between tokens while armed, ns.
    pub armed_itl_ns: i64,
    /// Mean time between tokens while dormant, ns.
    pub dormant_itl_ns: i64,
    /// Time between tokens armed divided by dormant: geometric mean over pairs.
    pub ratio: f64,
    /// Lower end of the 95 % confidence interval of `ratio`.
    pub low: f64,
    /// Upper end of the 95 % confidence interval of `ratio`.
    pub high: f64,
}

/// Mean and percentiles of a time, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        let requests = self.each.iter().flat_map(|times| {
            [
                ("time to first token", times.first_ns.saturating_sub(times.start_ns)),
                ("time after the first token", times.last_ns.saturating_sub(times.first_ns)),
            ]
        });
        each.chain([("window", self.window_ns)]).chain(requests)
    }

    /// Iterates over all counts with the name of what is counted.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let requests = [self.sent, self.completed, self.failed];
        let failures = self.failures.iter().map(|failure| failure.count);
        let own = [self.prompt_tokens, self.output_tokens].into_iter().flatten();
        let each = self.each.iter().flat_map(|times| [times.prompt_tokens, times.output_tokens]).flatten();
        let requests = requests.into_iter().chain(failures).map(|count| ("requests", count));
        requests.chain(own.chain(each).map(|count| ("tokens of requests", count)))
    }

    /// Iterates over all moments with a name.
    pub(super) fn moments(&self) -> impl Iterator<Item = (&str, i64)> {
        let due = self.each.iter().map(|times| ("start of a request", times.start_ns));
        std::iter::once(("start of the window", self.start_unix_ns)).chain(due)
    }
}
