//! Percentiles and throughput of all requests; counters and gauges that a server exports in the text format of Prometheus.

use super::client::{Outcome, Server};
use roofgap_analyze::Engine;
use roofgap_base::clock::ns;
use roofgap_base::stats::percentile;
use roofgap_wire::account::{GaugeStats, MOST_KEPT, Percentiles, RequestFailure, RequestStats, RequestTimes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Summarises the requests. `started_unix_ns` is the wall-clock time of their origin.
pub fn summary(outcomes: &[Outcome], started_unix_ns: i64) -> RequestStats {
    let done: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.error.is_none()).collect();
    let mut failures: BTreeMap<String, u64> = BTreeMap::new();
    for error in outcomes.iter().filter_map(|outcome| outcome.error.as_ref()) {
        *failures.entry(error.to_string()).or_default() += 1;
    }
    let mut failures: Vec<RequestFailure> =
        failures.into_iter().map(|(why, count)| RequestFailure { why, count }).collect();
    failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
    let first = outcomes.iter().map(|outcome| outcome.due).min().unwrap_or_default();
    let last = outcomes.iter().map(|outcome| outcome.end).max().unwrap_or_default();
    let window = last.saturating_sub(first);
    let per_s = |count: u64| (window > Duration::ZERO).then(|| count as f64 / window.as_secs_f64());
    let sum = |of: fn(&Outcome) -> Option<u64>| done.iter().map(|outcome| of(outcome)).sum::<Option<u64>>();
    let output_tokens = sum(|outcome| outcome.output_tokens);
    RequestStats {
        sent: outcomes.len() as u64,
        completed: done.len() as u64,
        failed: (outcomes.len() - done.len()) as u64,
        prompt_tokens: sum(|outcome| outcome.prompt_tokens),
        output_tokens,
        start_unix_ns: started_unix_ns.saturating_add(ns(first)),
        window_ns: ns(window),
        ttft_ns: percentiles(done.iter().filter_map(|outcome| ttft(outcome)).collect()),
        itl_ns: percentiles(done.iter().flat_map(|outcome| gaps(outcome)).collect()),
        e2e_ns: percentiles(done.iter().map(|outcome| outcome.end.saturating_sub(outcome.due)).collect()),
        tokens_per_s: output_tokens.and_then(per_s),
        requests_per_s: per_s(done.len() as u64),
        failures,
        each: each(&done, first),
        ..RequestStats::default()
    }
}

/// Lists the times of requests, by their start. `origin` is the start of the window.
fn each(done: &[&Outcome], origin: Duration) -> Vec<RequestTimes> {
    let after = |time: Duration| ns(time.saturating_sub(origin));
    let times = |outcome: &&Outcome| {
        Some(RequestTimes {
            number: Some(outcome.number as u64 + 1),
            start_ns: after(outcome.due),
            first_ns: after(*outcome.parts.first()?),
            last_ns: after(*outcome.parts.last()?),
            prompt_tokens: outcome.prompt_tokens,
            output_tokens: outcome.output_tokens,
        })
    };
    let mut each: Vec<RequestTimes> = done.iter().filter_map(times).collect();
    each.sort_by_key(|times| times.start_ns);
    each.truncate(MOST_KEPT);
    each
}

fn ttft(outcome: &Outcome) -> Option<Duration> {
    Some(outcome.parts.first()?.saturating_sub(outcome.due))
}

fn gaps(outcome: &Outcome) -> impl Iterator<Item = Duration> {
    let pairs = outcome.parts.windows(2);
    pairs.filter_map(|pair| Some(pair.get(1)?.saturating_sub(*pair.first()?)))
}

/// Summarises times; `None` without any.
fn percentiles(mut times: Vec<Duration>) -> Option<Percentiles> {
    times.sort_unstable();
    let at = |share: f64| percentile(&times, share).map(ns);
    let total: u128 = times.iter().map(Duration::as_nanos).sum();
    let mean = total.checked_div(times.len() as u128)?;
    Some(Percentiles {
        count: times.len() as u64,
        mean: i64::try_from(mean).unwrap_or(i64::MAX),
        p50: at(0.5)?,
        p90: at(0.9)?,
        p99: at(0.99)?,
        max: at(1.0)?,
    })
}

/// Largest value that is kept: the sum over labels stays finite.
const MOST_VALUE: f64 = 1e24;

