//! The derivation of a finding with the numbers of a capture: the terms of its bound, and the rows that they come from.

use crate::bundle::Bundle;
use roofgap_analyze::findings::{Rows, explain};
use roofgap_analyze::{Finding, IdleCause, Kernel, ShortNames, Stage, idle_parts};
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
    /// Number of all gaps, kernels or steps.
    pub count: usize,
    /// Their sum, ns.
    pub total_ns: i64,
}

/// The gaps before one operation, the launches of a kernel, or steps of about the same length.
#[derive(Debug, Clone, Serialize)]
pub struct DerivationRow {
    /// Operation that ended the gaps, kernel, or length of the steps.
    pub name: String,
    /// Their time together, ns.
    pub ns: i64,
    /// Start of the longest gap after the first operation of the capture, ns; null for kernels and steps.
    pub at_ns: Option<i64>,
    /// Number of gaps, launches or steps.
    pub calls: u64,
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
    let (of, single) = match explain(&finding.id).map(|rule| rule.rows) {
        Some(Rows::Gaps(cause)) => (Some("gap"), gaps(bundle, at, cause)),
        Some(Rows::Kernels(families)) => {
            let kernels = stage.map_or(&bundle.analysis.kernels, |stage| &stage.kernels);
            let own = kernels.iter().filter(|row| families.is_empty() || families.contains(&row.family));
            let row = |row: &Kernel| (row.short_name.clone(), row.total_ns, None, row.calls);
            (Some("kernel"), own.map(row).collect())
        }
        Some(Rows::Steps) => (Some("step"), stage.map(steps).unwrap_or_default()),
        Some(Rows::Evidence) | None => (None, Vec::new()),
    };
    let (count, total_ns) = (single.len(), single.iter().map(|row| row.1).sum());
    Derivation { finding, of: of.filter(|_| count > 0), rows: together(single), count, total_ns }
}

/// A gap, the launches of a kernel, or a step: its name, its time, its start and the number that it stands for.
type Single = (String, i64, Option<i64>, u64);

/// Adds up what has one name; the longest first.
fn together(mut single: Vec<Single>) -> Vec<DerivationRow> {
    // The first of a name is its longest.
    single.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let row = |same: &[Single]| {
        let (name, _, at_ns, _) = same.first()?.clone();
        let (ns, calls) = (same.iter().map(|row| row.1).sum(), same.iter().map(|row| row.3).sum());
        Some(DerivationRow { name, ns, at_ns, calls })
    };
    let mut rows: Vec<DerivationRow> = single.chunk_by(|a, b| a.0 == b.0).filter_map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
    rows.truncate(MOST);
    rows
}

/// Lists the gaps of a stage with one cause.
fn gaps(bundle: Bundle<'_>, stage: Option<usize>, cause: IdleCause) -> Vec<Single> {
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
        Some((name, part.end - part.start, Some(part.start - first), 1))
    });
    own.collect()
}

/// Finds the operation of a device that ended a gap: the first from a moment on.
pub(crate) fn next_op(trace: &Trace, device: roofgap_trace::DeviceId, from: i64) -> Option<usize> {
    let at = trace.ops.start.partition_point(|start| *start < from);
    (at..trace.ops.len()).find(|op| trace.ops.device.get(*op) == Some(&device))
}

/// Lists the steps of a stage by their length.
fn steps(stage: &Stage) -> Vec<Single> {
    let steps = stage.warm().steps.as_ref();
    let single = |(median, ns): (i64, &i64)| {
        let name = match *ns as f64 / median.max(1) as f64 {
            times if times <= 1.1 => "up to 1.1 times the median",
            times if times <= 1.5 => "up to 1.5 times the median",
            times if times <= 2.0 => "up to 2 times the median",
            _ => "longer",
        };
        (name.to_owned(), *ns, None, 1)
    };
    let each = steps.into_iter().flat_map(|steps| steps.each_ns.iter().map(|ns| (steps.p50_ns, ns)));
    each.map(single).collect()
}
