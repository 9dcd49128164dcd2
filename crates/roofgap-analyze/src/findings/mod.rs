//! Findings: rules over an analysis, each with evidence, an upper bound on the saving, and an action.
//!
//! `evidence` is taken from the trace, `program` from the analysis. Each file of `rules` is one kind of finding; a [`Rule`] has its id,
//! explanation and function. `find` runs the rules and ranks what they find. A rule without its data finds nothing.
//!
//! A bound leaves the stage at the highest of its roofs (`StageRoofs`). Findings of one cause in one stage would save
//! the same time: the first of them is the one to act on, the others are part of it.

mod evidence;
mod program;
mod rule;
mod rules;
mod savings;
mod spike;

#[cfg(test)]
mod tests;

pub(crate) use evidence::{LaunchGap, OtherWork, ShapeUse, StageEvidence, blocks_of, evidence, threads_of};
pub use rule::{LEAST_PCT, Rows, Rule};
pub use rules::RULES;
pub(crate) use spike::spikes;

use crate::counters::Measured;
use crate::execution::Engine;
use crate::gpu::reword_analysis;
use crate::model::Architecture;
use crate::names::ShortNames;
use crate::result::{Analysis, Confidence, Finding, NextLimit, Stage, StageKind};
use crate::roof::{Keeps, StageRoofs};
use crate::verdict::{LEAST_GAP_PCT, StageLimit, is_too_little, verdict};
use program::Program;
use rule::{Cause, Needs, View};
use rustc_hash::FxHashMap;

/// Returns the rule of a finding by its id.
///
/// ```
/// use roofgap_analyze::findings::explain;
/// assert_eq!(explain("launch-bound").map(|rule| rule.id), Some("launch-bound"));
/// assert!(explain("ncu-occupancy").is_some() && explain("no-such-finding").is_none());
/// ```
pub fn explain(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.is_about(id))
}

/// Returns the ways to fix a finding, by its id.
pub fn fix(id: &str) -> Option<&'static str> {
    rules::fix_of_kind(id).or_else(|| Some(explain(id)?.fix))
}

/// Returns the findings to act on, in their order: one for each cause of a stage, and each rule once, with its findings of the same
/// action about other stages beside it.
pub fn to_act_on(findings: &[Finding]) -> Vec<(&Finding, Vec<&Finding>)> {
    let mut leading: Vec<(&Finding, Vec<&Finding>)> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.part_of.is_none()) {
        let same = |(first, _): &&mut (&Finding, _)| {
            first.id == finding.id
                && first.stage != finding.stage
                && unnumbered(&first.action).eq(unnumbered(&finding.action))
        };
        match leading.iter_mut().find(same) {
            Some((_, others)) => others.push(finding),
            None => leading.push((finding, Vec::new())),
        }
    }
    leading
}

/// Returns the words of an action without numbers and units, which differ from stage to stage.
fn unnumbered(action: &str) -> impl Iterator<Item = &str> {
    let is_word = |word: &&str| {
        let unit = word.trim_end_matches(['.', ',', ';', ')']);
        !word.contains(|c: char| c.is_ascii_digit()) && !["ns", "µs", "ms", "s", "%"].contains(&unit)
    };
    action.split_whitespace().filter(is_word)
}

/// Returns the share of a stage, in %, that all findings together can save: the time above the highest roof of its model.
pub fn most_pct(stage: &Stage) -> f64 {
    let stage = stage.warm();
    let (_, roof_ns) = StageRoofs::of(stage).highest(Keeps::Work, false);
    100.0 - rule::percent(roof_ns, stage.elapsed_ns())
}

/// Inputs of the rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// The analysis so far.
    pub analysis: &'a Analysis,
    /// Evidence from the trace by stage; empty without a timeline.
    pub evidence: &'a [StageEvidence],
    /// Model, where known.
    pub model: Option<&'a Architecture>,
    /// Counters joined with the timeline.
    pub counters: &'a [Measured],
    /// Replays of the stages; `None` without a timeline.
    pub engine: Option<&'a Engine<'a>>,
}

/// Runs every rule about a single capture on every stage, and ranks the findings.
pub(crate) fn find(inputs: Inputs<'_>) -> Vec<Finding> {
    let stages = inputs.analysis.stages.iter().map(Stage::warm).filter(|stage| stage.wall_ns > 0);
    let mut findings = run(inputs, stages, |needs| needs != Needs::Job);
    savings::add(inputs, &mut findings);
    ranked(findings, inputs.analysis)
}

