//! Requests that a load generator sent to a server, and the steps of its engine together: rates, batches over time, and the latency
//! of requests by its parts. Slow steps with their causes, and the moment that a recording was kept for.

use super::table::Table;
use super::{Block, Document, Item, Section, joined, joined_any, maybe};
use crate::render::screen::Screen;
use crate::render::text;
use roofgap_analyze::{
    About, Analysis, GaugeStats, Incident, IncidentProcess, LatencyPart, Receipts, RequestStats,
    ServerGauges, Serving, Spike, Stage, StageKind, Startup,
};
use roofgap_base::numbers::{count, counted, ms, or_none, percent, significant, size, time};

impl Document<'_> {
    /// Describes the requests that a load generator sent.
    pub(super) fn requests(&self) -> Section {
        let requests = self.analysis.requests.as_ref();
        let lines = against_steps(self.analysis);
        let blocks = requests.map(|requests| request_blocks(requests, lines)).into_iter().flatten();
        Section::new("requests", "Requests").with(blocks)
    }

    /// Describes the steps of a serving engine together, where there is more than one.
    pub(super) fn serving(&self) -> Section {
        let section = Section::new("serving", "Steps of the engine");
        let Some(serving) = self.analysis.serving.as_ref().filter(|serving| serving.over_time.len() > 1)
        else {
            return section;
        };
        let over_time = Table::of(&serving.over_time)
            .number("from ms", |slice| ms(slice.start_ns))
            .number("prefill", |slice| slice.prefill_steps)
            .number("mixed", |slice| slice.mixed_steps)
            .number("decode", |slice| slice.decode_steps)
            .number("requests/step", |slice| slice.requests_per_step)
            .number("prompt tokens", |slice| slice.context_tokens)
            .number("generated tokens", |slice| slice.generation_tokens)
            .build();
        let batches = Table::of(&serving.batches)
            .number("requests", |batch| batch.requests)
            .number("decode steps", |batch| batch.steps)
            .number("with CUDA graphs", |batch| batch.graph_steps)
            .ms("mean", |batch| batch.mean_ns)
            .build();
        let latency = serving.latency.iter().flat_map(|latency| [&latency.ttft, &latency.token_time]);
        let meaning = serving.latency.as_ref().map(|_| Block::explanation("latency"));
        section
            .with(Block::list(step_sentences(self.analysis, serving)))
            .with(Block::table(over_time))
            .with(self.not_in_text(Block::table(batches)))
            .with(latency.filter_map(|parts| Block::table(latency_parts(parts))))
            .with(self.not_in_text(meaning))
    }

    /// Tabulates the start of the program.
    pub(super) fn startup(&self) -> Section {
        let rows = &self.analysis.startup;
        let all: i64 = rows.iter().map(|part| part.ns).sum();
        let table = Table::of(rows)
            .text("part", |part| &part.name)
            .number("time", |part| time(part.ns))
            .number("share", |part| format!("{} %", percent(part.ns, all)))
            .build();
        let note = format!("{} from the start of the first process to the first step.", time(all));
        self.tabled_as("startup", "Start of the program", &note, table, rows.len()).inner()
    }

    /// Tabulates the most expensive requests.
    pub(super) fn receipts(&self) -> Section {
        let receipts = self.analysis.serving.as_ref().and_then(|serving| serving.receipts.as_ref());
        let rows = receipts.map_or(&[][..], |receipts| &receipts.each);
        let gpu = |ns: i64| receipts.is_some_and(Receipts::has_gpu_time).then(|| time(ns));
        let table = Table::of(rows)
            .text("request", |row| &row.id)
            .number("steps", |row| row.steps)
            .number("tokens", |row| row.tokens)
            .number("GPU busy", |row| gpu(row.busy_ns))
            .number("GPU idle", |row| gpu(row.idle_ns))
            .number("J", |row| row.joules.map(significant))
            .number("in flight", |row| time(row.end_ns - row.start_ns))
            .build();
        self.tabled("receipts", table, self.most(50)).inner()
    }
}

