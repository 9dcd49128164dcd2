//! Provenance: inputs, environment, phases, profiler overhead, losses, why a part is missing, and the figures of a Stage 1 runner.

use super::table::Table;
use super::{Block, Document, Form, Section, explanation, gpu_work, headline, joined, maybe};
use crate::PhaseLine;
use roofgap_analyze::{
    About, Agreement, Analysis, DeviceInfo, EngineInfo, LossInfo, LossMessage, Overhead, SourceInfo, Stage,
    StageOrigin, WorkloadInfo,
};
use roofgap_base::numbers::{count, ms, percent, share, si, significant, time, times};
use roofgap_base::text::without_controls;
use roofgap_trace::account::{Stage1Figures, Stage1Time};
use std::collections::BTreeMap;

/// Measured time over unprofiled time above which a tool distorts its own measurement.
const HIGH_OVERHEAD: f64 = 1.25;

/// Most texts of the recording tool that are quoted for a loss.
const MESSAGES: usize = 4;

/// How the numbers of a report were obtained.
const METHOD: &str = include_str!("method.md");

impl Document<'_> {
    /// Lists the sections on the origin of the numbers. On the page all but the first are parts of one section.
    pub(super) fn provenance(&self) -> Vec<Section> {
        if self.is_text() {
            return vec![self.stage1(), self.losses()];
        }
        let markdown = |text: &str| (!self.is_page()).then(|| Block::Markdown(text.to_owned()));
        let repeat = self.context.repeat.clone().map(Block::Code);
        let inner = [
            Section::new("inputs", "Inputs").with(self.inputs()),
            self.environment(),
            self.aggregates(),
            Section::new("overhead", "Profiler overhead").with(self.overhead()),
            Section::new("phases", "Phases").with(self.phases()),
            self.losses(),
            Section::new("reasons", "Missing or estimated values").with(self.reasons()),
            Section::new("method", "How the numbers were obtained").with(markdown(METHOD)),
            Section::new("repeat", "Reproduce").with(repeat),
        ];
        let first = Section::new("provenance", "Provenance").with(self.on_page(Block::Drawing));
        [self.stage1(), first].into_iter().chain(inner.map(Section::inner)).collect()
    }

    /// Returns a table, or says why it has no rows.
    fn or_missing(&self, table: Table, why: &str) -> Block {
        if table.is_empty() { Block::Missing(why.to_owned()) } else { Block::Table(table) }
    }

    fn inputs(&self) -> Option<Block> {
        let table = Table::of(&self.analysis.sources)
            .text("file", |s| &s.path)
            .text("format", |s| &s.format)
            .text("tool version", |s| s.tool_version.as_ref())
            .text("schema version", |s| s.schema_version.as_ref())
            .build();
        self.on_page(self.or_missing(table, "None: the numbers were reported by the program."))
    }

    /// Tabulates the environment and the inputs.
    fn environment(&self) -> Section {
        let mut rows = self.context.environment.clone();
        rows.extend(facts(self.analysis));
        let table = Table::of(&rows).text("name", |row| &row.0).text("value", |row| &row.1).build();
        let why = "Unknown: nothing was recorded.";
        Section::new("environment", "Environment").with([self.or_missing(table, why)])
    }

    /// Tabulates the means over the runs of the program.
    pub(super) fn aggregates(&self) -> Section {
        Section::new("aggregates", "Aggregates").with([Block::Table(aggregates(self.analysis))])
    }

    fn overhead(&self) -> Vec<Block> {
        let analysis = self.analysis;
        let table = Table::of(&analysis.overhead)
            .text("tool", |o| &o.tool)
            .text("stage", |o| &o.stage)
            .number("profiled / unprofiled", |o| format!("{:.2}", o.ratio))
            .text("95 % interval", |o| o.interval.map(|(low, high)| format!("{low:.3} to {high:.3}")))
            .number("over all steps", |o| over_all(analysis, o).map(|ratio| format!("{ratio:.3}")))
            .text("measured by", |o| match o.pairs {
                Some(pairs) => {
                    let run = if o.of_runs.is_some() { ", and a run without it" } else { "" };
                    format!("times with it against times without it, in {pairs} pairs of one process{run}")
                }
                None if o.stated => "the stated time without it".to_owned(),
                None => "a run with and a run without it".to_owned(),
            })
            .build();
        let table = self.or_missing(table, &missing(analysis, &About::Overhead));
        let high = analysis.overhead.iter().filter(|overhead| overhead.sure_ratio() > HIGH_OVERHEAD).map(
            |overhead| {
                let Overhead { tool, stage, ratio, .. } = overhead;
                let advice = explanation("distorted");
                Block::Note(format!("With {tool} {stage} takes {ratio:.2} times as long. {advice}"))
            },
        );
        let agreement = analysis.agreement.as_ref().map(|agreement| Block::Note(agreed(agreement)));
        [table].into_iter().chain(agreement).chain(high).collect()
    }

    /// Tabulates the phases that have ended; the phase that writes the report is still running.
    fn phases(&self) -> Option<Block> {
        let phases = &self.context.phases;
        let ended: Vec<&PhaseLine> = phases.iter().filter(|p| p.status != "running").collect();
        let table = Table::of(&ended)
            .text("phase", |p| &p.name)
            .text("status", |p| &p.status)
            .number("seconds", |p| p.seconds)
            .text("why", |p| p.why.as_deref().unwrap_or_default())
            .build();
        let shown = self.is_page() || !phases.is_empty();
        shown.then(|| self.or_missing(table, "None: the capture was made elsewhere."))
    }

    /// Says which phases were skipped or failed, and why.
    pub(super) fn incomplete_phases(&self) -> impl Iterator<Item = String> {
        let phases = self.context.phases.iter().filter(|p| p.status == "skipped" || p.status == "failed");
        phases.map(|p| {
            let why = p.why.as_deref().unwrap_or("no reason given");
            format!("Not measured: {} {}: {why}.", p.name, p.status)
        })
    }

    /// Lists what was lost.
    fn losses(&self) -> Section {
        let table = Table::of(&self.analysis.losses)
            .text("loss", |l| &l.id)
            .text("severity", |l| &l.severity)
            .number("rows", |l| l.count)
            .text("meaning", |l| joined([l.meaning.clone()].into_iter().chain(messages(l)), "; "))
            .build();
        let known = !self.is_text() || !table.is_empty();
        let table = known.then(|| self.or_missing(table, "None: every row of the input was read and used."));
        Section::new("losses", "Losses").with(table)
    }

    fn reasons(&self) -> Option<Block> {
        let table =
            Table::of(&self.analysis.reasons).text("value", |r| &r.about).text("why", |r| &r.why).build();
        self.on_page(self.or_missing(table, "None."))
    }
}

