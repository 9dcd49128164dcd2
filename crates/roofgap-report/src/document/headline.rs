//! The first lines of a report: time per token, what limits it, what could be gained, the numbers of one run, and the confidence in
//! the numbers of the main stage: repeats, profiler overhead, sampling and losses.

use super::stages::only_profiled;
use super::table::Table;
use super::{Block, Document, Section, capitalized, joined, joined_any, kernels, maybe, provenance};
use roofgap_analyze::findings::explain;
use roofgap_analyze::{Analysis, Confidence, Finding, Stage, StageKind, StageLimit, Steps, verdict};
use roofgap_base::numbers::{count, counted, ms, significant, time};

/// Profiler overhead up to which the times are close to those without a profiler.
const CLOSE: f64 = 1.1;

/// Profiler overhead above which the times are distorted.
const DISTORTED: f64 = 1.25;

/// Standard deviation of repeats, %, up to which they agree.
const AGREE_PCT: f64 = 5.0;

/// Standard deviation of repeats, %, above which they do not.
const DISAGREE_PCT: f64 = 10.0;

/// Steps from which on a single instance is repeated enough.
const MANY_STEPS: u64 = 8;

/// Factor from which on a gain is not told: where the GPU does next to nothing, it says nothing.
const MOST_TIMES: f64 = 100.0;

/// States in one sentence how fast the main stage is, what limits it, and what could be gained.
pub fn headline(analysis: &Analysis) -> Option<String> {
    if kernels::only_measured(analysis) && analysis.stages.is_empty() {
        return Some(format!("{}.", capitalized(&kernels::measured_summary(analysis))));
    }
    let main = main_stage(analysis)?;
    let stage = main.warm();
    let parts = [
        Some(capitalized(&pace(analysis, main))),
        limit(analysis, stage),
        only_profiled(stage).map(|words| format!("it is {words}")),
        gain(analysis, stage),
    ];
    Some(format!("{}.", joined(parts.into_iter().flatten(), "; ")))
}

/// Returns the stage that a reader asks about first: decode, else the one with the most time.
pub fn main_stage(analysis: &Analysis) -> Option<&Stage> {
    let decode = |stage: &&Stage| stage.kind == StageKind::Decode;
    let stages = &analysis.stages;
    let longest = || stages.iter().max_by_key(|stage| stage.elapsed_ns());
    stages.iter().find(decode).or_else(longest)
}

/// The pace of the warm part of a stage, as the headline, the lines and cards of stages and the summary state it.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// True for the time of a step, false for that of an instance of a stage without steps.
    pub is_step: bool,
    /// Number of steps or instances.
    pub count: u64,
    /// Their median, or the mean of steps that alternate, ns.
    pub ns: i64,
    /// True for the mean.
    pub is_mean: bool,
    /// Tokens per second over all of them.
    pub tokens_per_s: Option<f64>,
}

impl Pace {
    pub fn of(stage: &Stage) -> Self {
        let stage = stage.warm();
        let steady = stage.steady.as_ref();
        let steps = stage.steps.as_ref().filter(|steps| steps.count > 0);
        let mean = || stage.elapsed_ns() / stage.instances.max(1).cast_signed();
        Self {
            is_step: steps.is_some(),
            count: steps.map_or(stage.instances, |steps| steps.count),
            is_mean: steps.is_some_and(Steps::alternate),
            ns: steps.map(Steps::usual_ns).or(steady.map(|steady| steady.median_ns)).unwrap_or_else(mean),
            tokens_per_s: stage.tokens_per_s,
        }
    }
}

