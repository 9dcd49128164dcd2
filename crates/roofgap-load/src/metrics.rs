//! Counters that a server exports in the text format of Prometheus.

use crate::client::get;
use std::collections::BTreeMap;
use ureq::Agent;

/// Most bytes of the answer.
const MOST_BYTES: u64 = 4 << 20;

/// Reads the counters of a server, summed over their labels; empty where it exports none.
pub(crate) fn read(agent: &Agent, url: &str) -> BTreeMap<String, f64> {
    let address = format!("{}/metrics", url.trim_end_matches('/'));
    match get(agent, &address, MOST_BYTES) {
        Ok((200, text)) => counters(&text),
        _ => BTreeMap::new(),
    }
}

fn counters(text: &str) -> BTreeMap<String, f64> {
    let mut found: BTreeMap<String, f64> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = match line.split_once('{') {
            Some((name, rest)) => (name, rest.rsplit_once('}').map_or("", |(_, value)| value)),
            None => line.split_once(' ').unwrap_or((line, "")),
        };
        let counts = ["_total", "_sum", "_count"].iter().any(|end| name.ends_with(end));
        let value = value
            .split_whitespace()
            .next()
            .and_then(|value| value.parse::<f64>().ok());
        // Of the interpreter and the process nothing is of interest here.
        let own = ["python_", "process_", "http_"]
            .iter()
            .any(|start| name.starts_with(start));
        if let Some(value) = value.filter(|value| counts && !own && value.is_finite()) {
            *found.entry(name.to_owned()).or_default() += value;
        }
    }
    found
}

/// Returns the counters that changed, and by how much.
pub(crate) fn change(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let change = |(name, value): (&String, &f64)| {
        let change = value - before.get(name).copied().unwrap_or(0.0);
        (change != 0.0).then(|| (name.clone(), change))
    };
    after.iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_labels() {
        let text = "# HELP vllm:prompt_tokens_total Number\n# TYPE vllm:prompt_tokens_total counter\n\
                    vllm:prompt_tokens_total{model_name=\"a b}\"} 10.0\nvllm:prompt_tokens_total{model_name=\"c\"} 5.0\n\
                    vllm:num_requests_running{model_name=\"a\"} 3.0\nsglang:cached_tokens_total 7 1700000000\n\
                    process_cpu_seconds_total 9.5\nvllm:broken_total NaN\n";
        let found = counters(text);
        assert_eq!(found.get("vllm:prompt_tokens_total"), Some(&15.0));
        assert_eq!(found.get("sglang:cached_tokens_total"), Some(&7.0));
        assert_eq!(found.len(), 2);
        let change = change(&counters("sglang:cached_tokens_total 4\n"), &found);
        assert_eq!(change.get("sglang:cached_tokens_total"), Some(&3.0));
        assert_eq!(change.get("vllm:prompt_tokens_total"), Some(&15.0));
    }
}
