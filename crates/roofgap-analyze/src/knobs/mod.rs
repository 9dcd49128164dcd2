//! Knobs: changes of a workload that carry out the action of a finding.
//!
//! One table for each kind of workload: `embedded`, `hf` and the engines. A row names the findings it is for, and makes its changes from
//! the `facts` about the workload and the evidence of the finding. A setting that is in effect already is not offered, and a
//! capture whose workload is unknown has no knobs.

mod embedded;
mod facts;
mod hf;
mod rule;
mod sglang;
mod vllm;

#[cfg(test)]
mod tests;

pub use facts::{HfFacts, ProgramFacts, WorkloadFacts};

use crate::model::{Architecture, Mlp};
use crate::result::{Analysis, Finding, Knob};
use rule::{Case, KnobRule};

/// Returns the rows of all tables.
fn rules() -> impl Iterator<Item = &'static KnobRule> {
    let engines = vllm::KNOBS.iter().chain(&sglang::KNOBS);
    embedded::KNOBS.iter().chain(&hf::KNOBS).chain(engines)
}

/// A knob that some workload has for a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnobLine {
    /// Id of the knob.
    pub id: &'static str,
    /// Sentence for people.
    pub title: &'static str,
    /// Condition under which it applies.
    pub applies: &'static str,
}

/// Lists the knobs for a finding over all workloads.
///
/// ```
/// use roofgap_analyze::knobs::of_finding;
/// assert!(of_finding("launch-bound").any(|knob| knob.id == "hf.cuda_graphs"));
/// assert_eq!(of_finding("no-such-finding").count(), 0);
/// ```
pub fn of_finding(id: &str) -> impl Iterator<Item = KnobLine> {
    rules().filter(move |rule| rule.findings.contains(&id)).map(|rule| KnobLine {
        id: rule.id,
        title: rule.title,
        applies: rule.applies,
    })
}

/// Adds to each finding the knobs of the workload.
pub(crate) fn attach(analysis: &mut Analysis, workload: &WorkloadFacts, model: Option<&Architecture>) {
    let has_experts = model.is_some_and(|model| {
        let mut groups = model.decoder.groups.iter();
        groups.any(|group| matches!(group.mlp, Mlp::Experts(_)))
    });
    let command = match workload {
        WorkloadFacts::Program(program) => program.engine_command.as_deref(),
        _ => None,
    };
    let recorded = analysis.engine.as_ref().map(|engine| engine.name.as_str());
    let engine = command.or(recorded);
    let knobs_of = |finding: &Finding| -> Vec<Knob> {
        let case = Case { workload, finding, engine, has_experts };
        rules().filter_map(|rule| rule.knob(&case)).collect()
    };
    for finding in &mut analysis.findings {
        finding.knobs = knobs_of(finding);
    }
}