/// States how far two recordings of the program agree.
fn agreed(agreement: &Agreement) -> String {
    let Agreement { profilers: [used, other], stage, kernels, kernel_ns, step_ns } = agreement;
    let apart = |[one, two]: [f64; 2]| significant(100.0 * (two / one - 1.0).abs());
    let pair = |values: [i64; 2]| {
        let [one, two] = values.map(time);
        format!("{one} and {two} ({} % apart)", apart(values.map(|ns| ns as f64)))
    };
    let [one, two] = kernels.map(count);
    let step = maybe(step_ns.zip(stage.as_ref()), |(step, stage)| {
        format!(", and {} for a step of {stage}", pair(step))
    });
    format!(
        "Recorded twice: the times are those of {used}, which slowed the program less than {other}. The two have {one} and {two} kernels \
         ({} % apart), {} of kernel time{step}.",
        apart(kernels.map(|n| n as f64)),
        pair(*kernel_ns)
    )
}

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
        About::Overhead if is_unprofiled(analysis) => explanation("no-profiler").to_owned(),
        About::Overhead => format!("Profiler overhead unknown: {why}."),
        About::Stages if !analysis.stages.is_empty() => format!("The whole trace is one stage: {why}."),
        _ => format!("No {part}: {why}."),
    }
}

