//! Provenance: inputs, environment, phases, profiler overhead, losses, and why a part is missing.

use super::numbers::{NONE, count, ms, or_none, percent, si, times};
use super::table::{Table, plain};
use super::{job, roof};
use crate::bundle::{Bundle, PhaseLine};
use roofgap_analyze::WorkloadInfo;
use roofgap_analyze::{
    About, Analysis, DeviceInfo, EngineInfo, LossInfo, LossMessage, Overhead, Reason, SourceInfo, Stage,
    StageOrigin,
};

/// Measured time over unprofiled time above which a tool distorts its own measurement.
const HIGH_OVERHEAD: f64 = 1.25;

/// Most texts of the recording tool that are quoted for a loss.
const MESSAGES: usize = 4;

/// Sentence for an analysis without losses.
pub const NO_LOSSES: &str = "None: every row of the input was read and used.";

/// Sentence for an analysis of times without a profiler.
const NO_PROFILER: &str = "No profiler overhead: no profiler ran, and the times are the program's own.";

/// Sentence for kernels without a distance to the roof.
const NO_ROOF: &str = "The distance to the roof is not known: it needs counters of ncu, as a second input beside this capture or from \
     `roofgap profile` with ncu.";

/// Advice for a high profiler overhead.
pub const LOWER_OVERHEAD: &str = "Above 1.25 the profiler distorts its own measurement. `run.mode=light` or `profiling.timeline=native` costs less.";

/// Says that a part of the analysis is missing, and why.
pub fn missing(analysis: &Analysis, part: &About) -> String {
    let why = analysis.reason(part).unwrap_or(match part {
        About::Kernels => "the input has no kernels",
        About::Operators => "none were recorded",
        About::Counters => "none were measured",
        About::Overhead => "there is no run without a profiler to compare with",
        _ => "none were found",
    });
    let why = why.trim_end_matches('.');
    match part {
        About::Overhead if is_unprofiled(analysis) => NO_PROFILER.to_owned(),
        About::Overhead => format!("Profiler overhead unknown: {why}."),
        About::Stages if !analysis.stages.is_empty() => format!("The whole trace is one stage: {why}."),
        _ => format!("No {part}: {why}."),
    }
}

/// Tells whether the times are the program's own and nothing was profiled.
pub fn is_unprofiled(analysis: &Analysis) -> bool {
    let own = |stage: &Stage| stage.from == StageOrigin::Workload;
    analysis.sources.is_empty() && !analysis.stages.is_empty() && analysis.stages.iter().all(own)
}

/// Says where the distance to the roof comes from, if kernels have none and there are no counters.
pub fn no_roof(analysis: &Analysis) -> Option<&'static str> {
    // A selection of kernels without counters has no reason.
    let no_counters = analysis.counters.is_empty() && analysis.reason(&About::Counters).is_some();
    let unknown = no_counters && roof::note(analysis).is_none();
    (unknown && !analysis.kernels.is_empty()).then_some(NO_ROOF)
}

/// Lists the facts of a device that are known: name, compute capability, SMs, memory, bandwidth.
pub fn device(device: &DeviceInfo) -> String {
    let mut facts = vec![device.name.clone().unwrap_or_else(|| "unknown GPU".into())];
    let capability = device.compute_capability.as_ref();
    facts.extend(capability.map(|cc| format!("compute capability {cc}")));
    facts.extend(device.sms.map(|sms| format!("{sms} SMs")));
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1u32 << 30));
    facts.extend(device.memory_bytes.map(gib));
    let bandwidth = device.bandwidth_bytes_per_s;
    facts.extend(bandwidth.map(|b| format!("{}B/s", si(b as f64))));
    facts.join(", ")
}

