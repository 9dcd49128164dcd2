//! The document for stakeholders: one page for readers who decide and do not know the field.
//!
//! It has the time without a profiler where that is known, the limit in plain words, three numbers to compare, the first thing to do, one
//! run of each stage, the kinds of GPU work, and what was not measured. Kernel names are in the report for engineers.

use super::findings::stage_of;
use super::table::Table;
use super::{
    Block, Document, Section, capitalized, headline, joined, joined_any, kernels, maybe, provenance, trial,
};
use roofgap_analyze::findings::explain;
use roofgap_analyze::{About, Analysis, Family, Finding, Kernel, Stage, StageKind, StageLimit, verdict};
use roofgap_base::numbers::{NONE, count, counted, ms, percent, share, significant, time};
use roofgap_base::text::cut;

/// The most stages of the table.
const STAGES: usize = 5;

/// The most kinds of GPU work of the table.
const KINDS: usize = 4;

/// The most things listed that were not measured, and the most characters of each.
const MISSING: usize = 4;
const REASON: usize = 240;

/// Factor from which on a gain is not stated: where the GPU does next to nothing, a factor says nothing.
const MOST_TIMES: f64 = 100.0;

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
        vec![
            self.conclusion(),
            self.numbers(),
            self.first_action(),
            self.stage_means(),
            self.kinds_of_work(),
            self.few_facts(),
            self.not_measured(),
        ]
    }

    /// Names the GPUs, or what ran the program instead of one.
    fn device(&self) -> Option<String> {
        let names = self.analysis.devices.iter().filter_map(|device| device.name.as_deref());
        let mut gpus: Vec<(&str, usize)> = Vec::new();
        for name in names {
            match gpus.iter_mut().find(|(known, _)| *known == name) {
                Some((_, number)) => *number += 1,
                None => gpus.push((name, 1)),
            }
        }
        let several = |(name, number): (&str, usize)| match number {
            1 => name.to_owned(),
            _ => format!("{number} x {name}"),
        };
        let own = || self.analysis.workload.as_ref().and_then(|workload| workload.device.clone());
        joined_any(gpus.into_iter().map(several), " and ").or_else(own)
    }

    /// States how fast the program is and what limits it.
    fn conclusion(&self) -> Section {
        let section = Section::new("summary", "");
        let analysis = self.analysis;
        if kernels::only_measured(analysis) && analysis.stages.is_empty() {
            let what = "Single pieces of GPU work were measured, not a whole program: this says how well they use the GPU, not how fast \
                        the program is.";
            return section.with([Block::Line(what.to_owned())]);
        }
        let Some(stage) = headline::main_stage(analysis) else {
            return section.with([Block::Line(provenance::missing(analysis, &About::Stages))]);
        };
        let pace = Pace::of(analysis, stage);
        let scope = match (stage.kind, provenance::is_unprofiled(analysis)) {
            (_, true) => "No profiler ran.",
            (StageKind::Whole, _) if pace.is_profiled => {
                "That is the time under the profiler, over the whole recording with its start."
            }
            _ if pace.is_profiled => {
                "That is the time under the profiler; without it the program is as fast or faster, and nobody measured by how much."
            }
            _ => "That is the time without a profiler.",
        };
        let rate = maybe(pace.rate, |rate| format!(", {} tokens/s", significant(rate)));
        let speed = format!("{} takes {}{rate}. {scope}", capitalized(&pace.what), time(pace.ns));
        let tried = self.context.trials.as_ref().and_then(trial::headline);
        section
            .with([Block::Line(speed), Block::Line(limit(stage, &pace))])
            .with(tried.map(|line| Block::Line(format!("Tried: {line}"))))
    }

    /// Tabulates the three numbers that a manager compares.
    fn numbers(&self) -> Section {
        let analysis = self.analysis;
        let section = Section::new("numbers", "Three numbers to compare");
        let Some(stage) = headline::main_stage(analysis) else {
            return section;
        };
        let pace = Pace::of(analysis, stage);
        let speed = match pace.rate {
            Some(rate) => format!("{} tokens/s", significant(rate)),
            None => format!("{} for {}", time(pace.ns), pace.what),
        };
        let (distance, meaning) = distance(analysis, stage, &pace);
        let confidence = headline::confidence(analysis).unwrap_or_default();
        let confidence = confidence.trim_start_matches("Confidence: ").trim_end_matches('.').to_owned();
        let (level, facts) = confidence.split_once(": ").unwrap_or((confidence.as_str(), ""));
        let mut table = Table::new(&["number", "value", "meaning"]);
        let machine = if analysis.devices.is_empty() { "machine" } else { "GPU" };
        let under = if pace.is_profiled { "under the profiler" } else { "without a profiler" };
        table.row([
            "speed".to_owned(),
            speed,
            format!("{under}; compare it with another run on the same {machine}"),
        ]);
        table.row(["distance to the limit".to_owned(), distance, meaning]);
        table.row([
            "confidence".to_owned(),
            level.to_owned(),
            "how far the numbers can be trusted".to_owned(),
        ]);
        let facts = (!facts.is_empty()).then(|| Block::Note(format!("Confidence is {level}: {facts}.")));
        section.with([Block::Table(table)]).with(facts)
    }

    /// States what to do first, the most that it can gain, and the command that measures it.
    fn first_action(&self) -> Section {
        let analysis = self.analysis;
        let section = Section::new("findings", "What to do first");
        let Some(first) = first_finding(analysis) else {
            let none = "Nothing stands out: no rule found time that could be saved.";
            return section.with([Block::Line(none.to_owned())]);
        };
        let explained = explain(&first.id);
        let own = first.evidence.get("remedy").and_then(|remedy| remedy.as_str());
        let remedy = own.or(explained.map(|explained| explained.remedy)).unwrap_or(&first.title);
        let place = maybe(first.stage.as_deref(), |stage| match stage_of(analysis, first) {
            Some(stage) if stage.kind == StageKind::Whole => String::new(),
            _ => format!(" in {stage}"),
        });
        let meaning = explained.map_or("", |explained| first_sentence(explained.meaning));
        let why = format!("{}{place}. {meaning}", capitalized(remedy));
        let gain = format!("{} {}", gain(analysis, first), "What it really brings has to be measured.");
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
        let unprofiled = stages.iter().all(|stage| slowdown(analysis, stage).is_some());
        let rows: Vec<(&Stage, f64)> = stages
            .iter()
            .map(|stage| (stage, slowdown(analysis, stage).filter(|_| unprofiled).unwrap_or(1.0)))
            .collect();
        let each = |stage: &Stage, ns: i64| ns / (stage.instances.max(1) as i64);
        let mean = |stage: &Stage, factor: f64| (each(stage, stage.elapsed_ns()) as f64 / factor) as i64;
        let busy = |stage: &Stage, factor: f64| {
            let busy = each(stage, stage.each_device(stage.busy_ns?));
            Some(percent(busy.min(mean(stage, factor)), mean(stage, factor)))
        };
        let mfu = |stage: &Stage, factor: f64| {
            let mfu = stage.mfu.as_ref()?;
            Some(share((mfu.by_wall_pct * factor).min(mfu.by_busy_pct.unwrap_or(100.0)).max(mfu.by_wall_pct)))
        };
        let table = Table::of(&rows)
            .text("stage", |(stage, _)| &stage.name)
            .text("what happens", |(stage, _)| activity(stage))
            .number("times", |(stage, _)| stage.instances)
            .number("mean ms", |(stage, factor)| ms(mean(stage, *factor)))
            .number("GPU computes %", |(stage, factor)| busy(stage, *factor))
            .number("MFU %", |(stage, factor)| mfu(stage, *factor))
            .build();
        let parts = stages.iter().find(|stage| !stage.notes.is_empty()).map(|stage| {
            let names = joined(stage.notes.iter().map(|note| &note.name), ", ");
            let instances = stage.instances.max(1) as i64;
            let ns: i64 = stage.notes.iter().map(|note| note.wall_ns).sum::<i64>() / instances;
            let whole = each(stage, stage.elapsed_ns());
            let pct = percent(ns.min(whole), whole);
            format!("The parts for images ({names}) take {pct} % of {}.", stage.name)
        });
        let has_mfu = stages.iter().any(|stage| stage.mfu.is_some());
        let meaning =
            "MFU is the share of the GPU's peak computing power that the model's own arithmetic uses.";
        let clock = match provenance::is_unprofiled(analysis) || unprofiled {
            true => "Mean times without a profiler.",
            false => "Mean times under the profiler.",
        };
        let more = analysis.stages.len().saturating_sub(STAGES) as u64;
        let more = (more > 0).then(|| format!("{} more in `report.md`.", count(more)));
        let notes = [Some(clock), has_mfu.then_some(meaning), parts.as_deref()];
        if table.is_empty() {
            return section.with([self.missing(&About::Stages)]);
        }
        section
            .with([Block::Table(table), Block::Note(joined(notes.into_iter().flatten(), " "))])
            .with(more.map(|more| Block::Markdown(more + "\n")))
    }

    /// Tabulates the kinds of GPU work in the stages; of the whole capture without stages.
    fn kinds_of_work(&self) -> Section {
        let section = Section::new("kernels", "Top Kernels, by what they do");
        let kinds = kinds(self.analysis);
        let whole: i64 = kinds.iter().map(|(_, ns, _)| ns).sum();
        let table = Table::of(&kinds[..kinds.len().min(KINDS)])
            .text("kind of work", |(kind, ..)| *kind)
            .number("share of GPU time %", |(_, ns, _)| percent(*ns, whole))
            .number("launches", |(.., calls)| *calls)
            .build();
        match table.is_empty() {
            true => section.with([self.missing(&About::Kernels)]),
            false => section.with([Block::Table(table)]),
        }
    }

    /// Tabulates the few facts of the environment that a reader asks for.
    fn few_facts(&self) -> Section {
        const FACTS: [&str; 4] = ["run", "mode", "driver", "torch"];
        let mut table = Table::new(&["name", "value"]);
        let mut add = |name: &str, value: String| table.row([name.to_owned(), value]);
        if let Some(device) = self.device() {
            add("device", device);
        }
        if let Some(workload) = &self.analysis.workload {
            add("model", provenance::model(workload));
        }
        if let Some(engine) = &self.analysis.engine {
            add("engine", engine.name.clone());
        }
        let known = self.context.environment.iter().filter(|(name, _)| FACTS.contains(&name.as_str()));
        if let Some(facts) = joined_any(known.map(|(name, value)| format!("{name} {value}")), ", ") {
            add("session", facts);
        }
        let mut tools: Vec<String> = self.analysis.sources.iter().map(provenance::tool).collect();
        tools.dedup();
        if let Some(tools) = joined_any(tools, ", ") {
            add("recorded by", tools);
        }
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
        let more = lines.len().saturating_sub(MISSING) as u64;
        let shown = lines.into_iter().take(MISSING).map(|line| cut(&line, REASON));
        let rest = (more > 0).then(|| format!("{} more in the report.", capitalized(&counted(more, "gap"))));
        Section::new("missing", "Not measured")
            .with(Block::list(shown.chain(rest)))
            .with([Block::Markdown(ENGINEERS.to_owned())])
    }
}

