//! Findings: savings, evidence, the sentence for no findings, and the derivation of a finding with the numbers of a capture.

use super::brief::largest_part;
use super::{Block, Document, Form, Item, Section, joined, joined_any, maybe};
use crate::Bundle;
use roofgap_analyze::findings::{Rows, explain, to_act_on};
use roofgap_analyze::{
    About, Analysis, Family, Finding, IdleCause, Kernel, Knob, Reason, ShortNames, Stage, StageLimit,
    idle_parts, verdict,
};
use roofgap_base::numbers::{NONE, count, si, significant, time};
use roofgap_trace::{DeviceId, OpKind, Trace};
use serde::Serialize;
use serde_json::Value;

/// Note on several findings.
pub const SAVINGS_OVERLAP: &str =
    "Each saving is an upper bound for that finding alone; savings overlap and do not add up.";

/// States the upper bound on the time a finding saves.
pub fn saving(analysis: &Analysis, finding: &Finding) -> String {
    let stage = spoken_stage(analysis, finding);
    let devices =
        stage_of(analysis, finding).map(|stage| stage.devices_per_instance).filter(|devices| *devices > 1.0);
    let mean = devices.map_or_else(String::new, |devices| format!(", the mean of {devices:.0} GPUs"));
    // A hint for the recording saves nothing.
    let does = if finding.id == "graphs-whole" { "hides" } else { "saves at most" };
    format!("{does} {} ({:.1} % of {stage}{mean})", time(finding.bound_ns), finding.bound_pct)
}

/// States the id of a finding, for `roofgap explain` and `roofgap try`, the upper bound on the time it saves, and its confidence. The id
/// comes first, where no narrow terminal cuts it.
pub fn saving_with_id(analysis: &Analysis, finding: &Finding) -> String {
    format!("[{}] {}, {}", finding.id, saving(analysis, finding), finding.confidence.as_str())
}

/// Lists all findings in the order of every report: those to act on, with the same in other stages, then these and what is part of
/// another.
pub fn in_order(findings: &[Finding]) -> Vec<(&Finding, Vec<&Finding>)> {
    let mut all = to_act_on(findings);
    for finding in findings {
        if !all.iter().any(|(listed, _)| std::ptr::eq(*listed, finding)) {
            all.push((finding, Vec::new()));
        }
    }
    all
}

/// Names the other stages that a finding is about too; `None` without any.
pub fn also_in(analysis: &Analysis, others: &[&Finding]) -> Option<String> {
    let stage = |other: &&Finding| {
        let (name, bound) = (spoken_stage(analysis, other), time(other.bound_ns));
        format!("{name} (at most {bound}, {:.1} %)", other.bound_pct)
    };
    joined_any(others.iter().map(stage), " and ").map(|stages| format!("the same in {stages}"))
}

/// States the upper bound on the time that a finding saves per token, where the tokens of its stage are known.
pub fn saving_per_token(analysis: &Analysis, finding: &Finding) -> Option<String> {
    let stage = stage_of(analysis, finding)?;
    let (token, elapsed) = (stage.token_ns?, stage.elapsed_ns());
    let saved = token as f64 * (finding.bound_ns as f64 / elapsed as f64).clamp(0.0, 1.0);
    (token > 0 && elapsed > 0)
        .then(|| format!("at most {} of the {} per token", time(saved.round() as i64), time(token)))
}

/// Says what would disprove a finding; `None` for a finding of an older analysis.
pub fn disproof(finding: &Finding) -> Option<String> {
    (!finding.disproof.is_empty()).then(|| format!("wrong if: {}", lower_first(&finding.disproof)))
}

/// Returns a sentence as the rest of another.
fn lower_first(sentence: &str) -> String {
    let mut rest = sentence.chars();
    rest.next().map_or_else(String::new, |first| first.to_lowercase().chain(rest).collect())
}

/// Names the stage of a finding in a sentence.
fn spoken_stage<'a>(analysis: &'a Analysis, finding: &'a Finding) -> &'a str {
    let stage = stage_of(analysis, finding).map(Stage::spoken);
    stage.or(finding.stage.as_deref()).unwrap_or("the measured launches")
}

