//! The document for stakeholders: one page for readers who decide and do not know the field.
//!
//! It has the headline, three numbers to compare, the first thing to do, one run of each stage, the first operators and kernels, and what
//! was not measured.

use super::findings::{saving, stage_of};
use super::headline::Pace;
use super::table::Table;
use super::{
    Block, Document, Section, capitalized, explanation, headline, joined, joined_any, kernels, maybe,
    provenance, trial,
};
use roofgap_analyze::findings::explain;
use roofgap_analyze::{About, Analysis, Family, Kernel, Stage, StageKind};
use roofgap_base::numbers::{NONE, count, counted, percent, share, significant, time};
use roofgap_base::text::cut;
use std::collections::BTreeMap;

/// The most stages of the table.
const STAGES: usize = 5;

/// The most operators and kernels of the tables.
const TOP: usize = 5;

/// The most things listed that were not measured, and the most characters of each.
const MISSING: usize = 4;
const REASON: usize = 240;

/// Where engineers read on.
const ENGINEERS: &str = "For engineers: `report.md` has the evidence, `kernels.md` the names of the kernels, `operators.md` the top \
     operators.\n";

impl Document<'_> {
    /// Returns the title: the model, the engine or the capture without its folder, the GPU and the day.
    pub fn summary_title(&self) -> String {
        let analysis = self.analysis;
        let model = analysis.workload.as_ref().and_then(|workload| workload.model.as_deref());
        let engine = analysis.engine.as_ref().map(|engine| engine.name.clone());
        let what = model.map(str::to_owned).or(engine);
        let device = maybe(self.device(), |device| format!(" on {device}"));
        let fact = |name: &str| self.context.environment.iter().find(|(known, _)| known == name);
        let day = fact("started").and_then(|(_, moment)| moment.get(..10));
        let day = maybe(day, |day| format!(", {day}"));
        let file = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let files = || joined(self.context.title.split(", ").map(file), ", ");
        format!("{}{device}{day}", what.unwrap_or_else(files))
    }

    /// Lists the sections of the summary, in order.
    pub fn for_stakeholders(&self) -> Vec<Section> {
        self.worded(vec![
            self.conclusion(),
            self.numbers(),
            self.first_action(),
            self.stage_means(),
            self.aggregates(),
            self.top_operators(),
            self.top_kernels(),
            self.few_facts(),
            self.not_measured(),
        ])
    }

    /// Names the GPUs, or what ran the program instead of one.
    fn device(&self) -> Option<String> {
        let named = || self.analysis.workload.as_ref().and_then(|workload| workload.device.clone());
        joined_any(provenance::gpus(self.analysis), " and ").or_else(named)
    }

    /// States how fast the program is and what limits it.
    fn conclusion(&self) -> Section {
        let section = Section::new("summary", "");
        let analysis = self.analysis;
        if kernels::only_measured(analysis) && analysis.stages.is_empty() {
            return section.with([Block::line(explanation("only-measured"))]);
        }
        let Some(stage) = headline::main_stage(analysis) else {
            return section.with([Block::Line(provenance::missing(analysis, &About::Stages))]);
        };
        let scope = match (provenance::is_unprofiled(analysis), headline::slowdown(analysis, stage)) {
            (true, _) => Some("No profiler ran."),
            (false, Some(_)) => None,
            (false, None) => Some(explanation("profiled")),
        };
        let tried = self.context.trial.as_ref().and_then(trial::headline);
        let lines = headline::headline(analysis).into_iter().chain(scope.map(str::to_owned));
        let tried = tried.map(|line| format!("Tried: {line}"));
        section.with(lines.chain(tried).map(Block::Line))
    }

    /// Tabulates the three numbers that a manager compares.
    fn numbers(&self) -> Section {
        let analysis = self.analysis;
        let section = Section::new("numbers", "Three numbers to compare");
        let Some(stage) = headline::main_stage(analysis) else {
            return section;
        };
        let speed = match headline::tokens_per_s(analysis, stage) {
            Some(rate) => format!("{} tokens/s", significant(rate)),
            None => headline::pace(analysis, stage),
        };
        let (distance, meaning) = distance(analysis, stage);
        let (level, facts) = headline::confidence(analysis).unwrap_or_default();
        let machine = if analysis.devices.is_empty() { "machine" } else { "GPU" };
        let unprofiled = headline::is_unprofiled(analysis, stage);
        let under = if unprofiled { "without a profiler" } else { "under the profiler" };
        let compared = format!("{under}; compare it with another run on the same {machine}");
        let rows = [
            ("speed", &speed[..], &compared[..]),
            ("distance to the limit", &distance, &meaning),
            ("confidence", level, "how far the numbers can be trusted"),
        ];
        let table = Table::of(&rows).text("number", |row| row.0).text("value", |row| row.1);
        let table = table.text("meaning", |row| row.2).build();
        let facts = (!facts.is_empty()).then(|| Block::Note(format!("Confidence is {level}: {facts}.")));
        section.with([Block::Table(table)]).with(facts)
    }

    /// States what to do first, the most that it can gain, and the command that measures it.
    fn first_action(&self) -> Section {
        let analysis = self.analysis;
        let section = Section::new("findings", "What to do first");
        // What the profiler costs is not about the program.
        let Some(first) = analysis.findings.iter().find(|finding| finding.id != "profiler-overhead") else {
            let none = "Nothing stands out: no rule found time that could be saved.";
            return section.with([Block::line(none)]);
        };
        let place = maybe(first.stage.as_deref(), |stage| match stage_of(analysis, first) {
            Some(stage) if stage.kind == StageKind::Whole => String::new(),
            _ => format!(" in {stage}"),
        });
        let remedy = headline::remedy(first).unwrap_or(&first.title);
        let meaning = explain(&first.id)
            .map_or("", |rule| rule.meaning.split_inclusive(". ").next().unwrap_or("").trim_end());
        let why = format!("{}{place}. {meaning}", capitalized(remedy));
        let stage = stage_of(analysis, first);
        let times = stage.and_then(|stage| Some((stage, headline::factor(analysis, stage, first)?)));
        let times = maybe(times, |(stage, times)| {
            let most = if first.saves.is_some() { "" } else { "up to " };
            format!("; {} could be {most}{} times as fast", stage.spoken(), significant(times))
        });
        let saving = capitalized(&saving(analysis, first));
        let gain = format!("{saving}{times}. Only a measurement shows what it really gives.");
        let section = section.with([Block::Line(why), Block::Line(gain)]);
        let is_run = !self.context.phases.is_empty();
        match super::findings::trial(first, &self.context.title) {
            Some((command, _)) if is_run => section.with([Block::Code(command)]),
            _ => {
                let how = if is_run {
                    format!(
                        "No setting is known that does this. Change the program, record it again with `roofgap profile`, and compare with \
                         `roofgap compare {} latest`.\n",
                        self.context.title.replace('`', "'")
                    )
                } else {
                    "`roofgap try` measures it on a run that `roofgap profile` has recorded; this capture was made elsewhere.\n"
                        .to_owned()
                };
                section.with([Block::Markdown(how)])
            }
        }
    }

    /// Tabulates one run of each stage. Warm-up and loading are no stages.
    fn stage_means(&self) -> Section {
        let analysis = self.analysis;
        let section = Section::new("stages", "Per-Stage Timings and MFU");
        let stages = &analysis.stages[..analysis.stages.len().min(STAGES)];
        if stages.is_empty() {
            return section.with([self.missing(&About::Stages)]);
        }
        let clock = match stages.iter().filter(|stage| headline::is_unprofiled(analysis, stage)).count() {
            0 => "Mean times under the profiler.",
            known if known == stages.len() => "Mean times without a profiler.",
            _ => "Mean times without a profiler where they are known, else under it.",
        };
        let slowdown = |stage: &Stage| headline::slowdown(analysis, stage).unwrap_or(1.0);
        let rows: Vec<(&Stage, f64)> = stages.iter().map(|stage| (stage, slowdown(stage))).collect();
        let table = Table::of(&rows)
            .text("stage", |(stage, _)| &stage.name)
            .text("what happens", |(stage, _)| activity(stage))
            .number("times", |(stage, _)| stage.instances)
            .ms("mean", |(stage, _)| headline::mean_ns(analysis, stage))
            .number("GPU computes %", |(stage, _)| headline::busy_pct(analysis, stage))
            .number("MFU %", |(stage, slowdown)| {
                let (wall, busy) = stage.mfu.as_ref().map(|mfu| (mfu.by_wall_pct, mfu.by_busy_pct))?;
                Some(share((wall * slowdown).min(busy.unwrap_or(100.0))))
            })
            .build();
        let parts = stages.iter().find(|stage| !stage.notes.is_empty()).map(|stage| {
            let names = joined(stage.notes.iter().map(|note| &note.name), ", ");
            let ns: i64 = stage.notes.iter().map(|note| note.wall_ns).sum();
            let pct = percent(ns.min(stage.elapsed_ns()), stage.elapsed_ns());
            format!("The parts for images ({names}) take {pct} % of {}.", stage.name)
        });
        let meaning = stages.iter().any(|stage| stage.mfu.is_some()).then(|| explanation("mfu"));
        let more = analysis.stages.len().saturating_sub(STAGES) as u64;
        let more = (more > 0).then(|| Block::Markdown(format!("{} more in `report.md`.\n", count(more))));
        let notes = joined([Some(clock), meaning, parts.as_deref()].into_iter().flatten(), " ");
        section.with([Block::Table(table), Block::Note(notes)]).with(more)
    }

    /// Tabulates the first operators: those of a Stage 1 runner where it lists them.
    fn top_operators(&self) -> Section {
        let analysis = self.analysis;
        let imported = analysis.stage1.as_ref().map(|figures| provenance::stage1_operators(figures, TOP));
        let own = || {
            Table::of(&analysis.operators[..analysis.operators.len().min(TOP)])
                .text("operator", |o| &o.name)
                .number("calls", |o| o.calls)
                .ms("total CPU", |o| o.total_cpu_ns)
                .ms("total GPU", |o| o.total_gpu_ns)
                .build()
        };
        let table = imported.filter(|table| !table.is_empty()).unwrap_or_else(own);
        let none = table.is_empty().then(|| self.missing(&About::Operators));
        Section::new("operators", "Top Operators").with(Block::table(table)).with(none)
    }

    /// Tabulates the kernels with the most time in the stages; in the whole capture without stages.
    fn top_kernels(&self) -> Section {
        let kernels = kernels(self.analysis);
        let whole: i64 = kernels.iter().map(|(_, ns, _)| ns).sum();
        let table = Table::of(&kernels[..kernels.len().min(TOP)])
            .text("kernel", |(kernel, ..)| &kernel.short_name)
            .text("kind of work", |(kernel, ..)| spoken_kind(kernel.family))
            .ms("total", |(_, ns, _)| *ns)
            .number("launches", |(.., calls)| *calls)
            .number("share of GPU time %", |(_, ns, _)| percent(*ns, whole))
            .build();
        let none = table.is_empty().then(|| self.missing(&About::Kernels));
        Section::new("kernels", "Top Kernels").with(Block::table(table)).with(none)
    }

    /// Tabulates the few facts of the environment that a reader asks for.
    fn few_facts(&self) -> Section {
        const FACTS: [&str; 4] = ["run", "mode", "driver", "torch"];
        let known = self.context.environment.iter().filter(|(name, _)| FACTS.contains(&name.as_str()));
        let mut tools: Vec<String> = self.analysis.sources.iter().map(provenance::tool).collect();
        tools.dedup();
        let rows = [
            ("device", self.device()),
            ("model", self.analysis.workload.as_ref().map(provenance::model)),
            ("engine", self.analysis.engine.as_ref().map(|engine| engine.name.clone())),
            ("session", joined_any(known.map(|(name, value)| format!("{name} {value}")), ", ")),
            ("recorded by", joined_any(tools, ", ")),
        ];
        let rows: Vec<_> = rows.into_iter().filter(|(_, value)| value.is_some()).collect();
        let table = Table::of(&rows).text("name", |row| row.0).text("value", |row| row.1.as_ref()).build();
        Section::new("environment", "Environment").with(Block::table(table))
    }

    /// Lists what was not measured, and says where engineers read on.
    fn not_measured(&self) -> Section {
        let analysis = self.analysis;
        let mut lines: Vec<String> = self.incomplete_phases().collect();
        if analysis.overhead.is_empty() && !provenance::is_unprofiled(analysis) {
            lines.push(provenance::missing(analysis, &About::Overhead));
        }
        let main = headline::main_stage(analysis);
        let no_mfu = main.filter(|stage| stage.mfu.is_none()).and_then(|stage| {
            let why = analysis.reason(&About::StageMfu(stage.name.clone()))?;
            Some(format!("No MFU of {}: {why}.", stage.name))
        });
        lines.extend(no_mfu);
        let lost = analysis.losses.iter().filter(|loss| loss.severity == "error");
        lines.extend(lost.map(|loss| format!("Lost in the recording: {}.", loss.meaning)));
        if analysis.counters.is_empty() && !lines.iter().any(|line| line.contains("counters")) {
            lines.push(
                "Counters inside the GPU (ncu): how well each kernel uses the GPU is not known.".to_owned(),
            );
        }
        if lines.is_empty() {
            lines.push("Nothing: all that was requested was measured.".to_owned());
        }
        let more = lines.len().saturating_sub(MISSING) as u64;
        let shown = lines.into_iter().take(MISSING).map(|line| cut(&line, REASON));
        let rest = (more > 0).then(|| format!("{} more in the report.", capitalized(&counted(more, "gap"))));
        Section::new("missing", "Not measured")
            .with(Block::list(shown.chain(rest)))
            .with([Block::Markdown(ENGINEERS.to_owned())])
    }
}