/// Returns the time of a stage under the profiler that recorded it over its time without; `None` where that was not measured.
pub fn slowdown(analysis: &Analysis, stage: &Stage) -> Option<f64> {
    let overhead = analysis.timeline_overhead().find(|overhead| overhead.stage == stage.name)?;
    Some(overhead.ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
}

/// Tells whether [`mean_ns`] and [`tokens_per_s`] are those without a profiler.
pub fn is_unprofiled(analysis: &Analysis, stage: &Stage) -> bool {
    provenance::is_unprofiled(analysis) || stage.baseline.is_some() || slowdown(analysis, stage).is_some()
}

/// Returns the mean time of an instance: that of the run without a profiler, where it is known.
pub fn mean_ns(analysis: &Analysis, stage: &Stage) -> i64 {
    let mean = stage.elapsed_ns() as f64 / stage.instances.max(1) as f64;
    let measured = stage.baseline.map(|baseline| baseline.mean_ns);
    measured.unwrap_or_else(|| (mean / slowdown(analysis, stage).unwrap_or(1.0)) as i64)
}

/// Returns the tokens per second: those of the run without a profiler, where it is known.
pub fn tokens_per_s(analysis: &Analysis, stage: &Stage) -> Option<f64> {
    let slowdown = slowdown(analysis, stage);
    let of_runner = analysis.stage1.as_ref().and_then(|figures| figures.tokens_per_s);
    let of_runner = of_runner.filter(|_| stage.kind == StageKind::Decode && is_unprofiled(analysis, stage));
    let rate = || {
        let warm = stage.warm();
        let mean = warm.elapsed_ns() as f64 / warm.instances.max(1) as f64;
        let measured = stage.baseline.map(|baseline| mean / baseline.mean_ns as f64);
        Some(warm.tokens_per_s? * measured.or(slowdown).unwrap_or(1.0))
    };
    of_runner.map(|rate| rate.mean).or_else(rate)
}

/// Says how long a step or an instance takes, with its tokens, and without the profiler where that is much less.
pub fn pace(analysis: &Analysis, stage: &Stage) -> String {
    let (pace, name) = (Pace::of(stage), stage.spoken());
    let known = slowdown(analysis, stage);
    let slowdown = known.filter(|ratio| !(1.0 / CLOSE..=CLOSE).contains(ratio));
    let is_stated =
        analysis.timeline_overhead().any(|overhead| overhead.stage == stage.name && overhead.stated);
    let stated = if is_stated { " (as stated)" } else { "" };
    let with = maybe(slowdown, |_| format!(" without the profiler{stated}, {} with it", time(pace.ns)));
    let took = time((pace.ns as f64 / known.unwrap_or(1.0)).round() as i64);
    let what = match (pace.is_step, pace.count) {
        (true, 1) => format!("the only step of {name} takes {took}"),
        (true, _) if pace.is_mean => {
            format!("a step of {name} takes {took} on average, short and long ones in turn")
        }
        (true, _) => format!("a step of {name} takes {took} at the median"),
        (false, 0 | 1) => format!("{name} takes {took}"),
        (false, n) => format!("{name} takes {took} at the median of {}", count(n)),
    };
    let over = match pace.is_step {
        _ if pace.count < 2 || pace.is_mean => "",
        true => " over all steps",
        false => " over all",
    };
    let without = if slowdown.is_some() { " without it" } else { "" };
    let rate = maybe(tokens_per_s(analysis, stage), |rate| {
        format!(" ({} tokens/s{over}{without})", significant(rate))
    });
    format!("{what}{with}{rate}")
}

/// Returns the share of the time of a stage in which its GPUs compute, %: of the time without the profiler, where that is known.
pub fn busy_pct(analysis: &Analysis, stage: &Stage) -> Option<f64> {
    let stage = stage.warm();
    // GPU work takes as long without the profiler.
    let recorded =
        || Some(100.0 * stage.busy_ns.and(stage.busy_share())? * slowdown(analysis, stage).unwrap_or(1.0));
    stage.corrected.map(|corrected| corrected.busy_pct).or_else(recorded).map(|pct| pct.min(100.0))
}

/// Says what limits a stage; `None` where no GPU work was recorded for it.
fn limit(analysis: &Analysis, stage: &Stage) -> Option<String> {
    let verdict = verdict(stage);
    let busy = stage.busy_share().filter(|_| stage.idle.is_some())?;
    let foreign = stage.each_device(stage.foreign_ns()) as f64 / stage.elapsed_ns().max(1) as f64;
    let idle = 100.0 * (1.0 - busy - foreign).clamp(0.0, 1.0);
    let is_most = verdict.pct.is_none_or(|pct| 2.0 * pct >= idle);
    if verdict.label != StageLimit::Launch || !is_most {
        return Some(verdict.why);
    }
    let busy = busy_pct(analysis, stage).unwrap_or_default();
    let unprofiled = (100.0 * (1.0 - foreign) - busy).max(0.0);
    let idle = stage.corrected.map_or(unprofiled, |corrected| corrected.idle_pct.min(idle));
    let launches = maybe(stage.steps.as_ref().and_then(|steps| steps.launches_per_step), |launches| {
        format!(" ({} launches a step)", count(launches.round() as u64))
    });
    let what = if steps_fill(stage) && is_usual(stage) { "that time" } else { stage.spoken() };
    let has = |id: &str| analysis.losses.iter().any(|loss| loss.id == id);
    let slowed = match (has("profiler_with_stack"), has("profiler_profile_memory")) {
        (true, _) => ", slowed by the recording of Python stacks",
        (_, true) => ", slowed by the recording of memory allocations",
        _ => "",
    };
    Some(format!(
        "the GPU is idle {idle:.0} % of {what}, mostly because the CPU has not launched the next work yet{launches}{slowed}"
    ))
}

/// Tells whether the steps make up the time of a stage, so that a share or a factor of the stage is one of its steps too; true
/// without steps.
fn steps_fill(stage: &Stage) -> bool {
    let steps = stage.steps.as_ref().filter(|steps| steps.count > 0);
    steps.is_none_or(|steps| {
        let sum = steps.mean_ns.saturating_mul(i64::try_from(steps.count).unwrap_or(i64::MAX));
        let elapsed = stage.elapsed_ns();
        elapsed.saturating_sub(sum).abs() <= elapsed / 20
    })
}

/// Tells whether the time of a step that is told is about the mean, so that a share of all steps is one of it, too.
fn is_usual(stage: &Stage) -> bool {
    let steps = stage.steps.as_ref().filter(|steps| steps.count > 0);
    steps.is_none_or(|steps| (steps.mean_ns - steps.usual_ns()).abs() <= steps.mean_ns / 10)
}

/// Says how much faster the stage could be without what its first finding is about.
fn gain(analysis: &Analysis, stage: &Stage) -> Option<String> {
    // The time of a step is told without the profiler and without slow steps.
    let is_meant = |finding: &&Finding| {
        finding.stage.as_deref() == Some(stage.name.as_str())
            && !["profiler-overhead", "step-tail"].contains(&finding.id.as_str())
            && finding.confidence != Confidence::Guessed
    };
    let finding = analysis.findings.iter().find(is_meant)?;
    let whose = if steps_fill(stage) { "it" } else { stage.spoken() };
    let times = significant(factor(analysis, stage, finding)?);
    let most = if finding.saves.is_some() { "" } else { "up to " };
    Some(format!("{} could make {whose} {most}{times} times as fast", remedy(finding)?))
}

/// Returns the factor by which a stage is faster without what a finding is about, as predicted or at most; `None` where it says nothing.
pub fn factor(analysis: &Analysis, stage: &Stage, finding: &Finding) -> Option<f64> {
    if let Some(saves) = finding.saves {
        // The time now may be that under the profiler; the GPU work of the time after is not.
        let is_profiled = stage.warm().steady.as_ref().is_some_and(|steady| steady.time_ns == saves.of);
        let slowdown = if is_profiled { slowdown(analysis, stage).unwrap_or(1.0) } else { 1.0 };
        let times = saves.of as f64 / slowdown / (saves.of - saves.ns).max(1) as f64;
        return (1.01..MOST_TIMES).contains(&times).then_some(times);
    }
    let (stage, slowdown) = (stage.warm(), slowdown(analysis, stage).unwrap_or(1.0));
    let elapsed = stage.elapsed_ns();
    let rest = elapsed.saturating_sub(finding.bound_ns).max(0) as f64;
    // GPU work takes as long without the profiler.
    let computes = stage.each_device(stage.busy_ns.unwrap_or(0)) as f64;
    let unprofiled = elapsed as f64 / slowdown;
    let left = match stage.corrected {
        // This bound is without the profiler, too.
        Some(_) if finding.id == "launch-bound" => unprofiled - finding.bound_ns as f64,
        _ => rest / slowdown,
    };
    let times = unprofiled / left.max(computes.min(rest));
    (1.01..MOST_TIMES).contains(&times).then_some(times)
}

/// Names the remedy of a finding. A rule that gives different advice from case to case has it in its evidence.
pub fn remedy(finding: &Finding) -> Option<&str> {
    let stated = finding.evidence.get("remedy").and_then(|remedy| remedy.as_str());
    stated.or_else(|| Some(explain(&finding.id)?.remedy))
}

/// States the mean and the standard deviation of each stage over its instances, and the time to first token.
pub fn per_run(analysis: &Analysis) -> Option<String> {
    let named =
        |stage: &&Stage| stage.tokens.is_none() && !matches!(stage.kind, StageKind::Whole | StageKind::Loop);
    let stages = analysis.stages.iter().filter(named);
    let parts = stages.map(Stage::warm).filter_map(|stage| {
        let mean = stage.mean_ns?;
        let spread = maybe(stage.std_ns, |std| {
            format!(" ± {} (standard deviation of {})", time(std), count(stage.instances))
        });
        Some(format!("{} {}{spread}", stage.name, time(mean)))
    });
    let ttft = analysis.per_run.as_ref().and_then(|run| run.ttft_ns);
    let ttft =
        ttft.map(|ttft| format!("time to first token {} (prefill plus first decode step)", time(ttft)));
    joined_any(parts.chain(ttft), ", ").map(|parts| format!("mean per run: {parts}"))
}

impl Document<'_> {
    /// Describes the inputs and states the totals and the headline.
    pub(super) fn first_lines(&self) -> Section {
        let mut lines: Vec<String> = Vec::new();
        if self.is_text() {
            lines.extend(
                provenance::facts(self.analysis).iter().map(|(name, value)| format!("{name}: {value}")),
            );
            if kernels::only_measured(self.analysis) {
                lines.push(kernels::measured_summary(self.analysis));
            } else {
                let recorded = totals(self.analysis);
                lines.push(recorded.clone().unwrap_or_else(|| "no GPU work was recorded".to_owned()));
                lines.extend(recorded.into_iter().flat_map(|_| self.headlines()));
            }
        } else if !self.is_page() {
            lines.extend(self.headlines());
        }
        let title = if self.is_text() { "" } else { "Summary" };
        Section::new("summary", title).with(lines.into_iter().map(Block::Line))
    }

    /// Returns the headline and the numbers of one run.
    pub(super) fn headlines(&self) -> impl Iterator<Item = String> {
        let per_run = per_run(self.analysis).map(|line| self.sentence(&line));
        headline(self.analysis).into_iter().chain(per_run)
    }

    /// Tabulates mean, standard deviation and token rates of each stage.
    pub(super) fn per_run(&self) -> Section {
        let table = Table::of(&self.analysis.stages)
            .text("stage", |s| &s.name)
            .number("instances", |s| s.instances)
            .ms("mean", |s| s.mean_ns)
            .ms("std", |s| s.std_ns)
            .ms("step", |s| Some(Pace::of(s)).filter(|pace| pace.is_step).map(|pace| pace.ns))
            .number("ms per token", |s| s.token_ns.map(ms))
            .number("tokens/s", |s| s.tokens_per_s.map(significant))
            .build();
        Section::new("per-run", "Per run").with(Block::table(table))
    }
}

