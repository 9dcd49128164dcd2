//! The first lines of a report: time per token, what limits it, what could be gained, the numbers of one run, the environment.

use super::numbers::{count, ms, or_none, significant, time};
use super::table::{Table, capitalized};
use super::{measured, provenance};
use crate::bundle::Bundle;
use roofgap_analyze::findings::explain;
use roofgap_analyze::{Analysis, Engine, Finding, Stage, StageKind, StageLimit, Steps, verdict};

/// Facts of the environment that a manager asks for, beside GPU, model and packages of engines.
const FACTS: [&str; 2] = ["driver", "torch"];

/// Factor from which on a gain is not told.
const MOST_TIMES: f64 = 100.0;

/// States in one sentence how fast the main stage is, what limits it, and what could be gained.
pub fn headline(analysis: &Analysis) -> Option<String> {
    if measured::alone(analysis) && analysis.stages.is_empty() {
        return Some(format!("{}.", capitalized(&measured::summary(analysis))));
    }
    let stage = main_stage(analysis)?;
    let mut parts = vec![capitalized(&pace(analysis, stage))];
    parts.extend(limit(stage));
    parts.extend(gain(analysis, stage));
    Some(format!("{}.", parts.join("; ")))
}

/// Returns the stage that a reader asks about first: decode, else the one with the most time.
pub fn main_stage(analysis: &Analysis) -> Option<&Stage> {
    let decode = |stage: &&Stage| stage.kind == StageKind::Decode;
    let stages = &analysis.stages;
    let longest = || stages.iter().max_by_key(|stage| stage.elapsed_ns());
    stages.iter().find(decode).or_else(longest)
}

/// Says how long a token, a step or an instance takes.
fn pace(analysis: &Analysis, stage: &Stage) -> String {
    let name = stage.spoken();
    let rate = stage.tokens_per_s.map(|rate| format!("{} tokens/s", significant(rate)));
    let batch = analysis.workload.as_ref().and_then(|w| w.batch).unwrap_or(1);
    let steps = stage.steps.as_ref().filter(|steps| steps.count > 0);
    match (steps, rate, stage.token_ns) {
        (Some(_), Some(rate), Some(token)) if batch == 1 && stage.tokens.is_none() => {
            format!("{name} takes {} per token ({rate})", time(token))
        }
        (Some(steps), Some(rate), _) => format!("{} ({rate})", of_step(name, steps)),
        (Some(steps), None, _) if steps.mean_ns > 0 && steps.count > 1 => {
            format!("{} ({} steps/s)", of_step(name, steps), significant(1e9 / steps.mean_ns as f64))
        }
        (Some(steps), None, _) if steps.mean_ns > 0 => of_step(name, steps),
        (_, rate, _) => {
            let each = match stage.instances {
                0 | 1 => String::new(),
                n => format!(" on average of {}", count(n)),
            };
            let rate = rate.map_or_else(String::new, |rate| format!(" ({rate})"));
            format!("{name} takes {}{each}{rate}", time(of_instance(stage)))
        }
    }
}

/// Says how long a step takes.
fn of_step(stage: &str, steps: &Steps) -> String {
    match steps.count {
        1 => format!("the one step of {stage} takes {}", time(steps.mean_ns)),
        _ => format!("a step of {stage} takes {} on average", time(steps.mean_ns)),
    }
}

/// Returns the mean time of an instance, ns.
fn of_instance(stage: &Stage) -> i64 {
    stage.elapsed_ns() / (stage.instances.max(1) as i64)
}

