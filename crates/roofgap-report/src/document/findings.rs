//! Findings: savings, evidence, the sentence for no findings, and the derivation of a finding with the numbers of a capture.

use super::brief::largest_part;
use super::{Block, Document, Form, Item, Section, joined, joined_any, maybe};
use crate::Bundle;
use roofgap_analyze::findings::{Rows, explain, to_act_on};
use roofgap_analyze::{
    About, Analysis, Finding, IdleCause, Kernel, Knob, Prediction, SavingBasis, ShortNames, Stage,
    StageLimit, SteadyUnit, idle_parts, verdict,
};
use roofgap_base::numbers::{NONE, count, si, significant, time};
use roofgap_base::text::cut;
use roofgap_trace::{DeviceId, OpKind, Trace};
use serde::Serialize;
use serde_json::Value;

/// Note on several findings.
pub const SAVINGS_OVERLAP: &str = "Each saving is that of one finding alone, replayed or an upper bound; savings overlap and do not add up.";

/// States the time of a step now and with changes, and its interval.
pub fn prediction(step: &Prediction) -> String {
    let [now, after, low, high] = [step.now_ns, step.after_ns, step.low_ns, step.high_ns].map(time);
    let how = match (step.unprofiled, step.how) {
        (true, _) => "without the profiler",
        (false, SavingBasis::Modelled) => "modelled",
        (false, _) => "under the profiler",
    };
    format!("{now} -> {after} ({low} to {high}), {how}")
}

/// States the predicted saving of a finding; without a prediction, its upper bound.
pub fn saving(analysis: &Analysis, finding: &Finding) -> String {
    if let Some(saves) = finding.saves {
        let after = |pct: f64| time((saves.of as f64 * (1.0 - pct / 100.0)).round() as i64);
        let unit = match stage_of(analysis, finding).and_then(|stage| stage.warm().steady.as_ref()) {
            Some(steady) if steady.unit == SteadyUnit::Step => " a step",
            _ => "",
        };
        let (now, stage) = (time(saves.of), spoken_stage(analysis, finding));
        let [likely, low, high] = [saves.pct, saves.high_pct, saves.low_pct].map(after);
        return format!("{stage}: {now} -> {likely}{unit} ({low} to {high})");
    }
    let devices = stage_of(analysis, finding).map(|stage| stage.devices_per_instance);
    let mean =
        maybe(devices.filter(|number| *number > 1.0), |number| format!(", the mean of {number:.0} GPUs"));
    // A hint for the recording saves nothing.
    let does = if finding.id == "graphs-whole" { "hides" } else { "saves at most" };
    let stage = spoken_stage(analysis, finding);
    format!("{does} {} ({:.1} % of {stage}{mean})", time(finding.bound_ns), finding.bound_pct)
}