/// States the kernels and their time in the whole trace; `None` where no GPU work was recorded.
fn totals(analysis: &Analysis) -> Option<String> {
    let totals = &analysis.totals;
    let launches: u64 = analysis.graphs.iter().map(|graph| graph.launches).sum();
    (totals.kernel_count > 0 || totals.busy_ns.is_some()).then(|| {
        format!(
            "whole trace: {}, {} of kernel time{}{}",
            counted(totals.kernel_count, "kernel"),
            time(totals.kernel_ns),
            maybe((launches > 0).then_some(launches), |n| format!(", {} launches of whole graphs", count(n))),
            maybe(totals.busy_ns, |busy| format!(", GPU busy {}", time(busy)))
        )
    })
}

/// A fact about the numbers, and whether it speaks for them, against them, or neither.
type Fact = (String, Option<bool>);

/// Returns the confidence in the numbers of the main stage, and the facts behind it; `None` without a measured stage.
pub fn confidence(analysis: &Analysis) -> Option<(&'static str, String)> {
    let stage = main_stage(analysis)?;
    let sampled = stage.coverage.as_ref();
    let sampled =
        sampled.map(|part| (format!("{} of {} were recorded", count(part.recorded), count(part.all)), None));
    let facts = [Some(repeats(stage)), Some(overhead(analysis, stage)), sampled, Some(losses(analysis))];
    let facts: Vec<Fact> = facts.into_iter().flatten().collect();
    let level = match facts.iter().map(|fact| fact.1.map_or(1, |speaks| if speaks { 2 } else { 0 })).min() {
        Some(0) => "low",
        Some(1) => "medium",
        _ => "high",
    };
    Some((level, joined(facts.iter().map(|fact| &fact.0), "; ")))
}