/// Most bytes of the answer.
const MOST_BYTES: u64 = 4 << 20;

/// Values that a server exports, by name: counters are summed over their labels; gauges are the largest of a usage, else the sum.
pub type Exported = BTreeMap<String, f64>;

/// Tells whether a value is a counter, not a gauge.
pub fn is_counter(name: &str) -> bool {
    ["_total", "_sum", "_count"].iter().any(|end| name.ends_with(end))
}

/// Ends of names that are no values of their own: parts of histograms, times of creation and descriptions.
const NO_GAUGES: [&str; 3] = ["_bucket", "_created", "_info"];

/// Reads the values of a server; empty where it exports none.
pub fn read_exported(server: &Server) -> Exported {
    match server.get("metrics", MOST_BYTES) {
        Ok((200, text)) => parse_exported(&text),
        _ => Exported::default(),
    }
}

/// Lists the values in the text of Prometheus, each with its name.
fn exported(text: &str) -> impl Iterator<Item = (&str, f64)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (name, value) = match line.split_once('{') {
            Some((name, rest)) => (name, rest.rsplit_once('}').map_or("", |(_, value)| value)),
            None => line.split_once(' ').unwrap_or((line, "")),
        };
        Some((name, value.split_whitespace().next()?.parse().ok()?))
    })
}

fn parse_exported(text: &str) -> Exported {
    let mut values = Exported::new();
    for (name, value) in exported(text) {
        let is_gauge = Engine::exports(name) && !NO_GAUGES.iter().any(|end| name.ends_with(end));
        // Of the interpreter and the process nothing is of interest here.
        let is_other = ["python_", "process_", "http_"].iter().any(|start| name.starts_with(start));
        if is_other || !(is_counter(name) || is_gauge) || value.is_nan() || value.abs() > MOST_VALUE {
            continue;
        }
        let known = values.entry(name.to_owned()).or_default();
        let is_usage = name.contains("usage") && !is_counter(name);
        *known = if is_usage { known.max(value) } else { *known + value };
    }
    values
}

/// Summarises the samples of each gauge, the first of which is from before the window and the last from after it.
pub fn summarise_gauges(samples: &[Exported]) -> BTreeMap<String, GaugeStats> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return BTreeMap::new();
    };
    let names: BTreeSet<&String> = samples.iter().flat_map(BTreeMap::keys).collect();
    let summary = |name: &String| {
        let values: Vec<f64> = samples.iter().filter_map(|sample| sample.get(name)).copied().collect();
        let value = |sample: &Exported| sample.get(name).copied().unwrap_or_default();
        // Load is on between the first and the last sample.
        let during = match values.as_slice() {
            [_, during @ .., _] if !during.is_empty() => during,
            all => all,
        };
        GaugeStats {
            samples: values.len() as u64,
            first: value(first),
            last: value(last),
            mean: during.iter().sum::<f64>() / during.len().max(1) as f64,
            max: values.iter().copied().fold(f64::MIN, f64::max),
        }
    };
    let gauges = names.into_iter().filter(|name| !is_counter(name));
    gauges.map(|name| (name.clone(), summary(name))).collect()
}

/// Returns the counters that changed, and by how much.
pub fn counter_changes(before: &Exported, after: &Exported) -> BTreeMap<String, f64> {
    let change = |(name, value): (&String, &f64)| {
        let change = value - before.get(name).copied().unwrap_or(0.0);
        (is_counter(name) && change != 0.0).then(|| (name.clone(), change))
    };
    after.iter().filter_map(change).collect()
}