/// Lists the facts of the model that are known: name, parameters, dtype, weights.
pub fn model(workload: &WorkloadInfo) -> String {
    let mut facts = vec![workload.model.clone().unwrap_or_else(|| "unknown model".into())];
    facts.extend(workload.parameters.map(|p| format!("{} parameters", si(p as f64).trim_end())));
    facts.extend(workload.dtype.clone());
    facts.extend(workload.weights.as_ref().map(|w| format!("{w} weights")));
    facts.join(", ")
}

/// Lists the facts of a serving engine: name, version, parallelism above one, and the evidence for it and its phases.
pub fn engine(engine: &EngineInfo) -> String {
    let version = engine.version.as_ref().map(|version| format!(" {version}"));
    let mut facts = vec![format!("{}{}", engine.name, version.unwrap_or_default())];
    let split = engine.parallelism.iter().flatten().filter(|(_, parts)| **parts > 1);
    facts.extend(split.map(|(kind, parts)| format!("{kind} parallel {parts}")));
    facts.push(match engine.told_by.as_str() {
        "account" => "by the account of the program".to_owned(),
        told_by => format!("by the {told_by} of its steps"),
    });
    let phases = engine.phases_told_by.as_ref();
    facts.join(", ") + &phases.map(|why| format!("; {why}")).unwrap_or_default()
}

/// Builds the table of environment, devices, model and inputs.
pub fn environment(bundle: Bundle<'_>) -> Table {
    let mut table = Table::new(&["name", "value"]);
    for (name, value) in &bundle.context.environment {
        table.row([name.clone(), value.clone()]);
    }
    for gpu in &bundle.analysis.devices {
        table.row([format!("GPU {}", gpu.id), device(gpu)]);
    }
    if let Some(rank) = job::ranks_line(bundle.analysis) {
        table.row(["rank".to_owned(), rank]);
    }
    if let Some(w) = &bundle.analysis.workload {
        let facts = [
            ("model", w.model.clone()),
            ("revision", w.revision.clone()),
            ("parameters", w.parameters.map(count)),
            ("active parameters", w.active_parameters.map(count)),
            ("dtype", w.dtype.clone()),
            ("weights", w.weights.clone()),
            ("prompt tokens", w.prompt_tokens.map(count)),
            ("vision tokens", w.vision_tokens.map(count)),
            ("generated tokens", w.generated_tokens.map(count)),
            ("batch", w.batch.map(count)),
            ("device", w.device.clone()),
        ];
        for (name, value) in facts {
            table.rows.extend(value.map(|value| vec![name.to_owned(), value]));
        }
    }
    if let Some(found) = &bundle.analysis.engine {
        table.row(["engine".to_owned(), engine(found)]);
    }
    for source in &bundle.analysis.sources {
        let version = source.tool_version.as_deref().unwrap_or("unknown version");
        table.row([format!("input ({})", source.format), format!("{} ({version})", source.path)]);
    }
    table
}

/// Builds the table of totals over the whole capture.
pub fn aggregates(analysis: &Analysis) -> Table {
    let totals = &analysis.totals;
    let measured = totals.kernel_count > 0 || totals.busy_ns.is_some();
    let mut table = Table::new(&["total", "value>"]);
    for (name, value) in [
        ("kernel launches", or_none(measured.then_some(totals.kernel_count), count)),
        ("kernel time, ms", or_none(measured.then_some(totals.kernel_ns), ms)),
        ("GPU busy, ms", or_none(totals.busy_ns, ms)),
        ("copies, ms", or_none(totals.memcpy_ns, ms)),
        ("memory sets, ms", or_none(totals.memset_ns, ms)),
        (
            "GPU operations without a launch record",
            or_none(measured.then_some(totals.unattributed_count), count),
        ),
    ] {
        table.row([name.to_owned(), value]);
    }
    table
}

/// Builds the table of inputs.
pub fn sources(analysis: &Analysis) -> Table {
    let version = |v: &Option<String>| or_none(v.clone(), |v| v);
    Table::of(&analysis.sources)
        .text("file", |s: &SourceInfo| s.path.clone())
        .text("format", |s| s.format.to_string())
        .text("tool version", move |s| version(&s.tool_version))
        .text("schema version", move |s| version(&s.schema_version))
        .build()
}

