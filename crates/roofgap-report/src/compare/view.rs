//! The sections of a comparison, which text, Markdown and HTML render. Every sentence is computed from the rows below it.

use crate::document::stages::once_each;
use crate::document::table::Table;
use crate::document::{Block, Section, joined_any, maybe};
use crate::render::screen::Tone;
use roofgap_analyze::compare::{
    Basis, Change, Comparison, Difference, GateOutcome, GateResult, Judgement, KernelChange, KernelSide,
    KernelStatus, METRICS, Metric, Part, StageChange, TOTAL,
};
use roofgap_analyze::short_name;
use roofgap_base::exit::Exit;
use roofgap_base::numbers::{NONE, ms, time, us};

/// Lists the differences of the two sides, what is unknown on both, and what only one has.
pub fn facts(comparison: &Comparison) -> Vec<String> {
    let base = comparison.stages_gone.iter().map(|name| (name, "base"));
    let head = comparison.stages_added.iter().map(|name| (name, "head"));
    let one_sided = base.chain(head).map(|(name, side)| format!("stage {name} is on the {side} only"));
    let unchecked =
        joined_any(&comparison.unchecked, ", ").map(|facts| format!("unknown on both sides: {facts}"));
    let difference = |Difference { what, base, head, meaning, .. }: &Difference| {
        let [base, head] = [base, head].map(|side| side.as_deref().unwrap_or("unknown"));
        format!("{what}: {base} against {head}; {meaning}")
    };
    comparison.differences.iter().map(difference).chain(unchecked).chain(one_sided).collect()
}

/// Returns the stages that both sides have; without any, the whole trace.
fn stages(comparison: &Comparison) -> &[StageChange] {
    match comparison.stages.as_slice() {
        [] => std::slice::from_ref(&comparison.total),
        stages => stages,
    }
}

/// Returns the sections after the facts: gates and stages, each with the most rows of kernels.
pub fn sections(comparison: &Comparison, most: usize) -> Vec<Section> {
    let gates = Table::of(&comparison.gates)
        .text("gate", |gate| &gate.gate)
        .judged("outcome", |gate| judged(gate.outcome.as_str()))
        .text("why", |gate| &gate.why)
        .build();
    let mut sections = vec![Section::new("", "Gates").with(Block::table(gates))];
    for stage in stages(comparison) {
        let does_compare = matches!(stage.basis, Basis::Whole | Basis::Instance);
        let noise = stage.number("wall_ns").noise;
        let noise = noise.map(|_| format!("noise of wall time: {}", stage.wall_noise_from));
        let no_parts = || format!("no breakdown of the change: {}", comparison.because(&stage.name));
        let parts = does_compare.then(|| parts(stage)).and_then(Block::table);
        sections.extend([
            Section::new("", stage.name.as_str())
                .with(Block::table(numbers(stage)))
                .with(noise.into_iter().chain(outlier(stage)).map(Block::Note))
                .with((!does_compare).then(|| Block::Missing(no_parts()))),
            Section::new("", "Breakdown of the change of wall time").with(parts).inner(),
            Section::new("", "Kernels that changed").with(kernels(&stage.kernels, most)).inner(),
        ]);
    }
    sections.retain(|section| !section.blocks.is_empty());
    sections
}

/// Returns a judgement as words, with its tone.
fn judged(word: &str) -> (String, Option<Tone>) {
    let tone = match word {
        "better" | "faster" | "fewer_calls" | "held" => Some(Tone::Good),
        "worse" | "slower" | "broken" => Some(Tone::Bad),
        "unclear" | "more_calls" | "within_noise" | "not_measured" => Some(Tone::Notice),
        _ => None,
    };
    (if word == "unknown" { NONE.to_owned() } else { word.replace('_', " ") }, tone)
}

/// Describes the step that is the furthest from the others.
fn outlier(stage: &StageChange) -> Option<String> {
    let own = stage.outliers.iter().max_by_key(|own| own.excess_ns)?;
    let (step, side, ns, more) = (own.step, own.side, time(own.ns), time(own.excess_ns));
    let rest = "outliers are part of the wall time, not of the step time and the noise";
    Some(format!("step {step} of the {side} is an outlier: {ns}, {more} more than usual; {rest}"))
}

fn numbers(stage: &StageChange) -> Table {
    // What is nothing on both sides has no row.
    let is_zero = |value: Option<f64>| value.is_none_or(|value| value == 0.0);
    let rows: Vec<(&Metric, Change)> = METRICS
        .iter()
        .map(|metric| (metric, metric.of(&stage.numbers)))
        .filter(|(_, change)| !is_zero(change.base) || !is_zero(change.head))
        .collect();
    let show = |metric: &Metric, value: Option<f64>| {
        value.map(|value| match metric.field {
            "token_ns" => us(value as i64),
            _ if metric.is_time() => ms(value as i64),
            _ => format!("{value:.2}"),
        })
    };
    Table::of(&rows)
        .text("", |(metric, _)| metric.label)
        .number("base", |(metric, change)| show(metric, change.base))
        .number("head", |(metric, change)| show(metric, change.head))
        .number("change %", |(_, change)| change.delta_pct.map(signed))
        .number("noise", |(metric, change)| show(metric, change.noise))
        .judged("is", |(_, change)| judged(change.judgement.as_str()))
        .build()
}