/// Returns the stage that a finding is about.
pub fn stage_of<'a>(analysis: &'a Analysis, finding: &Finding) -> Option<&'a Stage> {
    analysis.stages.get(stage_at(analysis, finding)?)
}

/// Returns the position of the stage that a finding is about.
pub fn stage_at(analysis: &Analysis, finding: &Finding) -> Option<usize> {
    analysis.stages.iter().position(|stage| Some(&stage.name) == finding.stage.as_ref())
}

/// Returns the command that tries the changes of a finding, and the changes; `None` for a finding without any.
pub fn trial(finding: &Finding, run: &str) -> Option<(String, String)> {
    let changes = joined_any(finding.knobs.iter().map(Knob::spoken), "; ")?;
    Some((format!("roofgap try {run} {}", finding.id), changes))
}

/// Names of evidence whose key without its unit does not say what was measured.
const EVIDENCE_NAMES: [(&str, &str); 12] = [
    ("busy_ns", "busy time"),
    ("busy_pct", "busy share"),
    ("chain_ns", "time of chains"),
    ("communication_ns", "communication time"),
    ("compute_ns", "computation time"),
    ("copy_ns", "time of copies"),
    ("gemm_ns", "time of matrix products"),
    ("idle_ns", "idle time"),
    ("kernel_ns", "kernel time"),
    ("prefill_ns", "time of prefill"),
    ("small_kernel_ns", "time of small kernels"),
    ("wall_ns", "wall time"),
];

/// Returns the name of a piece of evidence, without the unit its value is shown with.
pub fn evidence_name(key: &str) -> String {
    if let Some((_, name)) = EVIDENCE_NAMES.iter().find(|(known, _)| *known == key) {
        return (*name).to_owned();
    }
    let bare = ["_ns", "_pct"].iter().find_map(|unit| key.strip_suffix(unit));
    bare.unwrap_or(key).replace('_', " ")
}

/// Formats a piece of evidence in the unit its key names.
pub fn evidence_value(key: &str, value: &Value) -> String {
    let number = match value {
        Value::Number(number) => number,
        Value::String(text) => return text.clone(),
        Value::Null => return NONE.into(),
        other => return other.to_string(),
    };
    let real = number.as_f64().unwrap_or(0.0);
    if key.ends_with("_ns") {
        time(real.round() as i64)
    } else if key.ends_with("_pct") {
        format!("{real:.1} %")
    } else if key.ends_with("bytes") {
        format!("{}B", si(real))
    } else if let Some(whole) = number.as_u64() {
        count(whole)
    } else {
        significant(real)
    }
}

/// Says why there is no finding, what takes the time, and which input would show more.
pub fn none_found(analysis: &Analysis) -> String {
    let limited = |limit| analysis.stages.iter().filter(move |stage| verdict(stage).label == limit);
    let busy = joined_any(limited(StageLimit::Gpu).map(|stage| largest(stage.warm())), " and ");
    let Some(busy) = busy else {
        let no_limit = [StageLimit::TooLittle, StageLimit::NotMeasured].into_iter().flat_map(limited).next();
        let little = no_limit.filter(|stage| stage.kernel_count > 0).map(|stage| verdict(stage).why);
        let about_kernels = |reason: &&Reason| reason.about == About::Kernels && analysis.kernels.is_empty();
        let none = || analysis.reasons.iter().find(about_kernels).map(|reason| reason.why.clone());
        let why = little.or_else(none);
        return format!("No findings: {}.", why.as_deref().unwrap_or("no rule applies to the data"));
    };
    let is_llm =
        analysis.engine.is_some() || analysis.kernels.iter().any(|kernel| kernel.family == Family::Attention);
    let no_model = is_llm && analysis.stages.iter().all(|stage| stage.mbu.is_none());
    let inputs = [(analysis.counters.is_empty(), "ncu counters"), (no_model, "the model")];
    let inputs = joined_any(inputs.iter().filter(|(missing, _)| *missing).map(|(_, input)| input), " and ");
    let next = maybe(inputs, |inputs| {
        format!(" Provide {inputs} to see how far they are from the hardware's roof.")
    });
    format!(
        "No findings: the GPU is busy in {busy}, so its kernels are the limit, and no rule saves 3 % or more.{next}"
    )
}