#[cfg(test)]
mod metrics_tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_labels() {
        let text = "# HELP vllm:prompt_tokens_total Number\n# TYPE vllm:prompt_tokens_total counter\n\
                    vllm:prompt_tokens_total{model_name=\"a b}\"} 10.0\nvllm:prompt_tokens_total{model_name=\"c\"} 5.0\n\
                    vllm:num_requests_running{model_name=\"a\"} 3.0\nsglang:cached_tokens_total 7 1700000000\n\
                    process_cpu_seconds_total 9.5\nvllm:broken_total NaN\n";
        let mut found = parse_exported(text);
        assert_eq!(found.remove("vllm:num_requests_running"), Some(3.0));
        assert_eq!(found.get("vllm:prompt_tokens_total"), Some(&15.0));
        assert_eq!(found.get("sglang:cached_tokens_total"), Some(&7.0));
        assert_eq!(found.len(), 2);
        let absurd =
            "a_total{a=\"1\"} 1e308\na_total{a=\"2\"} 1e308\nb_total inf\nc_total NaN\nd_total -1e300\n";
        assert_eq!(parse_exported(absurd), BTreeMap::new());
        let change = counter_changes(&parse_exported("sglang:cached_tokens_total 4\n"), &found);
        assert_eq!(change.get("sglang:cached_tokens_total"), Some(&3.0));
        assert_eq!(change.get("vllm:prompt_tokens_total"), Some(&15.0));
    }
    #[test]
    fn gauges_are_the_largest_usage_and_the_sum_of_others() {
        let sample = |usage: f64, running: f64| {
            parse_exported(&format!(
                "vllm:kv_cache_usage_perc{{engine=\"0\"}} {usage}\nvllm:kv_cache_usage_perc{{engine=\"1\"}} 0.1\n\
                 vllm:num_requests_running{{engine=\"0\"}} {running}\nvllm:num_requests_running{{engine=\"1\"}} 1\n\
                 vllm:cache_config_info{{block_size=\"16\"}} 1.0\nvllm:iteration_tokens_total_bucket{{le=\"1\"}} 4\n"
            ))
        };
        let found =
            summarise_gauges(&[sample(0.0, 0.0), sample(0.5, 3.0), sample(0.25, 1.0), sample(0.0, 0.0)]);
        assert_eq!(found.len(), 2, "{found:?}");
        let usage = found["vllm:kv_cache_usage_perc"];
        assert_eq!((usage.samples, usage.first, usage.last, usage.max), (4, 0.1, 0.1, 0.5));
        assert_eq!(usage.mean, 0.375);
        assert_eq!(found["vllm:num_requests_running"].mean, 3.0);
        // Without a sample under load, those around it are all there is.
        assert_eq!(
            summarise_gauges(&[sample(0.4, 0.0), sample(0.2, 0.0)])["vllm:kv_cache_usage_perc"].samples,
            2
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::RequestError;
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn outcome(due: u64, parts: &[u64], end: u64) -> Outcome {
        Outcome {
            due: ms(due),
            parts: parts.iter().map(|part| ms(*part)).collect(),
            end: ms(end),
            prompt_tokens: Some(10),
            output_tokens: Some(parts.len() as u64),
            ..Outcome::default()
        }
    }

    #[test]
    fn the_summary_is_that_of_the_completed_requests() {
        let failed =
            Outcome { due: ms(5), end: ms(1_000), error: Some(RequestError::Cut), ..Outcome::default() };
        let outcomes = [outcome(0, &[100, 110, 130], 130), outcome(10, &[310, 340], 350), failed];
        let stats = summary(&outcomes, 7);
        assert_eq!((stats.sent, stats.completed, stats.failed), (3, 2, 1));
        assert_eq!(stats.prompt_tokens, Some(20));
        assert_eq!(stats.output_tokens, Some(5));
        assert_eq!((stats.start_unix_ns, stats.window_ns), (7, 1_000_000_000));
        assert_eq!(stats.tokens_per_s, Some(5.0));
        assert_eq!(stats.requests_per_s, Some(2.0));
        let ttft = stats.ttft_ns.unwrap();
        assert_eq!((ttft.p50, ttft.p90, ttft.mean), (100_000_000, 300_000_000, 200_000_000));
        let itl = stats.itl_ns.unwrap();
        assert_eq!((itl.count, itl.p50, itl.max), (3, 20_000_000, 30_000_000));
        assert_eq!(stats.e2e_ns.unwrap().max, 340_000_000);
        assert_eq!(stats.failures[0].count, 1);
        let times: Vec<_> =
            stats.each.iter().map(|each| (each.start_ns, each.first_ns, each.last_ns)).collect();
        assert_eq!(times, [(0, 100_000_000, 130_000_000), (10_000_000, 310_000_000, 340_000_000)]);
    }

    #[test]
    fn nothing_measured_is_nothing() {
        let stats = summary(&[], 0);
        assert_eq!((stats.ttft_ns, stats.tokens_per_s), (None, None));
    }
}
