//! The confidence in the numbers of the main stage: repeats, profiler overhead, sampling and losses.

use super::headline::main_stage;
use super::numbers::{count, counted, significant};
use super::provenance::is_unprofiled;
use roofgap_analyze::{Analysis, Stage};

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

/// A fact about the numbers.
struct Fact {
    text: String,
    /// Speaks for the numbers, against them, or neither.
    speaks: Option<bool>,
}

impl Fact {
    fn new(text: String, speaks: Option<bool>) -> Self {
        Self { text, speaks }
    }
}

/// States the confidence in the numbers of the main stage, with the facts behind it; `None` without a measured stage.
pub fn line(analysis: &Analysis) -> Option<String> {
    let stage = main_stage(analysis)?;
    let facts: Vec<Fact> =
        [Some(repeats(stage)), Some(overhead(analysis, stage)), sampled(stage), Some(losses(analysis))]
            .into_iter()
            .flatten()
            .collect();
    let level = if facts.iter().any(|fact| fact.speaks == Some(false)) {
        "low"
    } else if facts.iter().all(|fact| fact.speaks == Some(true)) {
        "high"
    } else {
        "medium"
    };
    let facts: Vec<String> = facts.into_iter().map(|fact| fact.text).collect();
    Some(format!("Confidence: {level}: {}.", facts.join("; ")))
}

/// Judges the number of repeats and how far they agree.
fn repeats(stage: &Stage) -> Fact {
    let instances = stage.instances;
    if let (Some(mean), Some(std)) = (stage.mean_ns.filter(|mean| *mean > 0), stage.std_ns) {
        let pct = 100.0 * std as f64 / mean as f64;
        let speaks = match pct {
            pct if pct <= AGREE_PCT => Some(true),
            pct if pct > DISAGREE_PCT => Some(false),
            _ => None,
        };
        // Steps of an engine differ in size, so that their spread is no error.
        let speaks = speaks.filter(|_| stage.tokens.is_none());
        let text = format!(
            "{} instances of {} with a standard deviation of {} %",
            count(instances),
            stage.spoken(),
            significant(pct)
        );
        return Fact::new(text, speaks);
    }
    match stage.steps.as_ref().map_or(0, |steps| steps.count) {
        0 => Fact::new(format!("{} was measured once", stage.spoken()), None),
        steps => Fact::new(
            format!("{} was measured once, with {}", stage.spoken(), counted(steps, "step")),
            (steps >= MANY_STEPS).then_some(true),
        ),
    }
}

/// Judges the overhead of the profiler that recorded the times, as far as it is sure.
fn overhead(analysis: &Analysis, stage: &Stage) -> Fact {
    let own = analysis.timeline_overhead().filter(|o| o.stage == stage.name);
    let Some(worst) = own.max_by(|a, b| a.sure_ratio().total_cmp(&b.sure_ratio())) else {
        return if is_unprofiled(analysis) {
            Fact::new("no profiler ran".to_owned(), Some(true))
        } else {
            Fact::new("the profiler overhead is unknown".to_owned(), None)
        };
    };
    let highest = worst.interval.map_or(worst.ratio, |(_, high)| high);
    let speaks =
        if highest <= CLOSE { Some(true) } else { (worst.sure_ratio() > DISTORTED).then_some(false) };
    let interval = worst.interval.map(|(low, high)| format!(" (95 %: {low:.2} to {high:.2})"));
    let text = format!(
        "it takes {:.2} times as long{} under {} as without",
        worst.ratio,
        interval.unwrap_or_default(),
        worst.tool
    );
    Fact::new(text, speaks)
}

/// States the recorded part of a stage that was sampled.
fn sampled(stage: &Stage) -> Option<Fact> {
    let part = stage.coverage.as_ref()?;
    let text = format!("{} of {} were recorded", count(part.recorded), count(part.all));
    Some(Fact::new(text, None))
}

/// Judges what was lost.
fn losses(analysis: &Analysis) -> Fact {
    let named = |severity: &str| {
        let losses = analysis.losses.iter().filter(|loss| loss.severity == severity);
        let ids: Vec<&str> = losses.map(|loss| loss.id.as_str()).collect();
        (!ids.is_empty()).then(|| ids.join(", "))
    };
    if let Some(ids) = named("error") {
        return Fact::new(
            format!("some numbers are wrong because of losses in the recording ({ids})"),
            Some(false),
        );
    }
    if let Some(ids) = named("warning") {
        return Fact::new(format!("the recording has losses ({ids})"), None);
    }
    Fact::new("nothing that matters was lost".to_owned(), Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{LossInfo, Overhead, Profiler, SourceInfo};

    fn analysis(ratio: f64) -> Analysis {
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
        }];
        analysis
    }

    fn level(analysis: &Analysis) -> String {
        let line = line(analysis).expect("a line");
        line.split(": ").nth(1).expect("a level").to_owned()
    }

    /// Only the profiler that recorded the times distorts them, and only as far as the interval is sure.
    #[test]
    fn the_overhead_is_that_of_the_recording() {
        let mut both = analysis(1.5);
        both.overhead.push(Overhead {
            tool: Profiler::Native,
            stage: "decode".to_owned(),
            ratio: 1.02,
            interval: Some((0.97, 1.07)),
            pairs: Some(9),
        });
        assert_eq!(level(&both), "low");
        both.sources[0].format = "native".to_owned();
        let text = line(&both).expect("a line");
        let own = "it takes 1.02 times as long (95 %: 0.97 to 1.07) under native as without";
        assert!(text.starts_with("Confidence: high: ") && text.contains(own), "{text}");
        (both.overhead[1].ratio, both.overhead[1].interval) = (1.4, Some((0.9, 1.9)));
        assert_eq!(level(&both), "medium");
        both.overhead[1].interval = Some((1.3, 1.5));
        assert_eq!(level(&both), "low");
    }

    #[test]
    fn times_without_a_profiler_speak_for_themselves() {
        let mut own = analysis(1.0);
        own.overhead.clear();
        let text = line(&own).expect("a line");
        assert!(text.contains("the profiler overhead is unknown"), "{text}");
        own.sources.clear();
        own.stages[0].from = roofgap_analyze::StageOrigin::Workload;
        let text = line(&own).expect("a line");
        assert!(text.starts_with("Confidence: high: ") && text.contains("; no profiler ran;"), "{text}");
    }

    #[test]
    fn the_level_follows_from_the_facts() {
        assert_eq!(line(&Analysis::default()), None);
        assert_eq!(
            line(&analysis(1.04)).as_deref(),
            Some(
                "Confidence: high: 3 instances of decode with a standard deviation of 2.00 %; it takes 1.04 times as long \
                 under nsys as without; nothing that matters was lost."
            )
        );
        assert_eq!(level(&analysis(1.2)), "medium");
        assert_eq!(level(&analysis(1.5)), "low");
        let mut once = analysis(1.04);
        once.stages[0].std_ns = None;
        assert_eq!(level(&once), "medium");
        let mut lost = analysis(1.04);
        lost.losses = vec![LossInfo {
            id: "x".to_owned(),
            severity: "error".to_owned(),
            count: 1,
            ..LossInfo::default()
        }];
        assert_eq!(level(&lost), "low");
        lost.losses[0].severity = "warning".to_owned();
        assert_eq!(losses(&lost).text, "the recording has losses (x)");
    }
}