/// The time of the smallest unit of work that a reader knows, without a profiler where that is known.
struct Pace {
    /// The unit, as the subject of a sentence.
    what: String,
    ns: i64,
    /// Tokens per second.
    rate: Option<f64>,
    /// True for a time under a profiler.
    is_profiled: bool,
    /// Time under the profiler divided by the time without; 1 where unknown.
    slowdown: f64,
}

impl Pace {
    fn of(analysis: &Analysis, stage: &Stage) -> Self {
        let found = slowdown(analysis, stage);
        let slowdown = found.unwrap_or(1.0);
        let batch = analysis.workload.as_ref().and_then(|workload| workload.batch).unwrap_or(1);
        let steps = stage.steps.as_ref().filter(|steps| steps.count > 0);
        let (what, ns) = match (steps, stage.token_ns) {
            (Some(_), Some(token)) if batch == 1 && stage.tokens.is_none() => ("one token".to_owned(), token),
            (Some(steps), _) => (format!("one step of {}", stage.spoken()), steps.mean_ns),
            (None, _) if stage.kind == StageKind::Whole => {
                ("the whole recording".to_owned(), stage.elapsed_ns())
            }
            (None, _) => {
                (format!("one {}", stage.name), stage.elapsed_ns() / (stage.instances.max(1) as i64))
            }
        };
        Self {
            what,
            ns: (ns as f64 / slowdown) as i64,
            rate: stage.tokens_per_s.map(|rate| rate * slowdown),
            is_profiled: found.is_none() && !provenance::is_unprofiled(analysis),
            slowdown,
        }
    }
}

