//! Requests that a load generator sent to a server: latency and throughput.

use super::numbers::{count, counted, or_none, significant, time};
use super::screen::Screen;
use super::table::{Table, plain};
use roofgap_analyze::{Analysis, GaugeStats, RequestStats, ServerGauges, Stage, StageKind, Steps};

/// Builds the table of latencies.
pub fn table(requests: &RequestStats) -> Table {
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
pub fn sentences(requests: &RequestStats) -> Vec<String> {
    let mut lines = Vec::new();
    let failed = match requests.failed {
        0 => String::new(),
        failed => format!(", {} failed", count(failed)),
    };
    lines.push(format!(
        "{} completed{failed}, in {}",
        counted(requests.completed, "request"),
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
    let rate = |rate: Option<f64>, what: &str| rate.map(|rate| format!("{} {what}", significant(rate)));
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
    lines.extend(gauges(requests));
    for failure in &requests.failures {
        lines.push(format!("{} failed: {}", counted(failure.count, "request"), failure.why));
    }
    lines
}

/// States the use of the KV cache and the queue, as the server exported them.
fn gauges(requests: &RequestStats) -> Option<String> {
    let gauges = ServerGauges::of(requests);
    let queue = |found: Option<&GaugeStats>, what: &str| {
        found.map(|found| format!("{:.1} requests {what} on average, {:.0} at most", found.mean, found.max))
    };
    let cache =
        gauges.cache_usage.map(|cache| format!("{:.1} % of the KV cache in use at most", 100.0 * cache.max));
    let parts = [cache, queue(gauges.running, "run"), queue(gauges.waiting, "wait")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("as the server exports: {}", parts.join("; ")))
}

/// Joins the latency of requests with the steps of the engine that served them.
pub fn against_steps(analysis: &Analysis) -> Vec<String> {
    let Some(requests) = &analysis.requests else {
        return Vec::new();
    };
    let engine_stages = analysis.stages.iter().filter(|stage| stage.requests.is_some());
    engine_stages
        .filter_map(|stage| {
            let steps = stage.steps.as_ref().filter(|steps| steps.count > 0)?;
            against(requests, stage, steps)
        })
        .collect()
}

/// Compares the median step of a stage with the latency that it is a part of.
fn against(requests: &RequestStats, stage: &Stage, steps: &Steps) -> Option<String> {
    let step = format!("a {} step takes {} at the median", stage.name, time(steps.p50_ns));
    if stage.kind != StageKind::Decode {
        let ttft = requests.ttft_ns?.p50;
        return Some(format!("{step}, the time to first token {}", time(ttft)));
    }
    let itl = requests.itl_ns?.p50;
    let batch = stage.requests.and_then(|requests| requests.generation);
    let batch = batch.map_or_else(String::new, |generation| {
        let mean = generation as f64 / steps.count as f64;
        format!("; {mean:.1} requests in a step on average")
    });
    Some(format!("{step}, the time between tokens {}{batch}", time(itl)))
}

/// Renders the requests for a terminal.
pub fn requests_text(requests: &RequestStats, screen: Screen) -> String {
    let mut out = table(requests).text(screen);
    for line in sentences(requests) {
        out.push_str(&screen.wrapped(&plain(&line), 2));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{Percentiles, PhaseCounts};

    #[test]
    fn latency_stands_beside_the_steps_of_the_engine() {
        let mut stage = Stage::default();
        stage.name = "decode".into();
        stage.kind = StageKind::Decode;
        stage.requests = Some(PhaseCounts { context: Some(0), generation: Some(25) });
        stage.steps = Some(Steps { count: 10, p50_ns: 8_000_000, ..Steps::default() });
        let p50 = |p50| Some(Percentiles { p50, ..Percentiles::default() });
        let mut analysis = Analysis::default();
        analysis.stages = vec![stage];
        assert_eq!(against_steps(&analysis), Vec::<String>::new());
        analysis.requests = Some(RequestStats {
            itl_ns: p50(9_000_000),
            ttft_ns: p50(90_000_000),
            ..RequestStats::default()
        });
        assert_eq!(
            against_steps(&analysis),
            [
                "a decode step takes 8.00 ms at the median, the time between tokens 9.00 ms; 2.5 requests in a step on average"
            ]
        );
        analysis.stages[0].name = "mixed".into();
        analysis.stages[0].kind = StageKind::Mixed;
        assert_eq!(
            against_steps(&analysis),
            ["a mixed step takes 8.00 ms at the median, the time to first token 90.0 ms"]
        );
        analysis.stages[0].requests = None;
        assert_eq!(against_steps(&analysis), Vec::<String>::new());
    }
}