/// Adds the findings about the ranks of a job to an analysis. `waited_ns` has the time that the rank of the analysis waited for
/// others, by stage.
pub(crate) fn add_of_job(analysis: &mut Analysis, waited_ns: &FxHashMap<String, i64>) {
    let waited = |stage: &str| waited_ns.get(stage).copied();
    for stage in &mut analysis.stages {
        let waiting = waited(&stage.name);
        let views = std::iter::once(&mut stage.communication);
        for communication in views.chain(stage.warm.iter_mut().map(|warm| &mut warm.communication)).flatten()
        {
            communication.waiting_ns =
                waiting.map(|ns| ns.clamp(0, communication.exposed_ns)).or(communication.waiting_ns);
        }
    }
    rules::without_waits(&analysis.stages, waited, &mut analysis.findings);
    let inputs = Inputs { analysis, evidence: &[], model: None, counters: &[], engine: None };
    let stages = analysis.stages.iter().map(Stage::warm).filter(|stage| stage.elapsed_ns() > 0);
    let of_job = run(inputs, stages, |needs| needs == Needs::Job);
    let mut findings = std::mem::take(&mut analysis.findings);
    findings.extend(of_job);
    analysis.findings = ranked(findings, analysis);
    reword_analysis(analysis);
}

/// Adds to each stage the step after its first finding, and after its first three together.
pub(crate) fn add_next_limits(analysis: &mut Analysis, engine: &Engine<'_>) {
    let Analysis { stages, findings, .. } = analysis;
    for (at, stage) in stages.iter_mut().enumerate() {
        let own = findings.iter().filter(|finding| finding.stage.as_ref() == Some(&stage.name));
        let own = own.filter(|finding| finding.saves.is_some() && finding.part_of.is_none());
        let edits: Vec<_> =
            own.filter_map(|finding| savings::edit(finding, stage.warm()).ok()).take(TOGETHER).collect();
        let mut counts = vec![1, edits.len()];
        counts.dedup();
        let counts = counts.into_iter().filter(|count| *count > 0 && *count <= edits.len());
        let after = |count: usize| {
            let step = engine.predict((at, stage), &edits[..count]).ok()?;
            Some(NextLimit { edits: edits[..count].iter().map(ToString::to_string).collect(), step })
        };
        stage.next_limit = counts.filter_map(after).collect();
    }
}

/// Findings of a stage whose changes are replayed together.
const TOGETHER: usize = 3;

/// Runs the rules that need only counters on measured launches without a timeline. The findings are about no stage.
pub(crate) fn find_alone(inputs: Inputs<'_>, stage: &Stage) -> Vec<Finding> {
    let mut findings = run(inputs, std::iter::once(stage), |needs| needs == Needs::Counters);
    findings.iter_mut().for_each(|finding| finding.stage = None);
    ranked(findings, inputs.analysis)
}

/// Runs the rules whose data is there.
fn run<'a>(
    inputs: Inputs<'_>,
    stages: impl Iterator<Item = &'a Stage>,
    has: fn(Needs) -> bool,
) -> Vec<Finding> {
    let short_names = ShortNames::of(inputs.analysis);
    let program = Program::of(inputs.analysis);
    let mut findings = Vec::new();
    for stage in stages {
        let evidence = inputs.evidence.iter().find(|evidence| evidence.stage == stage.name);
        let communication_ns = rules::communication_roof_ns(inputs.analysis, stage, evidence);
        let roofs = StageRoofs { communication_ns, ..StageRoofs::of(stage) };
        // Counters judge a kernel by itself; the other rules need more than a few operations, and records of them.
        let counted = !inputs.counters.is_empty();
        let known = stage.idle.is_none() || verdict(stage).label != StageLimit::NotMeasured;
        let judges = |needs| needs == Needs::Counters && counted || known && !is_too_little(stage);
        let mut of_stage = Vec::new();
        for rule in RULES.iter().filter(|rule| has(rule.needs) && judges(rule.needs)) {
            let view =
                View { rule, inputs, stage, evidence, roofs, program: &program, short_names: &short_names };
            of_stage.extend(rule.find(&view));
        }
        drop_small_gaps(stage, &mut of_stage);
        // What is known of a kernel says more than that it is above its roof.
        let of_kernels =
            of_stage.iter().filter(|other| other.id != rules::ABOVE_ROOF && is_of_kernels(other));
        let named: Vec<_> = of_kernels.map(|other| kernel_of(other, &short_names)).collect();
        of_stage.retain(|finding| {
            finding.id != rules::ABOVE_ROOF || !named.contains(&kernel_of(finding, &short_names))
        });
        findings.extend(of_stage);
    }
    findings
}

/// Returns the kernel that a finding is about, or the largest of them.
fn kernel_of(finding: &Finding, short_names: &ShortNames) -> Option<String> {
    let text = |key: &str| finding.evidence.get(key)?.as_str();
    text("kernel").map(|name| short_names.get(name)).or_else(|| text("largest").map(str::to_owned))
}

