//! Findings: rules over an analysis, each with evidence, an upper bound on the saving, and an action.
//!
//! `collect` takes the `evidence` from the trace. Each file of `rules` is one kind of finding. `find` runs all rules and ranks the
//! findings. A rule without its data finds nothing.

mod builder;
mod collect;
mod evidence;
mod explanation;
mod occupancy;
mod rules;

#[cfg(test)]
mod tests;

pub(crate) use collect::{blocks_of, evidence, threads_of};
pub(crate) use evidence::{LaunchGap, ShapeUse, StageEvidence};
pub use explanation::Explanation;

use crate::counters::Measured;
use crate::model::Architecture;
use crate::names::ShortNames;
use crate::result::{Analysis, Finding, Stage};
use rustc_hash::FxHashMap;

/// Returns the explanation of a finding by its id.
///
/// ```
/// use roofgap_analyze::findings::explain;
/// assert_eq!(explain("launch-bound").map(|text| text.id), Some("launch-bound"));
/// assert!(explain("ncu-occupancy").is_some() && explain("no-such-finding").is_none());
/// ```
pub fn explain(id: &str) -> Option<&'static Explanation> {
    explanations().find(|explanation| explanation.is_about(id))
}

/// Returns the explanation of every finding.
pub fn explanations() -> impl Iterator<Item = &'static Explanation> {
    rules::EXPLANATIONS.into_iter()
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
}

/// A stage with the inputs of the rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) inputs: Inputs<'a>,
    pub(crate) stage: &'a Stage,
    pub(crate) evidence: Option<&'a StageEvidence>,
    pub(crate) short_names: &'a ShortNames,
}

impl<'a> View<'a> {
    /// Returns the counters of this stage that match the timeline and have a similar duration.
    pub(crate) fn counters(&self) -> impl Iterator<Item = &'a Measured> {
        let name = self.stage.name.as_str();
        self.inputs.counters.iter().filter(move |row| {
            row.matched && row.representative != Some(false) && row.row.stage.as_deref() == Some(name)
        })
    }
}

/// Runs every rule on every stage and ranks the findings by their bound; profiler overhead comes last.
pub(crate) fn find(inputs: Inputs<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let short_names = ShortNames::of(inputs.analysis);
    for stage in inputs.analysis.stages.iter().map(Stage::warm).filter(|stage| stage.wall_ns > 0) {
        let evidence = inputs.evidence.iter().find(|evidence| evidence.stage == stage.name);
        let view = View { inputs, stage, evidence, short_names: &short_names };
        for rule in rules::ALL {
            rule(&view, &mut findings);
        }
    }
    rank(&mut findings);
    findings
}

/// Adds the findings about the ranks of a job to an analysis. `waited_ns` has the time that the rank of the analysis waited for
/// others, by stage.
pub(crate) fn add_of_job(analysis: &mut Analysis, waited_ns: &FxHashMap<String, i64>) {
    let waited = |stage: &str| waited_ns.get(stage).copied();
    rules::without_waits(&analysis.stages, waited, &mut analysis.findings);
    let mut findings = Vec::new();
    let inputs = Inputs { analysis, evidence: &[], model: None, counters: &[] };
    let short_names = ShortNames::of(analysis);
    for stage in analysis.stages.iter().filter(|stage| stage.elapsed_ns() > 0) {
        let view = View { inputs, stage, evidence: None, short_names: &short_names };
        for rule in rules::OF_JOB {
            rule(&view, &mut findings);
        }
    }
    analysis.findings.extend(findings);
    rank(&mut analysis.findings);
}

/// Runs the rules that need only counters on measured launches without a timeline. The findings are about no stage.
pub(crate) fn find_alone(inputs: Inputs<'_>, stage: &Stage) -> Vec<Finding> {
    let short_names = ShortNames::of(inputs.analysis);
    let view = View { inputs, stage, evidence: inputs.evidence.first(), short_names: &short_names };
    let mut findings = Vec::new();
    for rule in rules::OF_COUNTERS {
        rule(&view, &mut findings);
    }
    findings.iter_mut().for_each(|finding| finding.stage = None);
    rank(&mut findings);
    findings
}

/// Puts the largest bound first, and profiler overhead last.
fn rank(findings: &mut [Finding]) {
    // Profiler overhead cannot be fixed in the program.
    let of_the_profiler = |finding: &Finding| finding.id == rules::PROFILER_OVERHEAD;
    findings.sort_by(|a, b| {
        of_the_profiler(a)
            .cmp(&of_the_profiler(b))
            .then_with(|| b.bound_ns.cmp(&a.bound_ns))
            .then_with(|| a.id.cmp(&b.id))
            .then_with(|| a.stage.cmp(&b.stage))
    });
}