/// Returns the time of a stage under the profiler that recorded it, divided by its time without; `None` where that was not measured.
fn slowdown(analysis: &Analysis, stage: &Stage) -> Option<f64> {
    let own = analysis.timeline_overhead().find(|overhead| overhead.stage == stage.name)?;
    // A profiler makes nothing faster; below 1 the two runs differ by chance.
    (own.ratio.is_finite() && own.ratio > 0.0).then(|| own.ratio.max(1.0))
}

/// Says what limits a stage, without terms of the field.
fn limit(stage: &Stage, pace: &Pace) -> String {
    let verdict = verdict(stage);
    let busy = stage.busy_share().map(|share| (100.0 * share * pace.slowdown).clamp(0.0, 100.0));
    let Some(busy) = busy.filter(|_| stage.idle.is_some()) else {
        return "What limits it is not known: no GPU work was recorded.".to_owned();
    };
    let name = stage.spoken();
    let waits = |why: &str| {
        format!("The GPU computes {busy:.0} % of the time of {name}; the rest of the time it waits {why}.")
    };
    let launches = stage.steps.as_ref().and_then(|steps| steps.launches_per_step);
    match verdict.label {
        StageLimit::Launch | StageLimit::StepGaps | StageLimit::Host => waits(&match launches {
            Some(launches) if launches >= 2.0 => format!(
                "for the CPU, which hands it {} small pieces of work for each step, one after another",
                count(launches.round() as u64)
            ),
            _ => "for the CPU, which prepares the next piece of work".to_owned(),
        }),
        StageLimit::DataLoading => waits("for the next input data"),
        StageLimit::Sync => waits("because the program stops in between to look at results"),
        StageLimit::Copy => {
            waits("for data that is copied between the memory of the computer and that of the GPU")
        }
        StageLimit::Gpu => format!(
            "The GPU computes {busy:.0} % of the time of {name}, so its own work is the limit: only less work, or work that uses the GPU \
             better, makes it faster."
        ),
        _ => format!("{}.", capitalized(&verdict.why)),
    }
}