/// Builds the table of phases that have ended; the phase that writes the report is still running.
pub fn phases(bundle: Bundle<'_>) -> Table {
    let ended: Vec<&PhaseLine> = bundle.context.phases.iter().filter(|p| p.status != "running").collect();
    Table::of(&ended)
        .text("phase", |p| p.name.clone())
        .text("status", |p| p.status.clone())
        .number("seconds", |p| or_none(p.seconds, |s| format!("{s:.1}")))
        .text("why", |p| p.why.clone().unwrap_or_default())
        .build()
}

/// Says which phases were skipped or failed, and why.
pub fn incomplete_phases(bundle: Bundle<'_>) -> Vec<String> {
    let incomplete = |p: &&PhaseLine| p.status == "skipped" || p.status == "failed";
    let sentence = |p: &PhaseLine| {
        let why = p.why.as_deref().unwrap_or("no reason given");
        format!("Not measured: {} {}: {why}.", p.name, p.status)
    };
    bundle.context.phases.iter().filter(incomplete).map(sentence).collect()
}

/// Builds the table of profiler overhead.
pub fn overhead(analysis: &Analysis) -> Table {
    Table::of(&analysis.overhead)
        .text("tool", |o: &Overhead| o.tool.to_string())
        .text("stage", |o| o.stage.clone())
        .number("profiled / unprofiled", |o| format!("{:.2}", o.ratio))
        .text("95 % interval", |o| or_none(o.interval, |(low, high)| format!("{low:.3} to {high:.3}")))
        .text("measured by", |o| match o.pairs {
            Some(pairs) => format!(
                "time between tokens, armed against dormant, in {pairs} pairs of windows of one server"
            ),
            None => "a run with and a run without it".to_owned(),
        })
        .build()
}

/// Names the stages whose times a profiler distorts.
pub fn high_overhead(analysis: &Analysis) -> Vec<String> {
    let high = analysis.overhead.iter().filter(|o| o.sure_ratio() > HIGH_OVERHEAD);
    let sentence = |o: &Overhead| {
        format!(
            "Profiler overhead: with {} {} takes {:.2} times as long; its times are distorted.",
            o.tool, o.stage, o.ratio
        )
    };
    high.map(sentence).collect()
}

/// Builds the table of one instance of each stage: unprofiled wall time beside what the profiled run attributes to it.
pub fn unprofiled(analysis: &Analysis) -> Table {
    let timed = analysis.timeline_overhead().filter(|o| o.ratio > 0.0);
    let rows: Vec<(&Stage, f64)> =
        timed.filter_map(|o| Some((analysis.stages.iter().find(|s| s.name == o.stage)?, o.ratio))).collect();
    let each = |stage: &Stage, ns: i64| ns / (stage.instances.max(1) as i64);
    let wall = move |(stage, ratio): &(&Stage, f64)| (each(stage, stage.wall_ns) as f64 / ratio) as i64;
    Table::of(&rows)
        .text("stage", |(stage, _)| stage.name.clone())
        .ms("unprofiled wall", wall)
        .ms("profiled wall", move |(stage, _)| each(stage, stage.wall_ns))
        .ms("kernel", move |(stage, _)| stage.kernel_ns.map(|ns| each(stage, ns)))
        .ms("GPU busy", move |(stage, _)| stage.busy_ns.map(|ns| each(stage, ns)))
        .number("busy % of unprofiled", move |row| {
            let busy = row.0.busy_ns.map(|ns| each(row.0, row.0.each_device(ns)));
            busy.map_or(NONE.to_owned(), |busy| percent(busy, wall(row)))
        })
        .build()
}

