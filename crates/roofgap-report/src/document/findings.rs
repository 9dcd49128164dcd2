//! Findings: savings, evidence, and the sentence for no findings.

use super::{Block, Document, Form, Item, Section, joined, joined_any, kernels, maybe};
use roofgap_analyze::findings::to_act_on;
use roofgap_analyze::{Analysis, Finding, Knob, Stage, StageLimit, verdict};
use roofgap_base::numbers::{NONE, count, si, significant, time};
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
    analysis.stages.iter().find(|stage| Some(&stage.name) == finding.stage.as_ref())
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
        let little = limited(StageLimit::TooLittle).next().map(|stage| verdict(stage).why);
        return format!("No findings: {}.", little.as_deref().unwrap_or("no rule applies to the data"));
    };
    let no_model = analysis.stages.iter().all(|stage| stage.mbu.is_none());
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
    let family = kernels::largest_family(stage).map(|(family, share)| format!("{family} {share:.0} %"));
    let roof = stage.roof.roof_pct.map(|pct| format!("at {pct:.0} % of the roof"));
    let facts = maybe(joined_any(family.into_iter().chain(roof), ", "), |facts| format!(" ({facts})"));
    format!("{}{facts}", stage.name)
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
        let explain =
            format!("`roofgap explain {} CAPTURE` shows how it was computed and how to fix it", first.id);
        section.with([Block::Steps(items.collect())]).with(self.is_text().then_some(Block::Line(explain)))
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