/// Tells whether the times are the program's own and nothing was profiled.
pub fn is_unprofiled(analysis: &Analysis) -> bool {
    let is_own_time = |stage: &Stage| stage.from == StageOrigin::Workload;
    analysis.sources.is_empty() && !analysis.stages.is_empty() && analysis.stages.iter().all(is_own_time)
}

/// Names the format of an input, with the version of the tool that recorded it.
pub fn tool(source: &SourceInfo) -> String {
    format!("{}{}", source.format, maybe(source.tool_version.as_ref(), |version| format!(" {version}")))
}

/// Names the GPUs, several of a kind with their number.
pub fn gpus(analysis: &Analysis) -> Vec<String> {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for device in &analysis.devices {
        *kinds.entry(device.name.as_deref().unwrap_or("unknown GPU")).or_default() += 1;
    }
    let kind = |(name, n): (&str, u64)| if n == 1 { name.to_owned() } else { format!("{n} x {name}") };
    kinds.into_iter().map(kind).collect()
}

/// Lists the facts of a device that are known: name, compute capability, SMs, memory, bandwidth.
pub fn device(device: &DeviceInfo) -> String {
    let facts = [
        Some(device.name.clone().unwrap_or_else(|| "unknown GPU".into())),
        device.compute_capability.as_ref().map(|cc| format!("compute capability {cc}")),
        device.sms.map(|sms| format!("{sms} SMs")),
        device.memory_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1u32 << 30))),
        device.bandwidth_bytes_per_s.map(|rate| format!("{}B/s", si(rate as f64))),
    ];
    joined(facts.into_iter().flatten(), ", ")
}

/// Lists the facts of the model that are known: name, parameters, dtype, weights.
pub fn model(workload: &WorkloadInfo) -> String {
    let facts = [
        Some(workload.model.clone().unwrap_or_else(|| "unknown model".into())),
        workload.parameters.map(|all| {
            let active = workload.active_parameters.filter(|active| *active < all);
            let active =
                maybe(active, |active| format!(" ({} used for a token)", si(active as f64).trim_end()));
            format!("{} parameters{active}", si(all as f64).trim_end())
        }),
        workload.weight_bytes.map(|bytes| format!("{}B of weights", si(bytes as f64))),
        workload.dtype.clone(),
        workload.weights.as_ref().map(|w| format!("{w} weights")),
    ];
    joined(facts.into_iter().flatten(), ", ")
}

/// Lists the facts of a serving engine: name, version, parallelism above one, and the evidence for it and its phases.
pub fn engine(engine: &EngineInfo) -> String {
    let version = maybe(engine.version.as_ref(), |version| format!(" {version}"));
    let mut facts = vec![format!("{}{version}", engine.name)];
    let split = engine.parallelism.iter().flatten().filter(|(_, parts)| **parts > 1);
    facts.extend(split.map(|(kind, parts)| format!("{kind} parallel {parts}")));
    facts.push(match engine.told_by.as_str() {
        "account" => "by the account of the program".to_owned(),
        told_by => format!("by the {told_by} of its steps"),
    });
    facts.join(", ") + &maybe(engine.phases_told_by.as_ref(), |why| format!("; {why}"))
}