/// States the id of a finding, for `roofgap explain` and `roofgap try`, the upper bound on the time it saves, and its confidence. The id
/// comes first, where no narrow terminal cuts it.
pub fn saving_with_id(analysis: &Analysis, finding: &Finding) -> String {
    let how = finding.saves.map_or(finding.confidence.as_str(), |saves| saves.how.as_str());
    format!("[{}] {}, {how}", finding.id, saving(analysis, finding))
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
    let mut rest = finding.disproof.chars();
    let first = rest.next()?;
    Some(format!("wrong if: {}{}", first.to_lowercase(), rest.as_str()))
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

/// Most characters of a piece of evidence: names of kernels have thousands.
const EVIDENCE: usize = 120;

/// Returns the name of a piece of evidence, without the unit its value is shown with.
pub fn evidence_name(key: &str) -> String {
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

/// Share of the time from which on a GPU counts as busy in all of it.
const BUSY: f64 = 0.9;

/// Says why there is no finding, what takes the time, and which input would show more.
pub fn none_found(analysis: &Analysis) -> String {
    let limited = |limit| analysis.stages.iter().filter(move |stage| verdict(stage).label == limit);
    let busy = joined_any(limited(StageLimit::Gpu).map(|stage| largest(stage.warm())), " and ");
    let Some(busy) = busy else {
        let no_limit = [StageLimit::TooLittle, StageLimit::NotMeasured].into_iter().flat_map(limited).next();
        let little = no_limit.filter(|stage| stage.kernel_count > 0).map(|stage| verdict(stage).why);
        let none = analysis.reason(&About::Kernels).filter(|_| analysis.kernels.is_empty());
        let why = little.as_deref().or(none).unwrap_or(match analysis.counters.iter().all(|row| row.sm_pct.is_none()) {
            true if !analysis.counters.is_empty() => {
                "the report has no throughput of the multiprocessors and of memory; record it with ncu's section SpeedOfLight"
            }
            _ => "no rule applies to the data",
        });
        return format!("No findings: {why}.");
    };
    let next =
        if analysis.counters.is_empty() { "; ncu counters show how far they are from the roof" } else { "" };
    let mut idle = limited(StageLimit::Gpu).map(Stage::warm);
    if let Some(stage) = idle.find(|stage| stage.busy_share().is_some_and(|share| share < BUSY)) {
        let (why, part) = (verdict(stage).why, largest(stage));
        return format!("No findings: {why}; no rule finds 3 % or more to save in {part}{next}.");
    }
    format!(
        "No findings: the GPU is busy in {busy}, so its kernels are the limit, and no rule finds 3 % or more to save{next}."
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
        let (analysis, findings) = (self.analysis, &self.analysis.findings);
        let section = Section::new("findings", "What to do first");
        let Some(first) = findings.first() else {
            let known = !self.is_text() || !analysis.stages.is_empty() || !analysis.counters.is_empty();
            return section.with(known.then(|| Block::Line(none_found(analysis))));
        };
        let items = in_order(findings).into_iter().map(|(finding, others)| self.finding(finding, &others));
        let more =
            format!("`roofgap explain {} CAPTURE` shows how it was computed and how to fix it", first.id);
        section.with([Block::Steps(items.collect())]).with(self.is_text().then_some(Block::Line(more)))
    }

    fn finding(&self, finding: &Finding, others: &[&Finding]) -> Item {
        let piece = |(key, value): (&String, &Value)| {
            format!("{} {}", evidence_name(key), cut(&evidence_value(key, value), EVIDENCE))
        };
        let evidence = || format!("evidence: {}", joined(finding.evidence.iter().map(piece), ", "));
        let run = if self.is_text() { "RUN" } else { &self.context.title };
        let lines = [
            Some(saving_with_id(self.analysis, finding)),
            also_in(self.analysis, others),
            finding.part_of.as_ref().map(|id| format!("part of {id}")),
            (self.form == Form::Report).then(evidence),
            Some(finding.action.clone()),
            disproof(finding),
            trial(finding, run).map(|(command, changes)| format!("try: {command} ({changes})")),
        ];
        Item { name: finding.title.clone(), lines: lines.into_iter().flatten().collect(), ..Item::default() }
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
    let (kind, single) = match explain(&finding.id).map(|rule| rule.rows) {
        Some(Rows::Gaps(cause)) => ("gap", gaps(bundle, at, cause)),
        Some(Rows::Kernels(families)) => {
            let kernels = stage.map_or(&bundle.analysis.kernels, |stage| &stage.kernels);
            let listed = kernels.iter().filter(|row| families.is_empty() || families.contains(&row.family));
            let row = |listed: &Kernel| DerivationRow {
                name: listed.short_name.clone(),
                ns: listed.total_ns,
                at_ns: None,
                calls: listed.calls,
            };
            ("kernel", listed.map(row).collect())
        }
        Some(Rows::Steps) => ("step", stage.map(steps).unwrap_or_default()),
        Some(Rows::Evidence) | None => ("", Vec::new()),
    };
    let (count, total_ns) = (single.len(), single.iter().map(|row| row.ns).sum());
    Derivation { finding, of: (count > 0).then_some(kind), rows: together(single), count, total_ns }
}

/// Adds up what has one name; the longest first. The start is that of the longest of a name.
fn together(mut single: Vec<DerivationRow>) -> Vec<DerivationRow> {
    single.sort_by(|a, b| a.name.cmp(&b.name).then(b.ns.cmp(&a.ns)));
    let mut rows: Vec<DerivationRow> = Vec::new();
    for next in single {
        match rows.last_mut().filter(|row| row.name == next.name) {
            Some(row) => (row.ns, row.calls) = (row.ns + next.ns, row.calls + next.calls),
            None => rows.push(next),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
    rows.truncate(DERIVED_ROWS);
    rows
}

/// Lists the gaps of a stage with one cause.
fn gaps(bundle: Bundle<'_>, stage: Option<usize>, cause: IdleCause) -> Vec<DerivationRow> {
    let (Some(trace), Some(stage)) = (bundle.trace, stage) else {
        return Vec::new();
    };
    let (names, stage) = (ShortNames::of(bundle.analysis), bundle.stages.warm(stage));
    let first = trace.ops.start.first().copied().unwrap_or(0);
    let parts = idle_parts(trace, bundle.stages);
    let rows = parts.iter().filter(|part| part.cause == cause).filter_map(|part| {
        let op = next_op(trace, part.device, part.end).filter(|op| bundle.stages.holds(stage, *op))?;
        let name = match trace.ops.kind.get(op)? {
            OpKind::Kernel => names.get(trace.names.get(*trace.ops.name.get(op)?)),
            OpKind::Graph => "a CUDA graph".to_owned(),
            OpKind::Copy => "a copy".to_owned(),
            OpKind::Set => "a memory set".to_owned(),
        };
        Some(DerivationRow { name, ns: part.end - part.start, at_ns: Some(part.start - first), calls: 1 })
    });
    rows.collect()
}

/// Finds the operation of a device that ended a gap: the first from a moment on.
pub fn next_op(trace: &Trace, device: DeviceId, from: i64) -> Option<usize> {
    let at = trace.ops.start.partition_point(|start| *start < from);
    (at..trace.ops.len()).find(|op| trace.ops.device.get(*op) == Some(&device))
}

/// Lists the steps of a stage by their length.
fn steps(stage: &Stage) -> Vec<DerivationRow> {
    let Some(steps) = &stage.warm().steps else { return Vec::new() };
    let row = |ns: &i64| {
        let name = match *ns as f64 / steps.p50_ns.max(1) as f64 {
            times if times <= 1.1 => "up to 1.1 times the median",
            times if times <= 1.5 => "up to 1.5 times the median",
            times if times <= 2.0 => "up to 2 times the median",
            _ => "longer",
        };
        DerivationRow { name: name.to_owned(), ns: *ns, at_ns: None, calls: 1 }
    };
    steps.each_ns.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn evidence_has_its_unit() {
        assert_eq!(evidence_name("gap_per_launch_ns"), "gap per launch");
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