fn is_of_kernels(finding: &Finding) -> bool {
    let causes = [Cause::Kernels, Cause::Bytes, Cause::Precision];
    RULES.iter().any(|rule| rule.is_about(&finding.id) && causes.contains(&rule.cause))
}

/// A gap that is not the limit of its stage is listed where it saves so many times as much as everything else.
const CLEARLY_MORE: f64 = 1.5;

/// Drops the findings about gaps that are too small for a limit, unless they are clearly the largest.
fn drop_small_gaps(stage: &Stage, list: &mut Vec<Finding>) {
    let is_small = |finding: &Finding| {
        let terms = finding.terms.iter().filter(|term| !term.what.starts_with(rule::NOT_BELOW));
        let gap = rule::percent(terms.map(|term| term.ns).fold(0, i64::saturating_add), stage.elapsed_ns());
        rules::GAPS.contains(&finding.id.as_str()) && gap < LEAST_GAP_PCT
    };
    let others =
        list.iter().filter(|finding| !is_small(finding)).map(|finding| finding.bound_ns).max().unwrap_or(0);
    list.retain(|finding| !is_small(finding) || finding.bound_ns as f64 > CLEARLY_MORE * others as f64);
}

/// Share of the most likely saving of its cause from which on a rule that comes first in the table is the one to act on: it is more
/// specific.
const SPECIFIC_SHARE: f64 = 0.8;

/// Sorts findings by their likely saving, those that are part of another after the others, and profiler overhead last.
fn ranked(mut findings: Vec<Finding>, analysis: &Analysis) -> Vec<Finding> {
    let kind_of = |finding: &Finding| {
        let stage = analysis.stages.iter().find(|stage| Some(&stage.name) == finding.stage.as_ref());
        stage.map(|stage| stage.kind)
    };
    let short_names = &ShortNames::of(analysis);
    let likely_ns = |finding: &Finding| likely_ns(finding, analysis);
    let position = |finding: &Finding| RULES.iter().position(|rule| rule.is_about(&finding.id));
    // Findings about single kernels have one cause where they are about the same kernel.
    let cause = |finding: &Finding| {
        let kernel = kernel_of(finding, short_names);
        let cause = position(finding).and_then(|at| RULES.get(at)).map(|rule| rule.cause);
        (finding.stage.clone(), cause, kernel.filter(|_| cause == Some(Cause::Kernels)))
    };
    findings.sort_by(|a, b| {
        likely_ns(b)
            .total_cmp(&likely_ns(a))
            .then_with(|| position(a).cmp(&position(b)))
            .then_with(|| (&a.id, &a.stage).cmp(&(&b.id, &b.stage)))
    });
    let causes: Vec<_> = findings.iter().map(cause).collect();
    let leaders: Vec<usize> = causes
        .iter()
        .map(|cause| {
            let same = || (0..findings.len()).filter(|at| causes[*at] == *cause);
            let most = same().map(|at| likely_ns(&findings[at])).fold(0.0, f64::max);
            let close = same().filter(|at| likely_ns(&findings[*at]) >= SPECIFIC_SHARE * most);
            close.min_by_key(|at| position(&findings[*at])).unwrap_or(0)
        })
        .collect();
    let ids: Vec<String> = leaders.iter().map(|at| findings[*at].id.clone()).collect();
    for (at, ((finding, leader), id)) in findings.iter_mut().zip(leaders).zip(ids).enumerate() {
        finding.part_of = (leader != at).then_some(id);
    }
    // What the capture does not show comes first, and last the start of a program that goes on, a single pause, and the profiler overhead,
    // which cannot be fixed in the program.
    findings.sort_by_key(|finding| {
        let is = |id| finding.id == id;
        let is_pause = is(rules::STEP_TAIL) && finding.confidence == Confidence::Guessed;
        let goes_on = matches!(kind_of(finding), Some(StageKind::Whole | StageKind::Loop));
        let is_start = is(rules::COLD_START) && goes_on;
        (
            !is(rules::GRAPHS_WHOLE),
            is(rules::PROFILER_OVERHEAD),
            finding.part_of.is_some(),
            is_start,
            is_pause,
        )
    });
    findings
}

/// Returns the predicted saving of a finding in its stage; without a prediction its bound, weighted by how far such bounds are reached.
fn likely_ns(finding: &Finding, analysis: &Analysis) -> f64 {
    if let Some(saves) = finding.saves {
        let stage = analysis.stages.iter().find(|stage| Some(&stage.name) == finding.stage.as_ref());
        return saves.pct / 100.0 * stage.map_or(0, |stage| stage.warm().elapsed_ns()) as f64;
    }
    let reached = match finding.confidence {
        Confidence::Measured => 1.0,
        Confidence::Bounded => 0.6,
        Confidence::Guessed => 0.3,
    };
    finding.bound_ns as f64 * reached
}