/// Renders the requests for a terminal.
pub fn requests_text(requests: &RequestStats, screen: Screen) -> String {
    text::blocks(&request_blocks(requests, Vec::new()), screen)
}

fn request_blocks(requests: &RequestStats, more: Vec<String>) -> Vec<Block> {
    let latencies = [
        ("time to first token", requests.ttft_ns),
        ("time between tokens", requests.itl_ns),
        ("whole request", requests.e2e_ns),
    ];
    let table = Table::of(&latencies)
        .text("latency", |row| row.0)
        .number("mean", |row| Some(time(row.1?.mean)))
        .number("p50", |row| Some(time(row.1?.p50)))
        .number("p90", |row| Some(time(row.1?.p90)))
        .number("p99", |row| Some(time(row.1?.p99)))
        .number("max", |row| Some(time(row.1?.max)))
        .build();
    let lines = sentences(requests).into_iter().chain(more);
    [Block::Table(table)].into_iter().chain(Block::list(lines)).collect()
}

/// Describes the number of requests, their tokens and the throughput.
fn sentences(requests: &RequestStats) -> Vec<String> {
    let failed = maybe((requests.failed > 0).then_some(requests.failed), |failed| {
        format!(", {} failed", count(failed))
    });
    let (completed, window) = (counted(requests.completed, "request"), time(requests.window_ns));
    let is_counted = requests.prompt_tokens.is_some() || requests.output_tokens.is_some();
    let [prompt, output] =
        [requests.prompt_tokens, requests.output_tokens].map(|tokens| or_none(tokens, count));
    let rates = [(requests.tokens_per_s, "generated tokens/s"), (requests.requests_per_s, "requests/s")];
    let rates = rates.iter().filter_map(|(rate, what)| Some(format!("{} {what}", significant((*rate)?))));
    let lines = [
        Some(format!("{completed} completed{failed}, in {window}")),
        is_counted
            .then(|| format!("{prompt} prompt tokens, {output} generated tokens, as the server counts them")),
        joined_any(rates, ", "),
        gauges(requests),
    ];
    let failures = requests.failures.iter();
    let failures =
        failures.map(|failure| format!("{} failed: {}", counted(failure.count, "request"), failure.why));
    lines.into_iter().flatten().chain(failures).collect()
}

/// States the use of the KV cache and the queue, as the server exported them.
fn gauges(requests: &RequestStats) -> Option<String> {
    let gauges = ServerGauges::of(requests);
    let cache =
        gauges.cache_usage.map(|usage| format!("{:.1} % of the KV cache in use at most", 100.0 * usage.max));
    let queues = [(gauges.running, "run"), (gauges.waiting, "wait")];
    let queues = queues.into_iter().filter_map(|(gauge, what)| {
        let GaugeStats { mean, max, .. } = gauge?;
        Some(format!("{mean:.1} requests {what} on average, {max:.0} at most"))
    });
    joined_any(cache.into_iter().chain(queues), "; ").map(|parts| format!("as the server exports: {parts}"))
}

/// Compares the median step of each stage of an engine with the latency that it is a part of.
fn against_steps(analysis: &Analysis) -> Vec<String> {
    let sentence = |stage: &Stage| {
        let (requests, scheduled) = (analysis.requests.as_ref()?, stage.requests?);
        let steps = stage.steps.as_ref().filter(|steps| steps.count > 0)?;
        let step = format!("a {} step takes {} at the median", stage.name, time(steps.p50_ns));
        if stage.kind != StageKind::Decode {
            return Some(format!("{step}, the time to first token {}", time(requests.ttft_ns?.p50)));
        }
        let batch = maybe(scheduled.generation, |generation| {
            format!("; {:.1} requests in a step on average", generation as f64 / steps.count as f64)
        });
        Some(format!("{step}, the time between tokens {}{batch}", time(requests.itl_ns?.p50)))
    };
    analysis.stages.iter().filter_map(sentence).collect()
}

