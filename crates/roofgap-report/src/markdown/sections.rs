//! Sections that several reports share.

use crate::bundle::Bundle;
use crate::view;
use crate::view::kernels::{operator_scope, operators as operator_table};
use crate::view::provenance::{self, missing};
use crate::view::table::{capitalized, escape, escape_line};
use crate::view::{
    findings as findings_view, headline, measured, ranges, roof, stage1 as stage1_view,
    stages as stages_view, trial as trial_view, utilisation as utilisation_view,
};
use roofgap_analyze::{About, Analysis, RequestStats, Serving, verdict};
use std::fmt::Write;

/// Columns of the table of stages.
const STAGES: [&str; 15] = [
    "stage",
    "instances",
    "wall ms",
    "time ms",
    "CPU wall ms",
    "GPU busy ms",
    "busy %",
    "idle ms",
    stages_view::REST[0],
    stages_view::REST[1],
    stages_view::REST[2],
    stages_view::REST[3],
    "kernel ms",
    "kernels",
    "launches",
];

/// Columns of the table of idle time by cause.
const IDLE: [&str; 5] = ["stage", "idle: launch ms", "sync ms", "copy ms", "other ms"];

/// Columns of the table of ncu's rules.
const RULES: [&str; 5] = ["kernel", "launches", "rule", "kind", "estimated saving"];

/// The most ranges listed for a capture without stages.
const RANGES: usize = 30;

/// Renders the environment.
pub fn environment(bundle: Bundle<'_>) -> String {
    let table = provenance::environment(bundle);
    if table.is_empty() { "Unknown: nothing was recorded.\n".into() } else { table.markdown() }
}

/// Renders the table of stages with a verdict for each. `causes` adds idle time by cause and the reason of each verdict.
pub fn stages(analysis: &Analysis, causes: bool) -> String {
    if analysis.stages.is_empty() {
        let mut out = format!("{}\n", escape_line(&missing(analysis, &About::Stages)));
        let rows = ranges::rows(analysis);
        if !rows.is_empty() {
            let table = ranges::table(&rows, RANGES).markdown();
            let _ = write!(out, "\nRanges in the input:\n\n{table}");
        }
        return out;
    }
    let table = stages_view::table(analysis);
    let columns = roof::columns(&STAGES, &roof::of_stages(&analysis.stages));
    let mut out = table.pick(&columns).markdown();
    if causes && analysis.stages.iter().any(|stage| stage.idle.is_some()) {
        let _ = write!(out, "\n{}", table.pick(&IDLE).markdown());
    }
    if let Some(note) = stages_view::columns_note(&analysis.stages) {
        let _ = writeln!(out, "\n{note}");
    }
    out.push('\n');
    for stage in &analysis.stages {
        let verdict = verdict(stage);
        let _ = write!(out, "- **{}**: {}", escape(&stage.name), verdict.label);
        if causes {
            let _ = write!(out, ": {}", verdict.why);
        }
        if stages_view::own_times(stage) {
            out.push_str(" (times reported by the program)");
        }
        out.push_str(".\n");
        for line in stages_view::details(stage) {
            let _ = writeln!(out, "  - {}.", escape_line(&line));
        }
    }
    out
}

/// Renders the headline and the numbers of one run.
pub fn summary(analysis: &Analysis) -> String {
    let per_run = headline::per_run(analysis).map(|line| format!("{}.", capitalized(&line)));
    let lines = headline::headline(analysis).into_iter().chain(per_run);
    let lines: Vec<String> = lines.map(|line| format!("{}\n", escape_line(&line))).collect();
    lines.join("\n")
}

/// Renders MFU and MBU of each stage, and why some are missing.
pub fn utilisation(analysis: &Analysis) -> String {
    let table = utilisation_view::table(analysis);
    let mut out = if table.is_empty() { String::new() } else { table.markdown() };
    let mut lines = utilisation_view::sources(analysis);
    lines.extend(utilisation_view::missing(analysis));
    if !lines.is_empty() {
        out.push('\n');
    }
    for line in lines {
        let _ = writeln!(out, "- {}", escape_line(&line));
    }
    out
}

/// Renders the first findings, with their evidence or without.
pub fn findings(bundle: Bundle<'_>, most: usize, evidence: bool) -> String {
    let analysis = bundle.analysis;
    if analysis.findings.is_empty() {
        return format!("{}\n", escape_line(&findings_view::none_found(analysis)));
    }
    let mut out = String::new();
    for (i, finding) in analysis.findings.iter().take(most).enumerate() {
        let _ = writeln!(out, "{}. **{}**", i + 1, escape_line(&finding.title));
        let _ = writeln!(out, "   - {}", escape_line(&findings_view::saving_with_id(analysis, finding)));
        if evidence {
            let pieces = finding.evidence.iter().map(|(key, value)| {
                let value = findings_view::evidence_value(key, value);
                format!("{} {value}", findings_view::evidence_name(key))
            });
            let list = pieces.collect::<Vec<_>>().join(", ");
            let _ = writeln!(out, "   - evidence: {}", escape_line(&list));
        }
        let _ = writeln!(out, "   - {}", escape_line(&finding.action));
        if let Some(line) = findings_view::to_try(finding, &bundle.context.title) {
            let _ = writeln!(out, "   - {}", escape_line(&line));
        }
    }
    out
}