/// Returns the distance of a stage to what the hardware allows, and its meaning.
pub fn distance_of(analysis: &Analysis, stage: &Stage) -> (String, String) {
    distance(analysis, stage, &Pace::of(analysis, stage))
}

fn distance(analysis: &Analysis, stage: &Stage, pace: &Pace) -> (String, String) {
    let mbu = stage.mbu.as_ref();
    let step = |ns: i64| ns as f64 / pace.slowdown;
    let floor = mbu.and_then(|mbu| Some((step(mbu.step_ns?), mbu.floor_step_ns.filter(|floor| *floor > 0)?)));
    if let Some((step, floor)) = floor {
        let times = step / floor as f64;
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

/// Returns the first finding that is about the program, not about its profiler.
fn first_finding(analysis: &Analysis) -> Option<&Finding> {
    analysis.findings.iter().find(|finding| finding.id != "profiler-overhead")
}

/// States the most that a finding can gain. GPU work takes the same time without a profiler.
fn gain(analysis: &Analysis, finding: &Finding) -> String {
    let Some(stage) = stage_of(analysis, finding) else {
        return format!("It saves at most {} of what was measured.", time(finding.bound_ns));
    };
    let slowdown = slowdown(analysis, stage).unwrap_or(1.0);
    let elapsed = stage.elapsed_ns();
    let rest = elapsed.saturating_sub(finding.bound_ns).max(0) as f64;
    let computes = stage.each_device(stage.busy_ns.unwrap_or(0)) as f64;
    let (now, best) = (elapsed as f64 / slowdown, (rest / slowdown).max(computes.min(rest)));
    if now <= best || now <= 0.0 {
        return format!("It saves at most {:.0} % of {}.", finding.bound_pct, stage.spoken());
    }
    let saved = 100.0 * (now - best) / now;
    let times = now / best.max(1.0);
    let factor = match (1.01..MOST_TIMES).contains(&times) {
        true => format!(", so that it could be up to {} times as fast", significant(times)),
        false => String::new(),
    };
    format!("It saves at most {saved:.0} % of the time of {}{factor}.", stage.spoken())
}

/// Returns the first sentence of a text.
fn first_sentence(text: &str) -> &str {
    let end = text.match_indices(". ").map(|(at, _)| at).next();
    end.and_then(|at| text.get(..=at)).unwrap_or(text)
}

/// Says what happens in a stage.
fn activity(stage: &Stage) -> &'static str {
    match stage.kind {
        StageKind::Prefill => "reads the prompt",
        StageKind::Decode => "writes the answer, token by token",
        StageKind::Mixed => "reads prompts and writes answers",
        StageKind::Whole => "everything that was recorded",
        StageKind::Custom => NONE,
    }
}

/// Sums the time and the launches of each kind of work over the stages, most time first.
fn kinds(analysis: &Analysis) -> Vec<(&'static str, i64, u64)> {
    let mut kernels: Vec<&Kernel> = analysis.stages.iter().flat_map(|stage| &stage.kernels).collect();
    if kernels.is_empty() {
        kernels.extend(&analysis.kernels);
    }
    let mut sums: Vec<(&str, i64, u64)> = Vec::new();
    for kernel in kernels {
        let kind = spoken_kind(kernel.family);
        match sums.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, ns, calls)) => {
                *ns = ns.saturating_add(kernel.total_ns);
                *calls = calls.saturating_add(kernel.calls);
            }
            None => sums.push((kind, kernel.total_ns, kernel.calls)),
        }
    }
    sums.sort_by_key(|(_, ns, _)| std::cmp::Reverse(*ns));
    sums
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