/// States rates over the whole span, the start of the engine, and waits for prompts of others.
fn step_sentences(analysis: &Analysis, serving: &Serving) -> Vec<String> {
    let why = |about: &str, what: &str| {
        let why = analysis.reason(&About::Other(about.to_owned()));
        why.map(|why| format!("{what}: {why}"))
    };
    let stalls = serving.stalls;
    let stalls = (stalls.steps > 0).then(|| {
        format!(
            "requests that generate waited {} for {} of others, and up to {} for their next step",
            time(stalls.total_ns),
            counted(stalls.steps, "prefill step"),
            time(stalls.longest_ns)
        )
    });
    let unjoined =
        serving.latency.as_ref().filter(|latency| latency.joined < latency.requests).map(|latency| {
            format!(
                "{} of {} requests are joined with recorded steps",
                count(latency.joined),
                count(latency.requests)
            )
        });
    let lines = [
        Some(rates(serving)),
        why("serving.generation_tokens_per_s", "tokens per second of all steps are not known"),
        serving.startup.as_ref().map(startup),
        stalls,
        unjoined,
        why("serving.latency", "the latency of requests is not split"),
        why("serving.latency.token_time", "the time per token is not split"),
    ];
    lines.into_iter().flatten().collect()
}

/// States the work before the first step.
fn startup(startup: &Startup) -> String {
    let parts = [
        (startup.copy_ns, format!("{} copied to the GPU", size(startup.copied_bytes))),
        (startup.loading_ns, "code loaded".to_owned()),
        (startup.capture_ns, format!("{} captured", counted(startup.captured_graphs, "graph"))),
        (startup.kernel_ns, counted(startup.kernel_count, "kernel")),
    ];
    let parts = parts.iter().filter(|(ns, _)| *ns > 0).map(|(ns, what)| format!("{what} in {}", time(*ns)));
    format!(
        "the engine started for {} before its first step, which no stage counts: {}",
        time(startup.elapsed_ns),
        joined(parts, ", ")
    )
}

/// States the tokens per second of the whole span.
fn rates(serving: &Serving) -> String {
    let rates = [(serving.generation_tokens_per_s, "generated"), (serving.context_tokens_per_s, "prompt")];
    let rates = rates.iter().filter_map(|(rate, what)| {
        let rate = (*rate).filter(|rate| *rate > 0.0)?;
        Some(format!("{} {what} tokens/s", count(rate.round() as u64)))
    });
    let copies = maybe(serving.replicas.filter(|copies| *copies > 1), |copies| {
        format!(", {copies} copies of the model together")
    });
    let rates = maybe(joined_any(rates, ", "), |rates| {
        format!(": {rates}{copies}; the first token of a request counts as prompt work")
    });
    format!("from the first step to the end of the last, {}{rates}", time(serving.span_ns))
}

/// Tabulates the parts of a latency, of which the first is the whole.
fn latency_parts(parts: &[LatencyPart]) -> Table {
    let (name, whole) = parts.first().map_or(("part", 0), |part| (part.part.as_str(), part.mean_ns));
    Table::of(parts.get(1..).unwrap_or_default())
        .text(name, |part| &part.part)
        .ms("mean", |part| part.mean_ns)
        .number("%", |part| percent(part.mean_ns, whole))
        .ms("p50", |part| part.p50_ns)
        .ms("p90", |part| part.p90_ns)
        .ms("slowest 1 %", |part| part.slowest_ns)
        .build()
}

/// Most functions of a stack.
const DEEPEST: usize = 12;