/// Renders the changes that were tried; `None` where none were.
pub fn tried(bundle: Bundle<'_>) -> Option<String> {
    let trials = bundle.context.trials.as_ref()?;
    let trial = trials.latest()?;
    let mut out = String::new();
    for line in trial_view::headline(trials).iter().map(String::as_str).chain([trial_view::MEANING]) {
        let _ = writeln!(out, "{}\n", escape_line(line));
    }
    if !trial.rows.is_empty() {
        let _ = writeln!(out, "{}", trial_view::table(trial).measured().markdown());
    }
    if let Some(times) = trial_view::times(trial) {
        let _ = writeln!(out, "{}\n\n{}", trial_view::TIMES, times.measured().markdown());
    }
    let cost = trial_view::cost(trial);
    for line in trial_view::sentences(trial).into_iter().chain([cost]) {
        let _ = writeln!(out, "- {}", escape_line(&line));
    }
    Some(out)
}

/// Renders the kernels that ncu measured without a timeline: the table and a verdict for each.
pub fn measured_kernels(analysis: &Analysis, most: usize) -> String {
    if analysis.kernels.is_empty() {
        return format!("{}\n", escape_line(&missing(analysis, &About::Kernels)));
    }
    let mut out = format!("{}.\n\n", escape_line(&capitalized(&measured::summary(analysis))));
    out.push_str(&measured::table(analysis, most).markdown());
    let more = analysis.kernels.len().saturating_sub(most);
    if more > 0 {
        let _ = writeln!(out, "\n{more} more are in `metrics.json`.");
    }
    let _ = writeln!(out, "\n{}\n", measured::OF_LARGEST);
    for line in measured::verdicts(analysis, most) {
        let _ = writeln!(out, "- {}", escape_line(&line));
    }
    out
}

/// Renders the first results of ncu's own rules.
pub fn ncu_rules(analysis: &Analysis, most: usize) -> String {
    let mut out = measured::rules(analysis, most).pick(&RULES).markdown();
    out.push('\n');
    for rule in analysis.ncu_rules.iter().take(most) {
        let text: Vec<&str> = rule.text.split_whitespace().collect();
        let _ = writeln!(out, "- {}: {}", escape(&rule.rule), escape_line(&text.join(" ")));
    }
    if let Some(more) = measured::more_rules(analysis, most) {
        let _ = writeln!(out, "\n{more}.");
    }
    out
}

/// Renders the first operators, or why there are none.
pub fn operators(analysis: &Analysis, most: usize) -> String {
    if analysis.operators.is_empty() {
        return format!("{}\n", escape_line(&missing(analysis, &About::Operators)));
    }
    let table = operator_table(analysis, most).markdown();
    format!("{}.\n\n{table}", escape_line(&operator_scope(analysis)))
}

/// Renders the requests that a load generator sent to the server.
pub fn requests(analysis: &Analysis, requests: &RequestStats) -> String {
    let mut out = view::requests::table(requests).markdown();
    let lines = view::requests::sentences(requests).into_iter();
    for line in lines.chain(view::requests::against_steps(analysis)) {
        let _ = write!(out, "\n- {}", escape_line(&line));
    }
    out.push('\n');
    out
}

/// Renders the steps of a serving engine together.
pub fn serving(analysis: &Analysis, serving: &Serving) -> String {
    let mut out = String::new();
    for line in view::serving::sentences(analysis) {
        let _ = writeln!(out, "- {}", escape_line(&line));
    }
    let own = [view::serving::over_time(serving), view::serving::batches(serving)];
    let latency = serving.latency.iter().flat_map(view::serving::latency);
    for table in own.into_iter().chain(latency).filter(|table| !table.is_empty()) {
        let _ = write!(out, "\n{}", table.markdown());
    }
    if serving.latency.is_some() {
        let _ = writeln!(out, "\n{}", view::serving::LATENCY);
    }
    out
}

/// Renders the figures of a Stage 1 runner, if one ran the model.
pub fn stage1(analysis: &Analysis, most: usize) -> Option<String> {
    let figures = analysis.stage1.as_ref()?;
    let mut out = format!(
        "{}\n\n{}\n{}",
        escape_line(&stage1_view::source(analysis, figures)),
        stage1_view::times(analysis, figures).markdown(),
        stage1_view::rates(figures).markdown()
    );
    if !figures.operators.is_empty() {
        let table = stage1_view::operators(figures, most).markdown();
        let _ = write!(out, "\n{}\n\n{table}", stage1_view::OPERATOR_TIMES);
    }
    Some(out)
}
