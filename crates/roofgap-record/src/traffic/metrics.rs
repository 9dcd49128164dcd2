//! Counters and gauges that a server exports in the text format of Prometheus.

use crate::traffic::client::get;
use roofgap_analyze::Engine;
use roofgap_wire::account::GaugeStats;
use std::collections::BTreeMap;
use ureq::Agent;

/// Most bytes of the answer.
const MOST_BYTES: u64 = 4 << 20;

/// Values that a server exports, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exported {
    /// Counters, summed over their labels.
    pub counters: BTreeMap<String, f64>,
    /// Gauges: the largest over the labels for a usage, else the sum.
    pub gauges: BTreeMap<String, f64>,
}

/// Ends of names that are no values of their own: parts of histograms, times of creation and descriptions.
const NO_GAUGES: [&str; 3] = ["_bucket", "_created", "_info"];

/// Reads the values of a server; empty where it exports none.
pub fn read(agent: &Agent, url: &str) -> Exported {
    let address = format!("{}/metrics", url.trim_end_matches('/'));
    match get(agent, &address, MOST_BYTES) {
        Ok((200, text)) => parse(&text),
        _ => Exported::default(),
    }
}

fn parse(text: &str) -> Exported {
    let mut found = Exported::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = match line.split_once('{') {
            Some((name, rest)) => (name, rest.rsplit_once('}').map_or("", |(_, value)| value)),
            None => line.split_once(' ').unwrap_or((line, "")),
        };
        let value = value.split_whitespace().next().and_then(|value| value.parse::<f64>().ok());
        // Of the interpreter and the process nothing is of interest here.
        let own = ["python_", "process_", "http_"].iter().any(|start| name.starts_with(start));
        let Some(value) = value.filter(|value| !own && value.is_finite()) else {
            continue;
        };
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        if ends(&["_total", "_sum", "_count"]) {
            *found.counters.entry(name.to_owned()).or_default() += value;
        } else if Engine::exports(name) && !ends(&NO_GAUGES) {
            let gauge = found.gauges.entry(name.to_owned()).or_default();
            *gauge = if name.contains("usage") { gauge.max(value) } else { *gauge + value };
        }
    }
    found
}

/// Summarises the samples of each gauge, the first of which is from before the window and the last from after it.
pub fn summarise(samples: &[Exported]) -> BTreeMap<String, GaugeStats> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return BTreeMap::new();
    };
    let names = samples.iter().flat_map(|sample| sample.gauges.keys());
    let names: std::collections::BTreeSet<&String> = names.collect();
    let summary = |name: &String| {
        let values: Vec<f64> = samples.iter().filter_map(|sample| sample.gauges.get(name)).copied().collect();
        let of = |sample: &Exported| sample.gauges.get(name).copied().unwrap_or_default();
        // Load is on between the first and the last sample.
        let during = match values.as_slice() {
            [_, during @ .., _] if !during.is_empty() => during,
            all => all,
        };
        GaugeStats {
            samples: values.len() as u64,
            first: of(first),
            last: of(last),
            mean: during.iter().sum::<f64>() / during.len().max(1) as f64,
            max: values.iter().copied().fold(f64::MIN, f64::max),
        }
    };
    names.into_iter().map(|name| (name.clone(), summary(name))).collect()
}

/// Returns the counters that changed, and by how much.
pub fn change(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
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
        let found = parse(text).counters;
        assert_eq!(found.get("vllm:prompt_tokens_total"), Some(&15.0));
        assert_eq!(found.get("sglang:cached_tokens_total"), Some(&7.0));
        assert_eq!(found.len(), 2);
        let change = change(&parse("sglang:cached_tokens_total 4\n").counters, &found);
        assert_eq!(change.get("sglang:cached_tokens_total"), Some(&3.0));
        assert_eq!(change.get("vllm:prompt_tokens_total"), Some(&15.0));
    }
    #[test]
    fn gauges_are_the_largest_usage_and_the_sum_of_others() {
        let sample = |usage: f64, running: f64| {
            parse(&format!(
                "vllm:kv_cache_usage_perc{{engine=\"0\"}} {usage}\nvllm:kv_cache_usage_perc{{engine=\"1\"}} 0.1\n\
                 vllm:num_requests_running{{engine=\"0\"}} {running}\nvllm:num_requests_running{{engine=\"1\"}} 1\n\
                 vllm:cache_config_info{{block_size=\"16\"}} 1.0\nvllm:iteration_tokens_total_bucket{{le=\"1\"}} 4\n"
            ))
        };
        let found = summarise(&[sample(0.0, 0.0), sample(0.5, 3.0), sample(0.25, 1.0), sample(0.0, 0.0)]);
        assert_eq!(found.len(), 2, "{found:?}");
        let usage = found["vllm:kv_cache_usage_perc"];
        assert_eq!((usage.samples, usage.first, usage.last, usage.max), (4, 0.1, 0.1, 0.5));
        assert_eq!(usage.mean, 0.375);
        assert_eq!(found["vllm:num_requests_running"].mean, 3.0);
        // Without a sample under load, those around it are all there is.
        assert_eq!(summarise(&[sample(0.4, 0.0), sample(0.2, 0.0)])["vllm:kv_cache_usage_perc"].samples, 2);
    }
}