/// Lists the facts of inputs, devices, rank, model and engine as name and value.
pub fn facts(analysis: &Analysis) -> Vec<(String, String)> {
    let input = |source: &SourceInfo| {
        let version = maybe(source.tool_version.as_ref(), |version| format!(", version {version}"));
        (source.path.clone(), format!("{}{version}", source.format))
    };
    let mut rows: Vec<(String, String)> = analysis.sources.iter().map(input).collect();
    rows.extend(analysis.devices.iter().map(|gpu| (format!("GPU {}", gpu.id), device(gpu))));
    let workload = analysis.workload.as_ref();
    let known = |value: fn(&WorkloadInfo) -> Option<u64>| workload.and_then(value).map(count);
    let facts = [
        ("rank", gpu_work::ranks_line(analysis)),
        ("model", workload.map(model)),
        ("revision", workload.and_then(|workload| workload.revision.clone())),
        ("active parameters", known(|own| own.active_parameters)),
        ("prompt tokens", known(|workload| workload.prompt_tokens)),
        ("vision tokens", known(|workload| workload.vision_tokens)),
        ("generated tokens", known(|workload| workload.generated_tokens)),
        ("batch", known(|workload| workload.batch)),
        ("device", workload.and_then(|workload| workload.device.clone())),
        ("engine", analysis.engine.as_ref().map(engine)),
    ];
    rows.extend(facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    rows
}

/// Tabulates means and standard deviations of one instance of every stage, without warm-up; the totals of a capture without stages.
fn aggregates(analysis: &Analysis) -> Table {
    let (totals, stages) = (&analysis.totals, &analysis.stages);
    let measured = totals.kernel_count > 0 || totals.busy_ns.is_some();
    let of_stage = |stage: &Stage| {
        // The spread under the profiler is not that of the mean without it.
        let recorded = stage.warm().std_ns.filter(|_| headline::slowdown(analysis, stage).is_none());
        let std = stage.baseline.map_or(recorded, |baseline| baseline.std_ns);
        (format!("{}, ms", stage.name), Some(ms(headline::mean_ns(analysis, stage))), std.map(ms))
    };
    let each = |value: fn(&Stage) -> Option<i64>, total: Option<i64>| {
        let warm = stages.iter().map(Stage::warm);
        let means = warm.map(|stage| Some(value(stage)? / stage.instances.max(1).cast_signed()));
        if stages.is_empty() { total } else { means.sum() }
    };
    let total = totals.kernel_count.cast_signed();
    let launches = each(|stage| Some(stage.kernel_count.cast_signed()), Some(total)).filter(|_| measured);
    let kernels = each(|stage| stage.kernel_ns, measured.then_some(totals.kernel_ns));
    let rate = headline::main_stage(analysis).and_then(|stage| headline::tokens_per_s(analysis, stage));
    let sums = [
        ("tokens/s", rate.map(significant)),
        ("kernel launches", launches.map(|n| count(n.unsigned_abs()))),
        ("kernel time, ms", kernels.map(ms)),
        ("GPU busy, ms", each(|stage| stage.busy_ns, totals.busy_ns).map(ms)),
        ("copies, ms", each(|stage| stage.memcpy_ns, totals.memcpy_ns).map(ms)),
    ];
    let sums = sums
        .into_iter()
        .filter(|(name, value)| value.is_some() || *name != "tokens/s")
        .map(|(name, value)| (name.to_owned(), value, None));
    let rows: Vec<(String, Option<String>, Option<String>)> =
        stages.iter().map(of_stage).chain(sums).collect();
    let table = Table::of(&rows).text("one instance of every stage", |row| &row.0);
    table.number("mean", |row| row.1.as_ref()).number("std", |row| row.2.as_ref()).build()
}

/// Returns the overhead on all steps of a stage of which a part was recorded.
fn over_all(analysis: &Analysis, overhead: &Overhead) -> Option<f64> {
    let stage = analysis.stage(&overhead.stage)?;
    let coverage = stage.coverage.as_ref().filter(|_| overhead.pairs.is_some())?;
    Some(overhead.of_runs.unwrap_or(1.0 + (overhead.ratio - 1.0) * coverage.share()))
}

/// Quotes the first texts that the recording tool gave for a loss.
fn messages(loss: &LossInfo) -> Vec<String> {
    let first = &loss.messages[..loss.messages.len().min(MESSAGES)];
    let quoted = |message: &LossMessage| {
        let times =
            maybe((message.count > 1).then_some(message.count), |count| format!(", {}", times(count)));
        format!("“{}”{times}", without_controls(&message.text))
    };
    // Not every text is kept, so the rest is counted by the rows.
    let more = loss.count.saturating_sub(first.iter().map(|message| message.count).sum());
    let more = (more > 0 && !first.is_empty()).then(|| format!("and {} more", count(more)));
    first.iter().map(quoted).chain(more).collect()
}

impl Document<'_> {
    /// Tabulates the figures of a Stage 1 runner, if one ran the model; a list has its operators alone.
    pub fn stage1(&self) -> Section {
        let section = Section::new("stage1", "Stage 1");
        let Some(figures) = &self.analysis.stage1 else {
            return section;
        };
        let operators = stage1_operators(figures, self.most(30));
        let source = format!(
            "Mean over the runs of the Stage 1 runner, from {}, beside one instance of each stage in the timeline.",
            figures.path
        );
        let times = stage1_times(self.analysis, figures).measured();
        let parts = [Block::Note(source), Block::Table(times), Block::Table(stage1_rates(figures))];
        let parts = parts.into_iter().filter(|_| self.form != Form::List);
        section.with(parts).with(self.not_in_text(Block::table(operators)))
    }
}

