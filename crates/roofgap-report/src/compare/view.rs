//! The sections of a comparison, which text, Markdown and HTML render. Every sentence is computed from the rows below it.

use crate::document::stages::once_each;
use crate::document::table::Table;
use crate::document::{Block, Section, joined, joined_any, maybe};
use crate::render::screen::Tone;
use roofgap_analyze::compare::{
    Basis, Change, Comparison, Difference, FunctionChange, GateOutcome, GateResult, GateVerdict, Judgement,
    KernelChange, KernelSide, KernelStatus, METRICS, MatchedBy, Metric, Outlier, Part, SideName, StageChange,
    Weight,
};
use roofgap_analyze::short_name;
use roofgap_base::numbers::{NONE, ms, time, us};

/// The form of the sections.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// The most rows of a breakdown.
    pub parts: usize,
    /// The most kernels of a table.
    pub kernels: usize,
    /// The page draws bars.
    pub is_page: bool,
}

impl Form {
    /// Returns the form of text and Markdown.
    pub fn rows(parts: usize, kernels: usize) -> Self {
        Self { parts, kernels, is_page: false }
    }
}

/// Lists the differences of the two sides, what is unknown on both, and what only one has.
pub fn facts(comparison: &Comparison) -> Vec<String> {
    let base = comparison.stages_gone.iter().map(|name| (name, "base"));
    let head = comparison.stages_added.iter().map(|name| (name, "head"));
    let one_sided = base.chain(head).map(|(name, side)| format!("stage {name} is on the {side} only"));
    let unchecked =
        joined_any(&comparison.unchecked, ", ").map(|facts| format!("unknown on both sides: {facts}"));
    let differences = comparison.differences.iter().map(difference_sentence);
    differences.chain(unchecked).chain(one_sided).collect()
}

/// Returns the sections after the conclusion: gates, stages and, where no stage is on both sides, the kernels of the whole trace.
pub fn sections(comparison: &Comparison, form: Form) -> Vec<Section> {
    let mut sections = Vec::new();
    if !comparison.gates.is_empty() {
        let word = match comparison.verdict() {
            GateVerdict::Held => "held",
            GateVerdict::Broken => "broken",
            GateVerdict::NotMeasured => "some not measured",
        };
        sections.push(Section::new("", format!("Gates: {word}")).with([Block::Table(gates(comparison))]));
    }
    for stage in &comparison.stages {
        sections.extend(stage_sections(stage, form));
    }
    if comparison.stages.is_empty() && !comparison.kernels.is_empty() {
        let blocks = kernels(&comparison.kernels, form.kernels);
        sections.push(Section::new("", "Kernels of the whole trace that changed").with(blocks));
    }
    sections
}

/// Returns the section of a stage, then those of its breakdown, its kernels and its functions.
fn stage_sections(stage: &StageChange, form: Form) -> impl Iterator<Item = Section> {
    let no_parts = match stage.basis {
        Basis::StepAndToken => Some("the two sides did different work"),
        Basis::Nothing => Some("the two sides do not compare"),
        _ => stage.explanation.why_not.as_deref(),
    };
    let kernel_ns = stage.number("kernel_ns");
    let unmeasured = match (kernel_ns.base, kernel_ns.head) {
        (Some(_), None) => Some("head"),
        (None, Some(_)) => Some("base"),
        _ => None,
    };
    let no_kernels =
        unmeasured.map(|side| format!("the kernels do not compare: they were not measured on the {side}"));
    let first = Section::new("", stage.name.as_str())
        .with([Block::Table(numbers(stage))])
        .with([Block::Note(format!("noise of wall time: {}", stage.wall_noise_from))])
        .with(outliers(stage).map(Block::Note))
        .with(no_parts.map(|why| Block::Missing(format!("no breakdown of the change: {why}"))))
        .with(no_kernels.map(Block::Missing));
    let breakdown = Block::table(parts_table(&parts(stage, form.parts)));
    let breakdown = if form.is_page { breakdown.map(|_| Block::Drawing) } else { breakdown };
    let functions = "Functions of the CPU in which the GPU is idle for a different time, by step";
    let inner = [
        ("Breakdown of the change of wall time", breakdown.into_iter().collect()),
        ("Kernels that changed", kernels(&stage.kernels, form.kernels)),
        (functions, Block::table(functions_table(stage, form.kernels)).into_iter().collect()),
    ];
    let inner = inner.map(|(title, blocks): (&str, Vec<Block>)| Section::new("", title).with(blocks).inner());
    [first].into_iter().chain(inner.into_iter().filter(|section| !section.blocks.is_empty()))
}

