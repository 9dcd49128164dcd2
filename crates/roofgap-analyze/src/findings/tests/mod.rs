//! The rules on real captures, and each on an input made for it.

mod constructed;
mod counted;
mod every_rule;
mod evidence;
mod explanations;
mod real;
mod recompute;
mod serving;

use super::{Inputs, LaunchGap, StageEvidence, add_of_job, find, to_act_on};
use crate::result::{Analysis, Finding};

fn findings(analysis: &Analysis, evidence: &[StageEvidence]) -> Vec<Finding> {
    find(Inputs { analysis, evidence, model: None, counters: &[], engine: None })
}

fn ids(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.id.as_str()).collect()
}

fn one<'a>(findings: &'a [Finding], id: &str) -> &'a Finding {
    let mut found = findings.iter().filter(|finding| finding.id == id);
    let first = found.next().unwrap_or_else(|| panic!("no {id} in {:?}", ids(findings)));
    assert!(found.next().is_none(), "more than one {id}");
    first
}
