//! What to do first: small rules over an analysis, each with its evidence, an upper bound on what it saves, and an action.
//!
//! `evidence` takes from the trace what the analysis does not keep (`collect` goes through its operations); every file of
//! `rules` is one kind of finding; `find` runs them all and ranks what they found. A rule whose data is not there finds nothing.

mod collect;
mod draft;
mod evidence;
mod occupancy;
mod rules;

#[cfg(test)]
mod tests;

pub use draft::count;
pub(crate) use evidence::evidence;
pub use evidence::{ChainUse, CommunicationUse, CopyUse, DeviceUse, ShapeUse, StageEvidence, SyncUse};
pub use occupancy::{Limit, Occupancy, occupancy};

use crate::counters::Measured;
use crate::model::Architecture;
use crate::result::{Analysis, Finding, Stage};

/// All that the rules may look at.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The analysis so far.
    pub analysis: &'a Analysis,
    /// What the trace shows beside it, by stage; empty where there is no timeline.
    pub evidence: &'a [StageEvidence],
    /// The model, where it is known.
    pub model: Option<&'a Architecture>,
    /// Counters joined with the timeline; empty where there are none.
    pub counters: &'a [Measured],
}

/// One stage as the rules see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) inputs: Inputs<'a>,
    pub(crate) stage: &'a Stage,
    pub(crate) evidence: Option<&'a StageEvidence>,
}

impl<'a> View<'a> {
    /// Counters of this stage that show what the timeline shows: matched, and of a like duration.
    pub(crate) fn counters(&self) -> impl Iterator<Item = &'a Measured> {
        let name = self.stage.name.as_str();
        self.inputs.counters.iter().filter(move |row| {
            row.matched && row.representative != Some(false) && row.row.stage.as_deref() == Some(name)
        })
    }
}

/// Runs every rule on every stage and ranks the findings by the time they could save; the price of watching comes last.
#[must_use]
pub fn find(inputs: Inputs<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for stage in inputs.analysis.stages.iter().filter(|stage| stage.wall_ns > 0) {
        let evidence = inputs
            .evidence
            .iter()
            .find(|evidence| evidence.stage == stage.name);
        let view = View {
            inputs,
            stage,
            evidence,
        };
        for rule in rules::ALL {
            rule(&view, &mut findings);
        }
    }
    // What only the profiler costs is nothing to fix in the program: it stands behind all that is.
    let of_the_profiler = |finding: &Finding| finding.id == rules::PROFILER_OVERHEAD;
    findings.sort_by(|a, b| {
        of_the_profiler(a)
            .cmp(&of_the_profiler(b))
            .then_with(|| b.bound_ns.cmp(&a.bound_ns))
            .then_with(|| a.id.cmp(&b.id))
            .then_with(|| a.stage.cmp(&b.stage))
    });
    findings
}