impl Document<'_> {
    /// Describes the moment that the recording was kept for.
    pub(super) fn incident(&self) -> Section {
        Section::new("incident", "Incident").with(self.analysis.incident.iter().flat_map(incident_blocks))
    }

    /// Tabulates the slow steps with their causes.
    pub(super) fn spikes(&self) -> Section {
        let stages = self.analysis.stages.iter();
        let rows: Vec<(&str, &Spike)> =
            stages.flat_map(|stage| stage.spikes.iter().map(|spike| (&stage.name[..], spike))).collect();
        let table = Table::of(&rows)
            .text("stage", |row| row.0)
            .number("step", |row| row.1.step.to_string())
            .number("at", |row| row.1.start_ns.map(time))
            .number("time", |row| time(row.1.time_ns))
            .number("expected", |row| time(row.1.expected_ns))
            .text("cause", |row| row.1.cause.as_str())
            .number("seen for", |row| (row.1.evidence_ns > 0).then(|| time(row.1.evidence_ns)))
            .text("in", |row| row.1.what.as_deref().or(row.1.missing.as_deref()).unwrap_or_default())
            .build();
        self.tabled("spikes", table, self.most(32)).inner()
    }
}

fn incident_blocks(incident: &Incident) -> Vec<Block> {
    let lines = [
        Block::Line(format!("{}: {} ({})", incident.at, incident.what, incident.trigger)),
        Block::Line(format!("Cause: {}.", incident.spoken_cause())),
        Block::Note(format!("Kept within {} ms of the trigger.", incident.dump_ms)),
        Block::List(incident.processes.iter().map(process).collect()),
    ];
    lines.into_iter().chain(Block::list(incident.notes.iter().cloned())).collect()
}

fn process(process: &IncidentProcess) -> Item {
    let threads = process.threads.iter().flat_map(|thread| {
        let waits = maybe(thread.waits_in.as_deref(), |place| format!(" in {place}"));
        let first = format!("thread {} {}: {}{waits}", thread.tid, thread.name, thread.state);
        let stack = thread.stack.iter().take(DEEPEST).map(|function| format!("  {function}"));
        [first].into_iter().chain(stack).collect::<Vec<String>>()
    });
    let memory = maybe(process.resident_bytes, |bytes| format!("{} of memory, ", size(bytes)));
    let count = counted(process.threads.len() as u64, "thread");
    Item {
        text: format!("process {} ({}): {memory}{count}", process.pid, process.name),
        lines: threads.collect(),
        ..Item::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{JoinedLatency, Percentiles, PhaseCounts, Reason, ServingSlice, Stalls, Steps};

    fn part(name: &str, mean_ns: i64) -> LatencyPart {
        LatencyPart { part: name.into(), mean_ns, p50_ns: Some(mean_ns), ..LatencyPart::default() }
    }

    fn said(analysis: &Analysis) -> Vec<String> {
        step_sentences(analysis, analysis.serving.as_ref().unwrap())
    }

    #[test]
    fn rates_stalls_and_the_parts_of_latency_are_stated() {
        let mut analysis = Analysis::default();
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
            said(&analysis),
            [
                "from the first step to the end of the last, 380 ms: 5,305 generated tokens/s; the first token of a request counts \
                 as prompt work",
                "requests that generate waited 20.0 ms for 1 prefill step of others, and up to 26.0 ms for their next step",
                "2 of 3 requests are joined with recorded steps",
            ]
        );
        let about = About::Other("serving.generation_tokens_per_s".into());
        analysis.reasons.push(Reason::new(about, "two processes ran steps"));
        assert_eq!(
            said(&analysis)[1],
            "tokens per second of all steps are not known: two processes ran steps"
        );
        let about = About::Other("serving.latency.token_time".into());
        analysis.reasons.push(Reason::new(about, "steps overlap"));
        assert_eq!(
            said(&analysis).last().map(String::as_str),
            Some("the time per token is not split: steps overlap")
        );
        let serving = analysis.serving.as_ref().unwrap();
        let latency = serving.latency.as_ref().unwrap();
        let (ttft, token_time) = (latency_parts(&latency.ttft), latency_parts(&latency.token_time));
        assert_eq!(ttft.rows, [["after its step", "10.000", "25.0", "10.000", "–", "–"]]);
        assert!(token_time.is_empty());
    }

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