/// Says what limits a stage; `None` where no GPU work was recorded for it.
fn limit(stage: &Stage) -> Option<String> {
    let verdict = verdict(stage);
    let busy = stage.busy_share().filter(|_| stage.idle.is_some())?;
    if verdict.label != StageLimit::Launch {
        return Some(verdict.why);
    }
    let foreign = stage.each_device(stage.foreign_ns()) as f64 / stage.elapsed_ns().max(1) as f64;
    let idle = 100.0 * (1.0 - busy - foreign).clamp(0.0, 1.0);
    let launches = stage.steps.as_ref().and_then(|steps| steps.launches_per_step);
    let launches = launches.map_or_else(String::new, |launches| {
        format!(" ({} launches a step)", count(launches.round() as u64))
    });
    Some(format!(
        "the GPU is idle {idle:.0} % of {}, above all because the CPU has not launched the next work yet{launches}",
        if steps_fill(stage) { "that time" } else { stage.spoken() }
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

/// Says how much faster the stage could be without what its first finding is about.
fn gain(analysis: &Analysis, stage: &Stage) -> Option<String> {
    let own = |finding: &&Finding| {
        finding.stage.as_deref() == Some(stage.name.as_str()) && finding.id != "profiler-overhead"
    };
    let finding = analysis.findings.iter().find(own)?;
    let elapsed = stage.elapsed_ns();
    let rest = elapsed.saturating_sub(finding.bound_ns);
    if elapsed <= 0 || rest <= 0 {
        return None;
    }
    let times = elapsed as f64 / rest as f64;
    // A rule that gives different advice from case to case names the remedy in its evidence.
    let own = finding.evidence.get("remedy").and_then(|remedy| remedy.as_str());
    let what = match own {
        Some(remedy) => remedy,
        None => explain(&finding.id)?.remedy,
    };
    let whose = if steps_fill(stage) { "it" } else { stage.spoken() };
    // Where the GPU does next to nothing a factor says nothing either.
    (1.01..MOST_TIMES)
        .contains(&times)
        .then(|| format!("{what} could make {whose} up to {times:.*} times as fast", decimals(times)))
}

fn decimals(times: f64) -> usize {
    if times >= 10.0 { 0 } else { 2 }
}

/// States the mean and the standard deviation of each stage over its instances, and the time to first token.
pub fn per_run(analysis: &Analysis) -> Option<String> {
    let named = |stage: &&Stage| stage.tokens.is_none() && stage.kind != StageKind::Whole;
    let stages = analysis.stages.iter().filter(named);
    let mut parts: Vec<String> = stages
        .filter_map(|stage| {
            let mean = stage.mean_ns?;
            let spread = stage
                .std_ns
                .map(|std| format!(" ± {} (standard deviation of {})", time(std), count(stage.instances)));
            Some(format!("{} {}{}", stage.name, time(mean), spread.unwrap_or_default()))
        })
        .collect();
    let run = analysis.per_run.as_ref();
    if let Some(ttft) = run.and_then(|run| run.ttft_ns) {
        parts.push(format!("time to first token {} (prefill plus first decode step)", time(ttft)));
    }
    (!parts.is_empty()).then(|| format!("per run: {}", parts.join(", ")))
}

/// Builds the table of mean, standard deviation and token rates of each stage.
pub fn rates(analysis: &Analysis) -> Table {
    Table::of(&analysis.stages)
        .text("stage", |s: &Stage| s.name.clone())
        .count("instances", |s| s.instances)
        .ms("mean", |s| s.mean_ns)
        .ms("std", |s| s.std_ns)
        .number("step ms", |s| or_none(s.steps.as_ref(), |steps| ms(steps.mean_ns)))
        .number("ms per token", |s| or_none(s.token_ns, ms))
        .number("tokens/s", |s| or_none(s.tokens_per_s, significant))
        .build()
}

/// States GPU, model, engine and tools in one line.
pub fn environment(bundle: Bundle<'_>) -> Option<String> {
    let analysis = bundle.analysis;
    let mut facts: Vec<String> = Vec::new();
    let mut gpus: Vec<(&str, usize)> = Vec::new();
    for name in analysis.devices.iter().filter_map(|device| device.name.as_deref()) {
        match gpus.iter_mut().find(|(known, _)| *known == name) {
            Some((_, number)) => *number += 1,
            None => gpus.push((name, 1)),
        }
    }
    facts.extend(gpus.into_iter().map(|(name, number)| match number {
        1 => name.to_owned(),
        number => format!("{number} x {name}"),
    }));
    let workload = analysis.workload.as_ref();
    if facts.is_empty() {
        facts.extend(workload.and_then(|w| w.device.clone()));
    }
    facts.extend(workload.map(|w| format!("model {}", provenance::model(w))));
    facts.extend(analysis.engine.as_ref().map(|engine| engine.name.clone()));
    let wanted =
        |name: &str| FACTS.into_iter().chain(Engine::packages()).any(|fact| name.eq_ignore_ascii_case(fact));
    let known = bundle.context.environment.iter().filter(|(name, _)| wanted(name));
    facts.extend(known.map(|(name, value)| format!("{name} {value}")));
    let tools = analysis.sources.iter().filter_map(|source| {
        let version = source.tool_version.as_deref()?;
        Some(format!("{} {version}", source.format))
    });
    facts.extend(tools);
    (!facts.is_empty()).then(|| format!("Environment: {}.", facts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::Idle;

    /// A stage of 100 ms with steps of `step` ms and a launch-bound finding of 50 ms.
    fn analysis(steps: u64, step: i64, remedy: Option<&str>) -> Analysis {
        const MS: i64 = 1_000_000;
        let mut stage = Stage::default();
        (stage.name, stage.kind) = ("all".into(), StageKind::Whole);
        (stage.wall_ns, stage.projected_ns, stage.busy_ns) = (100 * MS, Some(100 * MS), Some(50 * MS));
        stage.idle = Some(Idle { launch_ns: 50 * MS, ..Idle::default() });
        stage.steps = Some(Steps { count: steps, mean_ns: step * MS, ..Steps::default() });
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
        assert!(words.starts_with("A step of the whole trace takes 35.0 ms on average (28.6 steps/s);"));
        assert!(
            words.contains("idle 50 % of the whole trace,")
                && words.contains("could make the whole trace up to 2.00"),
            "{words}"
        );
        let words = headline(&analysis(1, 100, None)).unwrap();
        assert!(
            words.starts_with(
                "The one step of the whole trace takes 100 ms; the GPU is idle 50 % of that time"
            ),
            "{words}"
        );
    }
}
