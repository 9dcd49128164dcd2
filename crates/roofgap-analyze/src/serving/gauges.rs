//! Gauges that serving engines export, by their meaning.

use crate::result::{GaugeStats, RequestStats};

/// Gauges of a server while load was sent; `None` for one that it does not export.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ServerGauges<'a> {
    /// Used share of the KV cache, 0 to 1.
    pub cache_usage: Option<&'a GaugeStats>,
    /// Number of requests that run.
    pub running: Option<&'a GaugeStats>,
    /// Number of requests that wait.
    pub waiting: Option<&'a GaugeStats>,
}

/// Names of the used share of the KV cache: vLLM since and before 0.10, SGLang.
const CACHE_USAGE: [&str; 3] =
    ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"];

const RUNNING: [&str; 2] = ["vllm:num_requests_running", "sglang:num_running_reqs"];
const WAITING: [&str; 2] = ["vllm:num_requests_waiting", "sglang:num_queue_reqs"];

impl<'a> ServerGauges<'a> {
    /// Finds the gauges among those that were sampled.
    pub fn of(requests: &'a RequestStats) -> Self {
        let gauge = |names: &[&str]| names.iter().find_map(|name| requests.gauges.get(*name));
        Self { cache_usage: gauge(&CACHE_USAGE), running: gauge(&RUNNING), waiting: gauge(&WAITING) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_its_names() {
        let sampled = |names: &[&str]| {
            let gauge = |(at, name): (usize, &&str)| {
                let stats = GaugeStats { mean: at as f64, ..GaugeStats::default() };
                ((*name).to_owned(), stats)
            };
            RequestStats { gauges: names.iter().enumerate().map(gauge).collect(), ..RequestStats::default() }
        };
        for names in [
            ["vllm:gpu_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting"],
            ["sglang:token_usage", "sglang:num_running_reqs", "sglang:num_queue_reqs"],
        ] {
            let requests = sampled(&names);
            let found = ServerGauges::of(&requests);
            let means =
                [found.cache_usage, found.running, found.waiting].map(|gauge| gauge.map(|gauge| gauge.mean));
            assert_eq!(means, [Some(0.0), Some(1.0), Some(2.0)], "{names:?}");
        }
        assert_eq!(ServerGauges::of(&sampled(&["other:gauge"])), ServerGauges::default());
    }
}
