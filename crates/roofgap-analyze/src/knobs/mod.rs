//! Knobs: changes of a workload that carry out the action of a finding.
//!
//! The rows of the embedded model are here, those of an engine in its file in `engines`; `texts/knobs.md` names the findings of each. A row
//! makes its changes from the facts about the workload and the evidence of the finding. A setting that is in effect already is not offered,
//! and a capture whose workload is unknown has no knobs.

#[cfg(test)]
mod tests;

use crate::engines::knob::{Case, KnobRule, set};
pub use crate::engines::knob::{HfFacts, ProgramFacts, WorkloadFacts};
use crate::engines::{Engine, setting};
use crate::model::Architecture;
use crate::result::{Analysis, Knob, OutputEffect};
use crate::sections;
use std::sync::LazyLock;

/// What people read about a knob.
#[derive(Debug)]
pub struct KnobFacts {
    /// Id of the knob.
    pub id: &'static str,
    /// Sentence for people.
    pub title: &'static str,
    /// Findings whose action it carries out.
    findings: Vec<&'static str>,
    /// Effect on the output.
    output: OutputEffect,
    /// Condition for people.
    pub applies: &'static str,
}

static FACTS: LazyLock<Vec<KnobFacts>> = LazyLock::new(|| {
    let facts = |(id, section): (&'static str, &'static str)| KnobFacts {
        id,
        title: setting(section, "title"),
        findings: setting(section, "findings").split(", ").collect(),
        output: OutputEffect::named(setting(section, "output")).unwrap_or(OutputEffect::Changes),
        applies: setting(section, "applies"),
    };
    sections(include_str!("../../texts/knobs.md"), "\n## ").map(facts).collect()
});

/// Knobs of the embedded model.
const EMBEDDED: [KnobRule; 2] = [
    KnobRule {
        id: "embedded.kv_cache",
        changes: |case| uncached(case).map(|_| vec![set("workload.kv_cache", true)]),
    },
    KnobRule {
        id: "embedded.context_limit",
        changes: |case| {
            let quarter = (case.evidence("mean_context_tokens")? / 4.0).max(1.0) as u64;
            let unlimited = uncached(case)?.is_none();
            unlimited.then(|| vec![set("workload.context_limit", quarter)])
        },
    },
];

/// Returns the context limit of a model without a KV cache.
fn uncached(case: &Case<'_>) -> Option<Option<u64>> {
    match case.workload {
        WorkloadFacts::Embedded { kv_cache: false, context_limit } => Some(*context_limit),
        _ => None,
    }
}

/// Lists the knobs for a finding over all workloads.
///
/// ```
/// use roofgap_analyze::knobs::of_finding;
/// assert!(of_finding("launch-bound").any(|knob| knob.id == "hf.cuda_graphs"));
/// assert_eq!(of_finding("no-such-finding").count(), 0);
/// ```
pub fn of_finding(id: &str) -> impl Iterator<Item = &'static KnobFacts> {
    FACTS.iter().filter(move |facts| facts.findings.contains(&id))
}

/// Adds to each finding the knobs of the workload.
pub(crate) fn attach(analysis: &mut Analysis, workload: &WorkloadFacts, model: Option<&Architecture>) {
    let has_experts = model.is_some_and(Architecture::has_experts);
    let rules = rules_of(analysis, workload);
    for finding in &mut analysis.findings {
        let stage = analysis.stages.iter().find(|stage| finding.stage.as_ref() == Some(&stage.name));
        let case = Case { workload, finding, stage: stage.map(|stage| stage.kind), has_experts };
        let knob = |facts: &KnobFacts| {
            let rule = rules.iter().find(|rule| rule.id == facts.id)?;
            Some(Knob {
                id: facts.id.to_owned(),
                title: facts.title.to_owned(),
                changes: (rule.changes)(&case)?,
                output: facts.output,
                applies: facts.applies.to_owned(),
            })
        };
        finding.knobs = of_finding(&case.finding.id).filter_map(knob).collect();
    }
}

/// Returns the rows of a workload.
fn rules_of(analysis: &Analysis, workload: &WorkloadFacts) -> &'static [KnobRule] {
    match workload {
        WorkloadFacts::Embedded { .. } => &EMBEDDED,
        WorkloadFacts::Hf(_) => crate::engines::TRANSFORMERS.knobs,
        // Serving engine, by the command or by the names of its steps.
        WorkloadFacts::Program(program) => {
            let engine = program.engine_command.or(Engine::of_analysis(analysis.engine.as_ref()));
            engine.map_or(&[][..], |engine| engine.knobs)
        }
    }
}
