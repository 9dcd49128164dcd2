//! The steps of a serving engine together: rates, batches over time, and the latency of requests by its parts.

use super::numbers::{count, counted, ms, or_none, percent, time};
use super::table::Table;
use roofgap_analyze::{About, Analysis, BatchRow, JoinedLatency, LatencyPart, Serving, ServingSlice};

/// Meaning of the tables of latency.
pub const LATENCY: &str = "A request is joined with the last recorded step that read prompts and ended before its first token; a prompt \
     longer than the tokens of that step also with steps before it. Requests and steps have the wall clock of one host.";

/// Returns the steps of an engine together, where there is more than one.
pub fn of(analysis: &Analysis) -> Option<&Serving> {
    let serving = analysis.serving.as_ref();
    serving.filter(|serving| serving.over_time.len() > 1)
}

/// States rates over the whole span, and waits for prompts of others.
pub fn sentences(analysis: &Analysis) -> Vec<String> {
    let Some(serving) = of(analysis) else {
        return Vec::new();
    };
    let mut lines = vec![rates(serving)];
    let why = analysis.reason(&About::Other("serving.generation_tokens_per_s".into()));
    lines.extend(why.map(|why| format!("tokens per second of all steps are not known: {why}")));
    let stalls = serving.stalls;
    if stalls.steps > 0 {
        lines.push(format!(
            "requests that generate waited for {} of prompts of others: {} in all, {} at most without a step that generates",
            counted(stalls.steps, "prefill step"),
            time(stalls.total_ns),
            time(stalls.longest_ns)
        ));
    }
    if let Some(latency) = serving.latency.as_ref().filter(|latency| latency.joined < latency.requests) {
        lines.push(format!(
            "{} of {} requests are joined with recorded steps",
            count(latency.joined),
            count(latency.requests)
        ));
    }
    let why = analysis.reason(&About::Other("serving.latency".into()));
    lines.extend(why.map(|why| format!("the latency of requests is not split: {why}")));
    let why = analysis.reason(&About::Other("serving.latency.token_time".into()));
    lines.extend(why.map(|why| format!("the time per token is not split: {why}")));
    lines
}

/// States the tokens per second of the whole span.
fn rates(serving: &Serving) -> String {
    let rate = |rate: Option<f64>, what: &str| {
        rate.filter(|rate| *rate > 0.0).map(|rate| format!("{} {what} tokens/s", count(rate.round() as u64)))
    };
    let rates =
        [rate(serving.generation_tokens_per_s, "generated"), rate(serving.context_tokens_per_s, "prompt")];
    let rates: Vec<String> = rates.into_iter().flatten().collect();
    let copies = match serving.replicas {
        None | Some(0 | 1) => String::new(),
        Some(copies) => format!(", {copies} copies of the model together"),
    };
    match rates.is_empty() {
        true => format!("the steps span {}", time(serving.span_ns)),
        false => format!(
            "the steps span {}, time between them included: {}{copies}; the first token of each request counts as prompt work",
            time(serving.span_ns),
            rates.join(", ")
        ),
    }
}

/// Builds the table of slices of time.
pub fn over_time(serving: &Serving) -> Table {
    Table::of(&serving.over_time)
        .number("from ms", |slice: &ServingSlice| ms(slice.start_ns))
        .count("prefill", |slice| slice.prefill_steps)
        .count("mixed", |slice| slice.mixed_steps)
        .count("decode", |slice| slice.decode_steps)
        .number("requests/step", |slice| or_none(slice.requests_per_step, |mean| format!("{mean:.1}")))
        .count("prompt tokens", |slice| slice.context_tokens)
        .count("generated tokens", |slice| slice.generation_tokens)
        .build()
}

/// Builds the table of decode steps by batch size.
pub fn batches(serving: &Serving) -> Table {
    Table::of(&serving.batches)
        .count("requests", |batch: &BatchRow| batch.requests)
        .count("decode steps", |batch| batch.steps)
        .count("with CUDA graphs", |batch| batch.graph_steps)
        .ms("mean", |batch| batch.mean_ns)
        .build()
}

/// Builds the tables of the time to first token and of the time per token.
pub fn latency(latency: &JoinedLatency) -> [Table; 2] {
    [parts(&latency.ttft), parts(&latency.token_time)]
}

fn parts(parts: &[LatencyPart]) -> Table {
    let whole = parts.first().map_or(0, |part| part.mean_ns);
    let name = parts.first().map_or("part", |part| part.part.as_str());
    Table::of(parts.get(1..).unwrap_or_default())
        .text(name, |part: &LatencyPart| part.part.clone())
        .ms("mean", |part| part.mean_ns)
        .number("%", |part| percent(part.mean_ns, whole))
        .ms("p50", |part| part.p50_ns)
        .ms("p90", |part| part.p90_ns)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{Reason, Stalls};

    fn part(name: &str, mean_ns: i64) -> LatencyPart {
        LatencyPart { part: name.into(), mean_ns, p50_ns: Some(mean_ns), p90_ns: None }
    }

    #[test]
    fn rates_stalls_and_the_parts_of_latency_are_stated() {
        let mut analysis = Analysis::default();
        assert!(sentences(&analysis).is_empty());
        analysis.serving = Some(Serving {
            span_ns: 380_000_000,
            replicas: Some(1),
            over_time: vec![ServingSlice::default(); 2],
            generation_tokens_per_s: Some(5_305.3),
            stalls: Stalls { steps: 1, total_ns: 20_000_000, longest_ns: 26_000_000, request_ns: 40_000_000 },
            latency: Some(JoinedLatency {
                requests: 3,
                joined: 2,
                ttft: vec![part("time to first token", 40_000_000), part("after its step", 10_000_000)],
                ..JoinedLatency::default()
            }),
            ..Serving::default()
        });
        assert_eq!(
            sentences(&analysis),
            [
                "the steps span 380 ms, time between them included: 5,305 generated tokens/s; the first token of each request \
                 counts as prompt work",
                "requests that generate waited for 1 prefill step of prompts of others: 20.0 ms in all, 26.0 ms at most without a \
                 step that generates",
                "2 of 3 requests are joined with recorded steps",
            ]
        );
        let about = About::Other("serving.generation_tokens_per_s".into());
        analysis.reasons.push(Reason::new(about, "two processes ran steps"));
        assert_eq!(
            sentences(&analysis)[1],
            "tokens per second of all steps are not known: two processes ran steps"
        );
        let about = About::Other("serving.latency.token_time".into());
        analysis.reasons.push(Reason::new(about, "steps overlap"));
        assert_eq!(
            sentences(&analysis).last().map(String::as_str),
            Some("the time per token is not split: steps overlap")
        );
        let serving = analysis.serving.as_ref().unwrap();
        let [ttft, token_time] = latency(serving.latency.as_ref().unwrap());
        assert_eq!(ttft.rows, [["after its step", "10.000", "25.0", "10.000", "–"]]);
        assert!(token_time.is_empty());
    }
}