/// Builds the table of losses.
pub fn losses(analysis: &Analysis) -> Table {
    Table::of(&analysis.losses)
        .text("loss", |l: &LossInfo| l.id.clone())
        .text("severity", |l| l.severity.to_string())
        .count("rows", |l| l.count)
        .text("meaning", |l| match messages(l).as_slice() {
            [] => l.meaning.clone(),
            texts => format!("{}: {}", l.meaning, texts.join("; ")),
        })
        .build()
}

/// Quotes the first texts that the recording tool gave for a loss.
pub fn messages(loss: &LossInfo) -> Vec<String> {
    let quoted = |message: &LossMessage| {
        let text = plain(&message.text);
        match message.count {
            1 => format!("“{text}”"),
            n => format!("“{text}”, {}", times(n)),
        }
    };
    let first = &loss.messages[..loss.messages.len().min(MESSAGES)];
    let shown: u64 = first.iter().map(|message| message.count).sum();
    let mut texts: Vec<String> = first.iter().map(quoted).collect();
    // Not every text is kept, so the rest is counted by the rows.
    let more = loss.count.saturating_sub(shown);
    if more > 0 && !texts.is_empty() {
        texts.push(format!("and {} more", count(more)));
    }
    texts
}

/// Builds the table of values that are missing or estimated, with the reasons.
pub fn reasons(analysis: &Analysis) -> Table {
    Table::of(&analysis.reasons)
        .text("value", |r: &Reason| r.about.to_string())
        .text("why", |r| r.why.clone())
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{CounterRow, Kernel};

    #[test]
    fn times_of_the_program_have_no_overhead() {
        let mut analysis = Analysis::default();
        let unknown = missing(&analysis, &About::Overhead);
        assert!(unknown.starts_with("Profiler overhead unknown: "), "{unknown}");
        analysis.stages = vec![Stage::default()];
        analysis.stages[0].from = StageOrigin::Workload;
        assert_eq!(missing(&analysis, &About::Overhead), NO_PROFILER);
        analysis.sources = vec![SourceInfo::default()];
        assert_eq!(missing(&analysis, &About::Overhead), unknown);
    }

    #[test]
    fn totals_that_were_not_recorded_are_dashes() {
        let values = |analysis: &Analysis| -> Vec<String> {
            let rows = aggregates(analysis).rows;
            rows.into_iter().filter_map(|row| row.into_iter().nth(1)).collect()
        };
        let mut analysis = Analysis::default();
        assert!(values(&analysis).iter().all(|value| value == NONE));
        analysis.totals.busy_ns = Some(0);
        assert_eq!(values(&analysis)[..3], ["0", "0.000", "0.000"]);
    }

    #[test]
    fn facts_of_a_model_are_words() {
        let workload = WorkloadInfo {
            model: Some("m".to_owned()),
            parameters: Some(43_788_608),
            ..WorkloadInfo::default()
        };
        assert_eq!(model(&workload), "m, 43.79 M parameters");
    }

    #[test]
    fn counters_are_asked_for_where_there_are_kernels() {
        let mut analysis = Analysis::default();
        assert_eq!(no_roof(&analysis), None);
        analysis.kernels = vec![Kernel::default()];
        assert_eq!(no_roof(&analysis), None);
        analysis.reasons = vec![Reason::new(About::Counters, "none")];
        assert_eq!(no_roof(&analysis), Some(NO_ROOF));
        analysis.counters = vec![CounterRow::default()];
        assert_eq!(no_roof(&analysis), None);
    }

    #[test]
    fn the_first_texts_are_quoted_and_all_others_counted() {
        let message = |(text, count): (&str, u64)| LossMessage { text: text.to_owned(), count };
        let kept = [("e", 7), ("a", 1), ("b", 1), ("c", 1), ("d", 1)];
        let loss = LossInfo { count: 100, messages: kept.map(message).to_vec(), ..LossInfo::default() };
        let texts = messages(&loss);
        assert_eq!(texts, ["“e”, 7 times", "“a”", "“b”", "“c”", "and 90 more"]);
    }
}