/// Names a stage, the kernels that take most of its kernel time, and how near to the roof its kernels are.
fn largest(stage: &Stage) -> String {
    let roof = stage.roof.roof_pct.map(|pct| format!("at {pct:.0} % of the roof"));
    let facts =
        maybe(joined_any(largest_part(stage).into_iter().chain(roof), ", "), |facts| format!(" ({facts})"));
    format!("{}{facts}", stage.spoken())
}

impl Document<'_> {
    /// Lists what to do, the largest saving first.
    pub(super) fn findings(&self) -> Section {
        let (analysis, found) = (self.analysis, &self.analysis.findings);
        let section = Section::new("findings", "What to do first");
        if self.is_page() {
            return section.with([Block::Drawing]);
        }
        let Some(first) = found.first() else {
            let known = !self.is_text() || !analysis.stages.is_empty() || !analysis.counters.is_empty();
            return section.with(known.then(|| Block::Line(none_found(analysis))));
        };
        let items = in_order(found).into_iter().map(|(finding, others)| self.finding(finding, &others));
        let more =
            format!("`roofgap explain {} CAPTURE` shows how it was computed and how to fix it", first.id);
        section.with([Block::Steps(items.collect())]).with(self.is_text().then_some(Block::Line(more)))
    }

    fn finding(&self, finding: &Finding, others: &[&Finding]) -> Item {
        let mut lines = vec![saving_with_id(self.analysis, finding)];
        lines.extend(also_in(self.analysis, others));
        lines.extend(finding.part_of.as_ref().map(|id| format!("part of {id}")));
        if self.form == Form::Report {
            let piece = |(key, value): (&String, &Value)| {
                format!("{} {}", evidence_name(key), evidence_value(key, value))
            };
            lines.push(format!("evidence: {}", joined(finding.evidence.iter().map(piece), ", ")));
        }
        lines.push(finding.action.clone());
        lines.extend(disproof(finding));
        let run = if self.is_text() { "RUN" } else { &self.context.title };
        lines.extend(trial(finding, run).map(|(command, changes)| format!("try: {command} ({changes})")));
        Item { name: finding.title.clone(), lines, ..Item::default() }
    }
}

/// Most rows of a derivation.
const DERIVED_ROWS: usize = 10;

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
    let (at, stage) = (stage_at(bundle.analysis, finding), stage_of(bundle.analysis, finding));
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
    rows.truncate(DERIVED_ROWS);
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
pub fn next_op(trace: &Trace, device: DeviceId, from: i64) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn evidence_has_its_unit() {
        assert_eq!(evidence_name("gap_per_launch_ns"), "gap per launch");
        assert_eq!(evidence_name("small_kernel_ns"), "time of small kernels");
        assert_eq!(evidence_name("small_kernels"), "small kernels");
        for (key, value, shown) in [
            ("gap_per_launch_ns", json!(1500.4), "1.50 µs"),
            ("busy_pct", json!(8.25), "8.2 %"),
            ("bytes", json!(2_000_000), "2.00 MB"),
            ("launches", json!(12345), "12,345"),
            ("kernel", json!("<b>"), "<b>"),
            ("x", json!(null), "–"),
        ] {
            assert_eq!(evidence_value(key, &value), shown);
        }
    }

    #[test]
    fn a_saving_per_token_is_its_share_of_the_stage() {
        let mut stage = Stage::default();
        (stage.name, stage.wall_ns, stage.token_ns) = ("decode".into(), 80_000, Some(10_000));
        let mut analysis = Analysis::default();
        analysis.stages = vec![stage];
        let mut finding = Finding::default();
        (finding.stage, finding.bound_ns) = (Some("decode".into()), 60_000);
        let shown = saving_per_token(&analysis, &finding);
        assert_eq!(shown.as_deref(), Some("at most 7.50 µs of the 10.0 µs per token"));
        analysis.stages[0].token_ns = None;
        assert_eq!(saving_per_token(&analysis, &finding), None);
    }
}