/// Judges the number of repeats and how far they agree.
fn repeats(stage: &Stage) -> Fact {
    let name = stage.spoken();
    if let (Some(mean), Some(std)) = (stage.mean_ns.filter(|mean| *mean > 0), stage.std_ns) {
        let pct = 100.0 * std as f64 / mean as f64;
        // Steps of an engine differ in size, so that their spread is no error.
        let is_told = stage.tokens.is_none() && !(AGREE_PCT..=DISAGREE_PCT).contains(&pct);
        let (instances, pct_text) = (count(stage.instances), significant(pct));
        let text = format!("{instances} instances of {name} with a standard deviation of {pct_text} %");
        return (text, is_told.then_some(pct < AGREE_PCT));
    }
    let steps = stage.steps.as_ref().map_or(0, |steps| steps.count);
    let with = maybe((steps > 0).then_some(steps), |steps| format!(", with {}", counted(steps, "step")));
    (format!("{name} was measured once{with}"), (steps >= MANY_STEPS).then_some(true))
}

/// Judges the overhead of the profiler that recorded the times, as far as it is sure.
fn overhead(analysis: &Analysis, stage: &Stage) -> Fact {
    let of_stage = analysis.timeline_overhead().filter(|o| o.stage == stage.name);
    let Some(worst) = of_stage.max_by(|a, b| a.sure_ratio().total_cmp(&b.sure_ratio())) else {
        return match provenance::is_unprofiled(analysis) {
            true => ("no profiler ran".to_owned(), Some(true)),
            false => ("the profiler overhead is unknown".to_owned(), None),
        };
    };
    let highest = worst.interval.map_or(worst.ratio, |(_, high)| high);
    // A profiler makes nothing faster: one of the two runs was slowed by something else.
    let contradicts = highest < 1.0 / CLOSE;
    let is_told = contradicts || highest <= CLOSE || worst.sure_ratio() > DISTORTED;
    let interval = maybe(worst.interval, |(low, high)| format!(" (95 %: {low:.2} to {high:.2})"));
    let text = format!("it takes {:.2} times as long{interval} under {} as without", worst.ratio, worst.tool);
    let but = if contradicts { ", so the runs with and without it contradict each other" } else { "" };
    (text + but, is_told.then_some(!contradicts && highest <= CLOSE))
}