/// Returns the distance of a stage to what the hardware allows, and its meaning.
pub fn distance(analysis: &Analysis, stage: &Stage) -> (String, String) {
    let (pace, floor) = (Pace::of(stage), stage.mbu.as_ref().and_then(|mbu| mbu.floor_step_ns));
    if let Some(floor) = floor.filter(|floor| *floor > 0 && pace.is_step) {
        let times = pace.ns as f64 / headline::slowdown(analysis, stage).unwrap_or(1.0) / floor as f64;
        let meaning = format!(
            "at best a step would take {}: the weights have to be read from memory once",
            time(floor)
        );
        return (format!("{} times the shortest time", significant(times.max(1.0))), meaning);
    }
    if let Some(pct) = stage.roof.roof_pct {
        let meaning = "of the speed that the hardware allows, while the GPU computes".to_owned();
        return (format!("{} %", share(pct)), meaning);
    }
    if let Some(mfu) = &stage.mfu {
        return (
            format!("{} %", share(mfu.by_wall_pct)),
            "of the computing power of the device is used".to_owned(),
        );
    }
    let why = analysis.reason(&About::StageMbu(stage.name.clone()));
    let why = why.unwrap_or("it needs the model, or counters (ncu)");
    (NONE.to_owned(), format!("not known: {}", why.trim_end_matches('.')))
}