/// Tabulates the first operators of a Stage 1 runner.
pub fn stage1_operators(figures: &Stage1Figures, most: usize) -> Table {
    Table::of(&figures.operators[..figures.operators.len().min(most)])
        .text("Stage 1 operator", |o| &o.name)
        .number("calls", |o| o.calls)
        .ms("CPU self + total", |o| o.cpu_ns)
        .ms("GPU self + total", |o| o.gpu_ns)
        .build()
}

/// Tabulates Stage 1 times beside the wall, kernel and busy time of one instance of each stage or part of a stage in the timeline.
fn stage1_times(analysis: &Analysis, figures: &Stage1Figures) -> Table {
    let recorded: Vec<&Stage> =
        analysis.stages.iter().filter(|stage| stage.from == StageOrigin::Timeline).collect();
    let profiled = |time: &Stage1Time| {
        let stage = recorded.iter().find(|stage| stage.name == time.name);
        let mut notes = recorded.iter().flat_map(|stage| &stage.notes);
        let times = match stage {
            Some(stage) => (Some(stage.wall_ns), stage.kernel_ns, stage.busy_ns, stage.instances),
            None => {
                let note = notes.find(|note| note.name == time.name);
                note.map(|note| (Some(note.wall_ns), note.kernel_ns, None, note.instances))
                    .unwrap_or_default()
            }
        };
        let kernel = stage.and_then(|stage| Some((stage.kernels.first()?, stage.kernel_ns.unwrap_or(0))));
        let top = kernel.map(|(top, all)| format!("{} ({} %)", top.short_name, percent(top.total_ns, all)));
        (times, top)
    };
    let rows: Vec<_> = figures.times.iter().map(|time| (time, profiled(time))).collect();
    let each = |ns: Option<i64>, instances: u64| ns.map(|ns| ns / instances.max(1).cast_signed());
    Table::of(&rows)
        .text("stage", |(time, _)| &time.name)
        .ms("Stage 1 mean", |(time, _)| time.mean_ns)
        .ms("std", |(time, _)| time.std_ns)
        .ms("profiled wall", |(_, (stage, _))| each(stage.0, stage.3))
        .ms("kernel", |(_, (stage, _))| each(stage.1, stage.3))
        .ms("GPU busy", |(_, (stage, _))| each(stage.2, stage.3))
        .text("top kernel", |(_, (_, top))| top.as_ref())
        .build()
}