/// Judges what was lost.
fn losses(analysis: &Analysis) -> Fact {
    let named = |severity: &str| {
        let losses = analysis.losses.iter().filter(|loss| loss.severity == severity);
        joined_any(losses.map(|loss| &loss.id), ", ")
    };
    match (named("error"), named("warning")) {
        (Some(ids), _) => {
            (format!("some numbers are wrong because of losses in the recording ({ids})"), Some(false))
        }
        (None, Some(ids)) => (format!("the recording has losses ({ids})"), None),
        (None, None) => ("nothing that matters was lost".to_owned(), Some(true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{BaselineTimes, Idle, LossInfo, Overhead, Profiler, SourceInfo, Steps};
    use roofgap_trace::account::{Stage1Figures, Statistic};

    /// A stage of 100 ms with steps of `step` ms and a launch-bound finding of 50 ms.
    fn analysis(steps: u64, step: i64, remedy: Option<&str>) -> Analysis {
        const MS: i64 = 1_000_000;
        let mut stage = Stage::default();
        (stage.name, stage.kind) = ("all".into(), StageKind::Whole);
        (stage.wall_ns, stage.projected_ns, stage.busy_ns) = (100 * MS, Some(100 * MS), Some(50 * MS));
        stage.idle = Some(Idle { launch_ns: 50 * MS, ..Idle::default() });
        stage.steps = Some(Steps { count: steps, mean_ns: step * MS, p50_ns: step * MS, ..Steps::default() });
        let mut finding = Finding::default();
        (finding.id, finding.stage) = ("launch-bound".into(), Some("all".into()));
        finding.bound_ns = 50 * MS;
        if let Some(remedy) = remedy {
            finding.evidence.insert("remedy".into(), remedy.into());
        }
        let mut analysis = Analysis::default();
        analysis.stages = vec![stage];
        analysis.findings = vec![finding];
        analysis
    }

    #[test]
    fn the_remedy_is_that_of_the_finding() {
        let words = headline(&analysis(10, 10, Some("less CPU work between launches"))).unwrap();
        assert!(
            words.ends_with("; less CPU work between launches could make it up to 2.00 times as fast."),
            "{words}"
        );
        let words = headline(&analysis(10, 10, None)).unwrap();
        assert!(
            !words.contains("CUDA graphs") && words.contains("shorter gaps between launches could"),
            "{words}"
        );
    }

    #[test]
    fn a_factor_is_of_the_time_that_is_named() {
        let words = headline(&analysis(2, 35, None)).unwrap();
        assert!(words.starts_with("A step of the whole trace takes 35.0 ms at the median;"));
        assert!(
            words.contains("idle 50 % of the whole trace,")
                && words.contains("could make the whole trace up to 2.00"),
            "{words}"
        );
        let words = headline(&analysis(1, 100, None)).unwrap();
        assert!(
            words.starts_with(
                "The only step of the whole trace takes 100 ms; the GPU is idle 50 % of that time"
            ),
            "{words}"
        );
    }

    fn repeated(ratio: f64) -> Analysis {
        let mut stage = Stage::default();
        (stage.name, stage.instances, stage.wall_ns) = ("decode".to_owned(), 3, 300);
        (stage.mean_ns, stage.std_ns) = (Some(100), Some(2));
        let mut analysis = Analysis::default();
        analysis.sources = vec![SourceInfo { format: "nsys-sqlite".to_owned(), ..SourceInfo::default() }];
        analysis.stages = vec![stage];
        analysis.overhead = vec![Overhead {
            tool: Profiler::Nsys,
            stage: "decode".to_owned(),
            ratio,
            interval: None,
            pairs: None,
            of_runs: None,
            stated: false,
        }];
        analysis
    }

    fn level(analysis: &Analysis) -> String {
        confidence(analysis).expect("a level").0.to_owned()
    }

    /// Only the profiler that recorded the times distorts them, and only as far as the interval is sure.
    #[test]
    fn the_overhead_is_that_of_the_recording() {
        let mut both = repeated(1.5);
        both.overhead.push(Overhead {
            tool: Profiler::Native,
            stage: "decode".to_owned(),
            ratio: 1.02,
            interval: Some((0.97, 1.07)),
            pairs: Some(9),
            of_runs: None,
            stated: false,
        });
        assert_eq!(level(&both), "low");
        both.sources[0].format = "native".to_owned();
        let (level_now, text) = confidence(&both).expect("a level");
        let overhead = "it takes 1.02 times as long (95 %: 0.97 to 1.07) under native as without";
        assert!(level_now == "high" && text.contains(overhead), "{text}");
        (both.overhead[1].ratio, both.overhead[1].interval) = (1.4, Some((0.9, 1.9)));
        assert_eq!(level(&both), "medium");
        both.overhead[1].interval = Some((1.3, 1.5));
        assert_eq!(level(&both), "low");
    }

    /// The time without a profiler is the measured one, also where it is longer.
    #[test]
    fn a_baseline_that_contradicts_the_recording_is_printed_and_doubted() {
        let mut analysis = repeated(0.5);
        let stage = &mut analysis.stages[0];
        (stage.kind, stage.tokens_per_s) = (StageKind::Decode, Some(8.78));
        stage.baseline = Some(BaselineTimes { repeats: 3, mean_ns: 181, std_ns: Some(3) });
        let words = pace(&analysis, &analysis.stages[0]);
        assert!(
            words.contains("takes 200 ns at the median of 3 without the profiler, 100 ns with it"),
            "{words}"
        );
        assert!(words.contains("(4.85 tokens/s over all without it)"), "{words}");
        assert_eq!(mean_ns(&analysis, &analysis.stages[0]), 181);
        let (level, text) = confidence(&analysis).expect("a level");
        assert!(level == "low" && text.contains("contradict each other"), "{text}");
        // The figure of the runner that measured it.
        let tokens_per_s = Some(Statistic { mean: 43.46, std: 0.1 });
        analysis.stage1 = Some(Stage1Figures { tokens_per_s, ..Stage1Figures::default() });
        assert_eq!(super::tokens_per_s(&analysis, &analysis.stages[0]), Some(43.46));
    }

    #[test]
    fn times_without_a_profiler_speak_for_themselves() {
        let mut analysis = repeated(1.0);
        analysis.overhead.clear();
        let (_, text) = confidence(&analysis).expect("a level");
        assert!(text.contains("the profiler overhead is unknown"), "{text}");
        analysis.sources.clear();
        analysis.stages[0].from = roofgap_analyze::StageOrigin::Workload;
        let (level, text) = confidence(&analysis).expect("a level");
        assert!(level == "high" && text.contains("; no profiler ran;"), "{text}");
    }

    #[test]
    fn the_level_follows_from_the_facts() {
        assert_eq!(confidence(&Analysis::default()), None);
        assert_eq!(
            confidence(&repeated(1.04)),
            Some((
                "high",
                "3 instances of decode with a standard deviation of 2.00 %; it takes 1.04 times as long under nsys as without; \
                 nothing that matters was lost"
                    .to_owned()
            ))
        );
        assert_eq!(level(&repeated(1.2)), "medium");
        assert_eq!(level(&repeated(1.5)), "low");
        let mut once = repeated(1.04);
        once.stages[0].std_ns = None;
        assert_eq!(level(&once), "medium");
        let mut lost = repeated(1.04);
        lost.losses = vec![LossInfo {
            id: "x".to_owned(),
            severity: "error".to_owned(),
            count: 1,
            ..LossInfo::default()
        }];
        assert_eq!(level(&lost), "low");
        lost.losses[0].severity = "warning".to_owned();
        assert_eq!(losses(&lost).0, "the recording has losses (x)");
    }
}
