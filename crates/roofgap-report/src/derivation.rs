//! The derivation of a finding with the numbers of a capture: the terms of its bound, and the rows that they come from.

use crate::bundle::Bundle;
use roofgap_analyze::findings::{Rows, explain};
use roofgap_analyze::{Finding, IdleCause, ShortNames, Stage, idle_parts};
use roofgap_trace::{OpKind, Trace};
use serde::Serialize;

/// Most rows of a derivation.
const MOST: usize = 10;

/// The derivation of one finding.
#[derive(Debug, Clone, Serialize)]
pub struct Derivation<'a> {
    /// Finding with its terms and evidence.
    pub finding: &'a Finding,
    /// Kind of the rows: `gap`, `kernel` or `step`; null for a finding whose numbers are all in its evidence.
    pub of: Option<&'static str>,
    /// Rows, longest first.
    pub rows: Vec<DerivationRow>,
    /// Number of all rows.
    pub count: usize,
    /// Their sum, ns.
    pub total_ns: i64,
}

/// A gap, a kernel or a step.
#[derive(Debug, Clone, Serialize)]
pub struct DerivationRow {
    /// Operation that ended the gap, kernel, or number of the step.
    pub name: String,
    /// Time, ns.
    pub ns: i64,
    /// Start after the first operation of the capture, ns; null for a sum.
    pub at_ns: Option<i64>,
    /// Number of launches; null for a gap or a step.
    pub calls: Option<u64>,
}

/// Derives the findings of a rule.
pub fn derivations<'a>(bundle: Bundle<'a>, id: &str) -> Vec<Derivation<'a>> {
    let findings = bundle.analysis.findings.iter().filter(|finding| finding.id == id);
    findings.map(|finding| derivation(bundle, finding)).collect()
}

fn derivation<'a>(bundle: Bundle<'a>, finding: &'a Finding) -> Derivation<'a> {
    let stages = &bundle.analysis.stages;
    let at = stages.iter().position(|stage| Some(&stage.name) == finding.stage.as_ref());
    let stage = at.and_then(|at| stages.get(at));
    let (of, mut rows) = match explain(&finding.id).map(|rule| rule.rows) {
        Some(Rows::Gaps(cause)) => (Some("gap"), gaps(bundle, at, cause)),
        Some(Rows::Kernels(families)) => {
            let kernels = stage.map_or(&bundle.analysis.kernels, |stage| &stage.kernels);
            let own = kernels.iter().filter(|row| families.is_empty() || families.contains(&row.family));
            let row = own.map(|row| DerivationRow {
                name: row.short_name.clone(),
                ns: row.total_ns,
                at_ns: None,
                calls: Some(row.calls),
            });
            (Some("kernel"), row.collect())
        }
        Some(Rows::Steps) => (Some("step"), stage.map(steps).unwrap_or_default()),
        Some(Rows::Evidence) | None => (None, Vec::new()),
    };
    rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
    let (count, total_ns) = (rows.len(), rows.iter().map(|row| row.ns).sum());
    rows.truncate(MOST);
    Derivation { finding, of: of.filter(|_| count > 0), rows, count, total_ns }
}

/// Lists the gaps of a stage with one cause.
fn gaps(bundle: Bundle<'_>, stage: Option<usize>, cause: IdleCause) -> Vec<DerivationRow> {
    let (Some(trace), Some(stage)) = (bundle.trace, stage) else {
        return Vec::new();
    };
    let (names, stage) = (ShortNames::of(bundle.analysis), bundle.stages.warm(stage));
    let first = trace.ops.start.first().copied().unwrap_or(0);
    let parts = idle_parts(trace, bundle.stages);
    let own = parts.iter().filter(|part| part.cause == cause).filter_map(|part| {
        let op = next_op(trace, part.device, part.end).filter(|op| bundle.stages.holds(stage, *op))?;
        let name = match trace.ops.kind.get(op)? {
            OpKind::Kernel => names.get(trace.names.get(*trace.ops.name.get(op)?)),
            OpKind::Graph => "a CUDA graph".to_owned(),
            OpKind::Copy => "a copy".to_owned(),
            OpKind::Set => "a memory set".to_owned(),
        };
        Some(DerivationRow { name, ns: part.end - part.start, at_ns: Some(part.start - first), calls: None })
    });
    own.collect()
}

/// Finds the operation of a device that ended a gap: the first from a moment on.
fn next_op(trace: &Trace, device: roofgap_trace::DeviceId, from: i64) -> Option<usize> {
    let at = trace.ops.start.partition_point(|start| *start < from);
    (at..trace.ops.len()).find(|op| trace.ops.device.get(*op) == Some(&device))
}

fn steps(stage: &Stage) -> Vec<DerivationRow> {
    let each = stage.steps.iter().flat_map(|steps| &steps.each_ns);
    let row = |(at, ns): (usize, &i64)| DerivationRow {
        name: format!("step {}", at + 1),
        ns: *ns,
        at_ns: None,
        calls: None,
    };
    each.enumerate().map(row).collect()
}