/// Formats a change with a sign. What rounds to nothing has none.
fn signed(pct: f64) -> String {
    match format!("{pct:+.1}") {
        nothing if matches!(nothing.as_str(), "-0.0" | "+0.0") => "0.0".to_owned(),
        text => text,
    }
}

/// Formats a change of time as milliseconds with a sign.
fn signed_ms(ns: i64) -> String {
    let sign = if ns < 0 { "" } else { "+" };
    format!("{sign}{}", ms(ns))
}

/// Tabulates the parts of a change and whether each is beyond the noise, then their sum.
fn parts(stage: &StageChange) -> Table {
    let part = |part: &Part| (part.name.clone(), part.delta_ns, if part.beyond_noise { "yes" } else { "no" });
    let mut rows: Vec<(String, i64, &str)> = stage.parts.iter().map(part).collect();
    if let (false, Some(delta)) = (rows.is_empty(), stage.number("wall_ns").delta) {
        rows.push(("sum: the change of wall time".to_owned(), delta as i64, ""));
    }
    Table::of(&rows)
        .text("part of the change of wall time", |row| &row.0)
        .number("ms", |row| signed_ms(row.1))
        .text("beyond noise", |row| row.2)
        .build()
}

/// Returns the table of kernels that changed, and the number of those left out.
fn kernels(changes: &[KernelChange], most: usize) -> Vec<Block> {
    let mut changed: Vec<&KernelChange> = changes.iter().filter(|k| k.status != KernelStatus::Same).collect();
    let more = changed.len().saturating_sub(most);
    changed.truncate(most);
    let name = |k: &&KernelChange| match &k.base {
        Some(base) if k.renamed => format!("{} (renamed from {})", k.short_name, short_name(&base.name)),
        _ => k.short_name.clone(),
    };
    let calls = |calls: f64| format!("{calls:.*}", usize::from(calls.fract() != 0.0));
    let table = Table::of(&changed)
        .text("kernel", name)
        .judged("is", |k| judged(k.status.as_str()))
        .number("change ms", |k| signed_ms(k.delta_ns))
        .ms("base", |k| k.base.as_ref().map(|side| side.total_ns))
        .ms("head", |k| k.head.as_ref().map(|side| side.total_ns))
        .number("calls", |k| both(k, |side| calls(side.calls)))
        .number("mean µs", |k| both(k, |side| us(side.mean_ns)))
        .build();
    let more = (more > 0).then(|| Block::Note(format!("{more} more are in the JSON")));
    Block::table(table).into_iter().chain(more).collect()
}

/// Formats a value of both sides, once if they agree.
fn both(kernel: &KernelChange, show: impl Fn(&KernelSide) -> String) -> String {
    let mut values: Vec<String> = [&kernel.base, &kernel.head].into_iter().flatten().map(show).collect();
    values.dedup();
    values.join(" → ")
}

/// States the main result in one sentence. Before it, for what the two sides do not compare, or not as a whole.
pub fn headline(comparison: &Comparison) -> String {
    let alarm = match comparison.because(TOTAL) {
        none if none.is_empty() => none,
        causes if comparison.is_incomparable() => format!("NOT COMPARABLE: {causes}. "),
        causes => format!("CAUTION: {causes}. "),
    };
    let by = match comparison.basis {
        Basis::Whole | Basis::Nothing => "",
        Basis::Instance => "by instance: ",
        Basis::StepAndToken => "by step and token: ",
    };
    let broken = comparison.gates.iter().filter(|gate| gate.outcome == GateOutcome::Broken);
    let name = |gate: &GateResult| format!("{}.{}", gate.stage.as_deref().unwrap_or(TOTAL), gate.metric);
    let result = match comparison.verdict() {
        Exit::GateBroken => format!("the gate is broken: {}", once_each(broken.map(name)).join(", ")),
        Exit::Partial => "a gate was not measured".to_owned(),
        _ => changed_stages(stages(comparison)),
    };
    alarm + by + &result
}

/// Lists the stages that changed, each with the first row of its table for each judgement.
fn changed_stages(stages: &[StageChange]) -> String {
    let changed = stages.iter().filter_map(|stage| {
        let judgements = [Judgement::Worse, Judgement::Better, Judgement::Unclear];
        let rows =
            judgements.into_iter().filter_map(|wanted| Some(format!("{} {wanted}", said(stage, wanted)?)));
        Some(format!("{}: {}", stage.name, joined_any(rows, ", ")?))
    });
    let unchanged = || match stages.iter().any(|stage| said(stage, Judgement::Same).is_some()) {
        true => "no change of stage times beyond the noise".to_owned(),
        false => "no time of a stage compares".to_owned(),
    };
    joined_any(changed, "; ").unwrap_or_else(unchanged)
}

/// Names the first row with a judgement of those by which a stage is judged: `wall +38.4 %`. These are the times of a step and of a
/// token where the sides did different work.
fn said(stage: &StageChange, wanted: Judgement) -> Option<String> {
    let names: &[&str] = match stage.basis {
        Basis::StepAndToken => &["step", "token"],
        _ => &["wall", "unwatched", "step", "busy", "kernel"],
    };
    let mut rows = METRICS.iter().filter(|metric| names.contains(&metric.name()));
    let metric = rows.find(|metric| metric.of(&stage.numbers).judgement == wanted)?;
    let label = metric.label.trim_end_matches([' ', 'm', 's', 'µ']);
    let pct = metric.of(&stage.numbers).delta_pct;
    Some(format!("{label}{}", maybe(pct, |pct| format!(" {} %", signed(pct)))))
}