/// Tabulates tokens, throughput and MFU as the runner computed them.
fn stage1_rates(figures: &Stage1Figures) -> Table {
    let mean_std = [("generated tokens", figures.tokens), ("tokens/s", figures.tokens_per_s)];
    let mean_std = mean_std.into_iter().filter_map(|(name, value)| {
        let value = value?;
        Some((name.to_owned(), format!("{:.2}", value.mean), Some(format!("{:.2}", value.std))))
    });
    let mfu = figures.mfu.iter().map(|mfu| (format!("MFU of {}, %", mfu.name), share(mfu.pct), None));
    let peak = figures.peak_tflops.filter(|_| !figures.mfu.is_empty());
    let peak = peak.map(|peak| ("peak assumed for MFU, TFLOP/s".to_owned(), format!("{peak:.1}"), None));
    let rows: Vec<(String, String, Option<String>)> = mean_std.chain(mfu).chain(peak).collect();
    let table = Table::of(&rows).text("Stage 1 figure", |row| &row.0);
    table.number("mean", |row| &row.1).number("std", |row| row.2.as_ref()).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{Profiler, Totals};
    use roofgap_base::numbers::NONE;

    #[test]
    fn times_of_the_program_have_no_overhead() {
        let mut analysis = Analysis::default();
        let unknown = missing(&analysis, &About::Overhead);
        assert!(unknown.starts_with("Profiler overhead unknown: "), "{unknown}");
        analysis.stages = vec![Stage::default()];
        analysis.stages[0].from = StageOrigin::Workload;
        assert_eq!(missing(&analysis, &About::Overhead), explanation("no-profiler"));
        analysis.sources = vec![SourceInfo::default()];
        assert_eq!(missing(&analysis, &About::Overhead), unknown);
    }

    #[test]
    fn two_recordings_are_held_against_one_another() {
        let of = |kernels, step_ns| {
            let mut stage = Stage::default();
            stage.name = "decode".to_owned();
            stage.steady = serde_json::from_value(serde_json::json!({
                "unit": "step", "count": 8, "time_ns": step_ns, "median_ns": step_ns, "spread_ns": 0
            }))
            .ok();
            let mut analysis = Analysis::default();
            analysis.stages = vec![stage];
            (analysis.totals.kernel_count, analysis.totals.kernel_ns) = (kernels, 2_000_000);
            analysis
        };
        let (nsys, native) = (of(1_000, 5_000_000), of(990, 4_000_000));
        let agreement = Agreement::of([(Profiler::Nsys, &nsys), (Profiler::Native, &native)]);
        assert_eq!(
            agreed(&agreement),
            "Recorded twice: the times are those of native, which slowed the program less than nsys. The two have 990 and 1,000 kernels \
             (1.01 % apart), 2.00 ms and 2.00 ms (0.00 % apart) of kernel time, and 4.00 ms and 5.00 ms (25.0 % apart) for a step of decode."
        );
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

    /// Twice as much in the whole capture, of which a half is warm-up.
    #[test]
    fn aggregates_are_of_the_stages_and_leave_the_warm_up_out() {
        let mut analysis = Analysis::default();
        analysis.totals = Totals { kernel_count: 80, kernel_ns: 8_000_000, ..Totals::default() };
        let mut stage = Stage::default();
        (stage.name, stage.instances, stage.wall_ns) = ("decode".to_owned(), 2, 20_000_000);
        (stage.kernel_count, stage.kernel_ns, stage.std_ns) = (40, Some(4_000_000), Some(1_000_000));
        analysis.stages = vec![stage];
        let rows = aggregates(&analysis).rows;
        assert_eq!(rows[0], ["decode, ms", "10.000", "1.000"]);
        assert_eq!(rows[1][1], "20");
        assert_eq!(rows[2][1], "2.000");
        analysis.stages[0].set_baseline(&[6_000_000, 8_000_000]);
        assert_eq!(aggregates(&analysis).rows[0], ["decode, ms", "7.000", "1.414"]);
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
    fn the_first_texts_are_quoted_and_all_others_counted() {
        let message = |(text, count): (&str, u64)| LossMessage { text: text.to_owned(), count };
        let kept = [("e", 7), ("a", 1), ("b", 1), ("c", 1), ("d", 1)];
        let loss = LossInfo { count: 100, messages: kept.map(message).to_vec(), ..LossInfo::default() };
        let texts = messages(&loss);
        assert_eq!(texts, ["“e”, 7 times", "“a”", "“b”", "“c”", "and 90 more"]);
    }
}