/// Describes the steps of each side that are far from the others.
fn outliers(stage: &StageChange) -> Option<String> {
    let longest = |side| stage.outliers.iter().filter(move |own| own.side == side).max_by_key(|own| own.ns);
    let outlier = |own: &Outlier| {
        let (side, ns, more) = (own.side.as_str(), time(own.ns), time(own.excess_ns));
        format!("step {} of the {side} is an outlier: {ns}, {more} more than usual", own.step)
    };
    let steps = [SideName::Base, SideName::Head].into_iter().filter_map(longest).map(outlier);
    let steps = joined_any(steps, "; ")?;
    Some(format!("{steps}; outliers are part of the wall time, not of the step time and the noise"))
}

fn gates(comparison: &Comparison) -> Table {
    let outcome = |gate: &GateResult| match gate.outcome {
        GateOutcome::Held => ("held", Some(Tone::Good)),
        GateOutcome::WithinNoise => ("within noise", Some(Tone::Notice)),
        GateOutcome::Broken => ("BROKEN", Some(Tone::Bad)),
        GateOutcome::NotMeasured => ("not measured", Some(Tone::Notice)),
    };
    Table::of(&comparison.gates)
        .text("gate", |gate| &gate.gate)
        .judged("outcome", outcome)
        .text("why", |gate| &gate.why)
        .build()
}