/// Says what happens in a stage.
fn activity(stage: &Stage) -> &'static str {
    match stage.kind {
        StageKind::Prefill => "reads the prompt",
        StageKind::Decode => "writes the answer, token by token",
        StageKind::Mixed => "reads prompts and writes answers",
        StageKind::Whole => "everything that was recorded",
        StageKind::Loop => "the program repeats this",
        StageKind::Custom => NONE,
    }
}

/// Sums the time and the launches of each kernel over the stages, most time first.
fn kernels(analysis: &Analysis) -> Vec<(&Kernel, i64, u64)> {
    let of_stages: Vec<&Kernel> = analysis.stages.iter().flat_map(|stage| &stage.kernels).collect();
    let all = if of_stages.is_empty() { analysis.kernels.iter().collect() } else { of_stages };
    let mut sums: BTreeMap<&str, (&Kernel, i64, u64)> = BTreeMap::new();
    for kernel in all {
        let (_, ns, calls) = sums.entry(&kernel.name).or_insert((kernel, 0, 0));
        (*ns, *calls) = (ns.saturating_add(kernel.total_ns), calls.saturating_add(kernel.calls));
    }
    let mut kernels: Vec<_> = sums.into_values().collect();
    kernels.sort_by_key(|(_, ns, _)| std::cmp::Reverse(*ns));
    kernels
}

/// Names a kind of GPU work without terms of the field.
fn spoken_kind(family: Family) -> &'static str {
    match family {
        Family::Gemm | Family::Gemv => "products of large matrices (the weights)",
        Family::Attention => "attention: looking back at the text so far",
        Family::Elementwise => "simple arithmetic on single values",
        Family::Reduction => "sums over many values",
        Family::Norm => "scaling of values (normalisation)",
        Family::Softmax => "turning scores into shares (softmax)",
        Family::CopyLayout => "moving and reordering data",
        Family::Moe => "choosing the experts of the model",
        Family::Embedding => "looking up rows of a table",
        Family::Sampling => "choosing the next token",
        Family::Communication => "exchange with other GPUs",
        Family::Quantization => "changing the number format",
        Family::Convolution => "image filters (convolutions)",
        Family::Other => "other work",
    }
}