fn numbers(stage: &StageChange) -> Table {
    // A time of nothing on both sides has no row.
    let counts = |metric: &Metric, value: Option<f64>| value.is_some_and(|ns| !metric.is_time() || ns != 0.0);
    let rows: Vec<(&Metric, Change)> = METRICS
        .iter()
        .map(|metric| (metric, metric.of(&stage.numbers)))
        .filter(|(metric, change)| counts(metric, change.base) || counts(metric, change.head))
        .collect();
    let show = |metric: &Metric, value: Option<f64>| {
        value.map(|value| match metric.field {
            "token_ns" => us(value as i64),
            _ if metric.is_time() => ms(value as i64),
            _ => format!("{value:.2}"),
        })
    };
    let tone = |judgement: Judgement| match judgement {
        Judgement::Better => Some(Tone::Good),
        Judgement::Worse => Some(Tone::Bad),
        Judgement::Unclear => Some(Tone::Notice),
        Judgement::Same | Judgement::Unknown => None,
    };
    Table::of(&rows)
        .text("", |(metric, _)| metric.label)
        .number("base", |(metric, change)| show(metric, change.base))
        .number("head", |(metric, change)| show(metric, change.head))
        .number("change %", |(_, change)| change.delta_pct.map(signed))
        .number("noise", |(metric, change)| show(metric, change.noise))
        .judged("is", |(_, change)| match change.judgement {
            Judgement::Unknown => (NONE, None),
            known => (known.as_str(), tone(known)),
        })
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
pub fn signed_ms(ns: i64) -> String {
    let sign = if ns < 0 { "" } else { "+" };
    format!("{sign}{}", ms(ns))
}

/// Lists the parts of a change, ns, and whether each is beyond the noise: the largest by name, the rest in one, then their sum. The
/// change of a whole stage has no meaning where the sides did different work.
pub fn parts(stage: &StageChange, most: usize) -> Vec<(String, i64, &'static str)> {
    let parts = &stage.explanation.parts;
    if parts.is_empty() || matches!(stage.basis, Basis::StepAndToken | Basis::Nothing) {
        return Vec::new();
    }
    let (shown, rest) = parts.split_at(parts.len().min(most));
    let beyond = |part: &Part| if part.beyond_noise { "yes" } else { "no" };
    let mut list: Vec<_> =
        shown.iter().map(|part| (part.name.clone(), part.delta_ns, beyond(part))).collect();
    if !rest.is_empty() {
        // Times of a damaged analysis may be any numbers.
        let sum = rest.iter().map(|part| part.delta_ns).fold(0, i64::saturating_add);
        list.push((format!("{} more", rest.len()), sum, ""));
    }
    list.push(("sum: the change of wall time".to_owned(), stage.explanation.wall_delta_ns, ""));
    list
}

fn parts_table(parts: &[(String, i64, &str)]) -> Table {
    Table::of(parts)
        .text("part of the change of wall time", |part| &part.0)
        .number("ms", |part| signed_ms(part.1))
        .text("beyond noise", |part| part.2)
        .build()
}

/// Returns the table of kernels that changed, and the number of those left out.
fn kernels(changes: &[KernelChange], most: usize) -> Vec<Block> {
    let mut changed: Vec<&KernelChange> = changes.iter().filter(|k| k.status != KernelStatus::Same).collect();
    let more = changed.len().saturating_sub(most);
    changed.truncate(most);
    let name = |k: &&KernelChange| match &k.base {
        Some(base) if k.matched_by == MatchedBy::FamilyAndPlace => {
            format!("{} (renamed from {})", k.short_name, short_name(&base.name))
        }
        _ => k.short_name.clone(),
    };
    let calls = |calls: f64| format!("{calls:.*}", usize::from(calls.fract() != 0.0));
    let table = Table::of(&changed)
        .text("kernel", name)
        .judged("is", |k| status(k.status))
        .number("change ms", |k| signed_ms(k.delta_ns))
        .ms("base", |k| k.base.as_ref().map(|side| side.total_ns))
        .ms("head", |k| k.head.as_ref().map(|side| side.total_ns))
        .number("calls", |k| both(k, |side| calls(side.calls)))
        .number("mean µs", |k| both(k, |side| us(side.mean_ns)))
        .build();
    let more = (more > 0).then(|| Block::Note(format!("{more} more are in the JSON")));
    Block::table(table).into_iter().chain(more).collect()
}

/// Tabulates the functions whose idle time changed beyond its noise.
fn functions_table(stage: &StageChange, most: usize) -> Table {
    let is_changed = |own: &&FunctionChange| {
        matches!(own.idle_ns.judgement, Judgement::Better | Judgement::Worse) && stage.basis != Basis::Nothing
    };
    let changed: Vec<&FunctionChange> = stage.functions.iter().filter(is_changed).take(most).collect();
    Table::of(&changed)
        .text("function", |own| &own.function)
        .text("file", |own| own.file.as_deref().unwrap_or_default())
        .number("change ms", |own| maybe(own.idle_ns.delta, |ns| signed_ms(ns as i64)))
        .ms("base", |own| own.idle_ns.base.map(|ns| ns as i64))
        .ms("head", |own| own.idle_ns.head.map(|ns| ns as i64))
        .build()
}

/// Formats a value of both sides, once if they agree.
fn both(kernel: &KernelChange, show: impl Fn(&KernelSide) -> String) -> String {
    match (kernel.base.as_ref().map(&show), kernel.head.as_ref().map(&show)) {
        (Some(base), Some(head)) if base == head => base,
        (Some(base), Some(head)) => format!("{base} → {head}"),
        (one, other) => one.or(other).unwrap_or_default(),
    }
}

fn status(status: KernelStatus) -> (&'static str, Option<Tone>) {
    match status {
        KernelStatus::Same => ("same", None),
        KernelStatus::Faster => ("faster", Some(Tone::Good)),
        KernelStatus::Slower => ("slower", Some(Tone::Bad)),
        KernelStatus::MoreCalls => ("more calls", Some(Tone::Notice)),
        KernelStatus::FewerCalls => ("fewer calls", Some(Tone::Good)),
        KernelStatus::Added => ("added", None),
        KernelStatus::Gone => ("gone", None),
        KernelStatus::InGraph => ("in a graph", None),
    }
}

/// States the main result in one sentence, after what the two sides are where they are not the same thing.
pub fn headline(comparison: &Comparison) -> String {
    let conclusion = conclusion(comparison);
    alarm(comparison).map_or_else(|| conclusion.clone(), |alarm| format!("{alarm}. {conclusion}"))
}

/// States the conclusion; before it, that the two are not comparable as a whole.
pub fn conclusion(comparison: &Comparison) -> String {
    let (how, by) = match comparison.basis {
        Basis::Whole => return result(comparison),
        Basis::Instance => (" as a whole", "; by instance: "),
        Basis::StepAndToken => (" as a whole", "; by step and token: "),
        Basis::Nothing => ("", "; "),
    };
    let because = comparison.not_whole_because();
    let because = joined(because.iter().map(|difference| &difference.what), ", ");
    let has_result = comparison.basis != Basis::Nothing || !comparison.gates.is_empty();
    let result = if has_result { by.to_owned() + &result(comparison) } else { String::new() };
    format!("not comparable{how} (different {because}){result}")
}

/// Returns the tone of the conclusion; `None` for a mixed or a neutral one.
pub fn tone(comparison: &Comparison) -> Option<Tone> {
    let any = |wanted| comparison.stages.iter().any(|stage| said(stage, wanted).is_some());
    match (comparison.verdict(), any(Judgement::Worse), any(Judgement::Better)) {
        (GateVerdict::Broken, ..) => Some(Tone::Bad),
        (GateVerdict::NotMeasured, ..) => Some(Tone::Notice),
        (GateVerdict::Held, true, false) => Some(Tone::Bad),
        (GateVerdict::Held, false, true) => Some(Tone::Good),
        (GateVerdict::Held, ..) => None,
    }
}

fn result(comparison: &Comparison) -> String {
    let broken = comparison.gates.iter().filter(|gate| gate.outcome == GateOutcome::Broken);
    let name = |gate: &GateResult| format!("{}.{}", gate.stage.as_deref().unwrap_or("total"), gate.metric);
    match comparison.verdict() {
        GateVerdict::Broken => format!("the gate is broken: {}", once_each(broken.map(name)).join(", ")),
        GateVerdict::NotMeasured => "a gate was not measured".to_owned(),
        GateVerdict::Held => of_stages(comparison),
    }
}

/// Says which stages changed, each with the first rows of its table that say so.
fn of_stages(comparison: &Comparison) -> String {
    let changed = comparison.stages.iter().filter_map(|stage| {
        let (worse, better) = (said(stage, Judgement::Worse), said(stage, Judgement::Better));
        let (word, rows) = match (worse, better) {
            (Some(worse), Some(better)) => ("mixed", format!("{worse}, {better}")),
            (Some(worse), None) => ("worse", worse),
            (None, Some(better)) => ("better", better),
            (None, None) => ("unclear", said(stage, Judgement::Unclear)? + " by outlier steps"),
        };
        Some(format!("{word}: {} ({rows})", stage.name))
    });
    let unchanged = || {
        let rows = comparison.stages.iter().flat_map(main_rows);
        match rows.map(|(_, change)| change.judgement).all(|judgement| judgement == Judgement::Unknown) {
            _ if comparison.stages.is_empty() => total(comparison),
            true => "no time of a stage compares".to_owned(),
            false => "no change of stage times beyond the noise".to_owned(),
        }
    };
    joined_any(changed, "; ").unwrap_or_else(unchanged)
}

/// Returns the times by which a stage is judged, the first ones first: those of a step and of a token where the sides did different
/// work.
fn main_rows(stage: &StageChange) -> impl Iterator<Item = (&'static Metric, Change)> {
    let names: &[&str] = match stage.basis {
        Basis::StepAndToken => &["step", "token"],
        _ => &["wall", "unwatched", "step", "busy", "kernel"],
    };
    let rows = METRICS.iter().filter(|metric| names.contains(&metric.name()));
    rows.map(|metric| (metric, metric.of(&stage.numbers)))
}

/// Names the first row of a stage with a judgement: `wall +38.4 %`.
fn said(stage: &StageChange, wanted: Judgement) -> Option<String> {
    let (metric, change) = main_rows(stage).find(|(_, change)| change.judgement == wanted)?;
    let label = metric.label.trim_end_matches([' ', 'm', 's', 'µ']);
    Some(format!("{label}{}", maybe(change.delta_pct, |pct| format!(" {} %", signed(pct)))))
}

fn total(comparison: &Comparison) -> String {
    let kernels = comparison.totals.get("kernel_ns").copied().unwrap_or_default();
    let what = match (kernels.base.zip(kernels.head), kernels.judgement) {
        (None, _) => "kernels were not measured on both: nothing to compare".to_owned(),
        (_, Judgement::Unknown) => "the kernels compare by call".to_owned(),
        (Some((base, head)), word) => {
            format!("kernel time of the whole trace: {} to {}, {word}", time(base as i64), time(head as i64))
        }
    };
    format!("no stage on both sides; {what}")
}

/// Describes a difference of the two sides.
fn difference_sentence(difference: &Difference) -> String {
    let Difference { what, base, head, meaning, .. } = difference;
    let [base, head] = [base, head].map(|side| side.as_deref().unwrap_or("unknown"));
    format!("{what}: {base} against {head}; {meaning}")
}

/// Says that the two sides are different programs, hardware or recordings; the conclusion names differences in the amount of work.
pub fn alarm(comparison: &Comparison) -> Option<String> {
    let mut alarms: Vec<(&str, Vec<String>)> = Vec::new();
    for difference in comparison.differences.iter().filter(|difference| difference.is_fundamental()) {
        let word = match (difference.weight, difference.what.as_str()) {
            (Weight::Incomparable, _) => "NOT COMPARABLE: different ",
            (Weight::Caution, "common kernels") => "PROBABLY DIFFERENT MODELS: ",
            (Weight::Caution, _) => "DIFFERENT RECORDINGS: ",
        };
        let [base, head] = [&difference.base, &difference.head].map(|side| side.as_deref().unwrap_or(NONE));
        let fact = format!("{} ({base} against {head})", difference.what);
        match alarms.iter_mut().find(|(known, _)| *known == word) {
            Some((_, facts)) => facts.push(fact),
            None => alarms.push((word, vec![fact])),
        }
    }
    joined_any(alarms.iter().map(|(word, facts)| format!("{word}{}", facts.join(", "))), "; ")
}
