//! The view model of a comparison: rows and sentences that text, Markdown and HTML render.

use crate::document::table::Table;
use crate::render::screen::Tone;
use roofgap_analyze::compare::{
    Basis, Change, Comparison, Difference, GateOutcome, GateResult, GateVerdict, Judgement, KernelChange,
    KernelSide, KernelStatus, METRICS, MatchedBy, StageChange, Weight,
};
use roofgap_base::numbers::{NONE, ms, or_none, time, us};

/// The most rows of the tables.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub parts: usize,
    pub kernels: usize,
}

/// A comparison.
pub struct View {
    pub headline: String,
    /// Tone of the headline: that of a broken gate, or of stages that are all worse or all better.
    pub tone: Option<Tone>,
    /// Warning that the two sides are not comparable.
    pub alarm: Option<String>,
    /// Differences of the two sides, then what is unknown on both.
    pub differences: Vec<String>,
    pub one_sided: Vec<String>,
    pub gates: Table,
    pub stages: Vec<StageView>,
    /// Kernels of the whole trace, if no stage is on both sides.
    pub kernels: Table,
    pub renamed: Vec<String>,
}

/// One stage of a comparison.
pub struct StageView {
    pub name: String,
    pub sentence: String,
    pub noise: String,
    pub numbers: Table,
    pub parts: Table,
    /// Parts of the change of wall time, ns.
    pub bars: Vec<(String, i64)>,
    pub why_no_parts: Option<String>,
    pub kernels: Table,
    /// Side on which the kernels were not measured.
    pub why_no_kernels: Option<String>,
    pub more_kernels: usize,
    pub renamed: Vec<String>,
}

impl View {
    /// Builds the view of a comparison.
    pub fn of(comparison: &Comparison, size: Size) -> Self {
        let base = comparison.stages_gone.iter().map(|name| (name, "base"));
        let head = comparison.stages_added.iter().map(|name| (name, "head"));
        let one_sided = base.chain(head).map(|(name, side)| format!("stage {name} is on the {side} only"));
        let mut differences: Vec<String> = comparison.differences.iter().map(difference_sentence).collect();
        if !comparison.unchecked.is_empty() {
            differences.push(format!("unknown on both sides: {}", comparison.unchecked.join(", ")));
        }
        // Stages that are on both sides hold the kernels.
        let whole: &[KernelChange] = if comparison.stages.is_empty() { &comparison.kernels } else { &[] };
        View {
            headline: headline(comparison),
            tone: tone(comparison),
            alarm: alarm(comparison),
            differences,
            one_sided: one_sided.collect(),
            gates: gates(comparison),
            stages: comparison.stages.iter().map(|s| StageView::of(s, size)).collect(),
            kernels: kernels(whole, size.kernels).0,
            renamed: renamed(whole),
        }
    }
}

impl StageView {
    fn of(stage: &StageChange, size: Size) -> Self {
        let (kernels, more_kernels) = kernels(&stage.kernels, size.kernels);
        // The change of a whole stage has no meaning where the sides did different work.
        let different = stage.basis == Basis::StepAndToken;
        let bars = if different { Vec::new() } else { parts(stage, size.parts) };
        StageView {
            name: stage.name.clone(),
            sentence: stage_sentence(stage),
            noise: format!("noise of wall time: {}", stage.wall_noise_from),
            numbers: numbers(stage),
            parts: parts_table(stage, &bars),
            bars: bars.into_iter().map(|(name, ns, _)| (name, ns)).collect(),
            why_no_parts: if different {
                Some("the two sides did different work".to_owned())
            } else {
                stage.explanation.why_not.clone()
            },
            kernels,
            why_no_kernels: unmeasured_side(&stage.kernel_ns)
                .map(|side| format!("the kernels do not compare: they were not measured on the {side}")),
            more_kernels,
            renamed: renamed(&stage.kernels),
        }
    }
}

fn gates(comparison: &Comparison) -> Table {
    let outcome = |gate: &GateResult| match gate.outcome {
        GateOutcome::Held => ("held", Some(Tone::Good)),
        GateOutcome::WithinNoise => ("within noise", Some(Tone::Notice)),
        GateOutcome::Broken => ("BROKEN", Some(Tone::Bad)),
        GateOutcome::NotMeasured => ("not measured", Some(Tone::Notice)),
    };
    Table::of(&comparison.gates)
        .text("gate", |gate: &GateResult| gate.gate.clone())
        .judged("outcome", outcome)
        .text("why", |gate| gate.why.clone())
        .build()
}

fn numbers(stage: &StageChange) -> Table {
    let mut table = Table::new(&["", "base>", "head>", "change %>", "noise>", "is!"]);
    for metric in METRICS {
        let change = metric.of(stage);
        // A time of nothing on both sides has no row.
        let has_row = |value: Option<f64>| value.is_some_and(|value| !metric.is_time() || value != 0.0);
        if !has_row(change.base) && !has_row(change.head) {
            continue;
        }
        let show = |value: f64| match metric.field {
            "token_ns" => us(value as i64),
            _ if metric.is_time() => ms(value as i64),
            _ => format!("{value:.2}"),
        };
        let tone = match change.judgement {
            Judgement::Better => Some(Tone::Good),
            Judgement::Worse => Some(Tone::Bad),
            Judgement::Same | Judgement::Unknown => None,
        };
        let cells = [
            metric.label.to_owned(),
            or_none(change.base, show),
            or_none(change.head, show),
            or_none(change.delta_pct, |pct| format!("{pct:+.1}")),
            or_none(change.noise, show),
            change.judgement.as_str().unwrap_or(NONE).to_owned(),
        ];
        table.judged_row(cells, tone);
    }
    table
}

/// Formats a change of time as milliseconds with a sign.
pub fn signed_ms(ns: i64) -> String {
    let sign = if ns < 0 { "" } else { "+" };
    format!("{sign}{}", ms(ns))
}

/// Lists the parts of a change, ns, and whether each is beyond the noise: the largest by name, the rest in one.
fn parts(stage: &StageChange, most: usize) -> Vec<(String, i64, &'static str)> {
    let parts = &stage.explanation.parts;
    let (shown, rest) = parts.split_at(parts.len().min(most));
    let beyond = |beyond: bool| if beyond { "yes" } else { "no" };
    let mut list: Vec<_> =
        shown.iter().map(|part| (part.name.clone(), part.delta_ns, beyond(part.beyond_noise))).collect();
    if !rest.is_empty() {
        let sum = added_up(rest.iter().map(|part| part.delta_ns));
        list.push((format!("{} more", rest.len()), sum, ""));
    }
    list
}

/// Adds up times, ns. Those of a damaged analysis may be any numbers.
pub fn added_up(times: impl Iterator<Item = i64>) -> i64 {
    times.fold(0, i64::saturating_add)
}

/// Label of the sum of all parts.
pub const SUM: &str = "sum: the change of wall time";

fn parts_table(stage: &StageChange, parts: &[(String, i64, &str)]) -> Table {
    let mut table = Table::of(parts)
        .text("part of the change of wall time", |part| part.0.clone())
        .number("ms", |part| signed_ms(part.1))
        .text("beyond noise", |part| part.2.to_owned())
        .build();
    if !table.is_empty() {
        table.row([SUM.to_owned(), signed_ms(stage.explanation.wall_delta_ns), String::new()]);
    }
    table
}

/// Builds the table of kernels that changed. Returns the number of rows left out, too.
fn kernels(changes: &[KernelChange], most: usize) -> (Table, usize) {
    let mut changed: Vec<&KernelChange> = changes.iter().filter(|k| k.status != KernelStatus::Same).collect();
    let more = changed.len().saturating_sub(most);
    changed.truncate(most);
    let total = |side: &Option<KernelSide>| or_none(side.as_ref(), |side| ms(side.total_ns));
    let calls = |calls: f64| format!("{calls:.*}", usize::from(calls.fract() != 0.0));
    let table = Table::of(&changed)
        .text("kernel", |k| {
            let renamed = k.matched_by == MatchedBy::FamilyAndPlace;
            format!("{}{}", k.short_name, if renamed { " (renamed)" } else { "" })
        })
        .judged("is", |k| status(k.status))
        .number("change ms", |k| signed_ms(k.delta_ns))
        .number("base ms", move |k| total(&k.base))
        .number("head ms", move |k| total(&k.head))
        .number("calls", move |k| both(k, |side| calls(side.calls)))
        .number("mean µs", |k| both(k, |side| us(side.mean_ns)))
        .build();
    (table, more)
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
    }
}

/// Lists the kernels that were matched under different names, and why.
fn renamed(changes: &[KernelChange]) -> Vec<String> {
    let pair = |kernel: &KernelChange| {
        let why = kernel.match_reason.as_ref()?;
        let (base, head) = (kernel.base.as_ref()?, kernel.head.as_ref()?);
        let name = |side: &KernelSide| roofgap_analyze::short_name(&side.name);
        Some(format!("renamed: {} matches {}: {why}", name(head), name(base)))
    };
    changes.iter().filter_map(pair).take(8).collect()
}

/// States the conclusion; before it, that the two are not comparable as a whole.
pub fn headline(comparison: &Comparison) -> String {
    let by = match comparison.basis {
        Basis::Whole => return conclusion(comparison),
        Basis::Instance => "by instance",
        Basis::StepAndToken => "by step and token",
    };
    let because = comparison.not_whole_because();
    let because: Vec<&str> = because.iter().map(|difference| difference.what.as_str()).collect();
    let conclusion = conclusion(comparison);
    format!("not comparable as a whole (different {}); {by}: {conclusion}", because.join(", "))
}

/// Returns the tone of the conclusion; `None` for a mixed or a neutral one.
fn tone(comparison: &Comparison) -> Option<Tone> {
    let any = |wanted: Judgement| {
        let mut stages = comparison.stages.iter();
        stages.any(|stage| judgement(stage) == Some(wanted))
    };
    match (comparison.verdict(), any(Judgement::Worse), any(Judgement::Better)) {
        (GateVerdict::Broken, ..) => Some(Tone::Bad),
        (GateVerdict::NotMeasured, ..) => Some(Tone::Notice),
        (GateVerdict::Held, true, false) => Some(Tone::Bad),
        (GateVerdict::Held, false, true) => Some(Tone::Good),
        (GateVerdict::Held, ..) => None,
    }
}

fn conclusion(comparison: &Comparison) -> String {
    let mut broken: Vec<String> = Vec::new();
    for gate in comparison.gates.iter().filter(|gate| gate.outcome == GateOutcome::Broken) {
        let name = format!("{}.{}", gate.stage.as_deref().unwrap_or("total"), gate.metric);
        if !broken.contains(&name) {
            broken.push(name);
        }
    }
    match comparison.verdict() {
        GateVerdict::Broken => format!("the gate is broken: {}", broken.join(", ")),
        GateVerdict::NotMeasured => "a gate was not measured".to_owned(),
        GateVerdict::Held => {
            let of = |wanted: Judgement| -> Vec<String> {
                let stages = comparison.stages.iter().filter(|stage| judgement(stage) == Some(wanted));
                stages.map(|stage| stage.name.clone()).collect()
            };
            let (worse, better) = (of(Judgement::Worse), of(Judgement::Better));
            let mut parts = Vec::new();
            if !worse.is_empty() {
                parts.push(format!("worse: {}", worse.join(", ")));
            }
            if !better.is_empty() {
                parts.push(format!("better: {}", better.join(", ")));
            }
            if parts.is_empty() {
                let other = comparison.stages.iter().any(StageChange::has_changed);
                parts.push(if other {
                    "no change of stage times beyond the noise".to_owned()
                } else if comparison.stages.is_empty() {
                    total(comparison)
                } else {
                    "no change beyond the noise".to_owned()
                });
            }
            parts.join("; ")
        }
    }
}

fn total(comparison: &Comparison) -> String {
    let kernels = &comparison.totals.kernel_ns;
    match kernels.judgement {
        Judgement::Unknown if kernels.is_on_both_sides() => {
            "no stage on both sides; the kernels compare by call".to_owned()
        }
        Judgement::Unknown => match unmeasured_side(kernels) {
            Some(side) => {
                format!("no stage on both sides, and the {side} has no kernels: nothing to compare")
            }
            None => "no stage and no kernel on either side: nothing to compare".to_owned(),
        },
        _ => format!("no stage on both sides; kernel time of the whole trace: {}", words(kernels)),
    }
}

/// Names the side on which a number was not measured, where the other has it.
fn unmeasured_side(change: &Change<i64>) -> Option<&'static str> {
    match (change.base, change.head) {
        (Some(_), None) => Some("head"),
        (None, Some(_)) => Some("base"),
        _ => None,
    }
}

/// Judges a stage by its wall time or, if that did not change, by its GPU time; where the sides did different work, by the time of
/// a step or, if that did not change, of a token.
fn judgement(stage: &StageChange) -> Option<Judgement> {
    let by_instance = [&stage.wall_ns, &stage.unwatched_ns, &stage.busy_ns, &stage.kernel_ns];
    let by_work = [&stage.step_ns, &stage.token_ns];
    let changes: &[&Change<i64>] = match stage.basis {
        Basis::StepAndToken => &by_work,
        _ => &by_instance,
    };
    let judgements = changes.iter().map(|change| change.judgement);
    judgements.into_iter().find(|judgement| matches!(judgement, Judgement::Worse | Judgement::Better))
}

/// Describes a change: `71.6 ms to 78.8 ms, +10.0 %, worse`.
fn words(change: &Change<i64>) -> String {
    let (base, head, delta) = match (change.base, change.head, change.delta) {
        (Some(base), Some(head), Some(delta)) => (base, head, delta),
        (Some(base), ..) => return format!("{} on the base, not measured on the head", time(base)),
        (_, Some(head), _) => return format!("{} on the head, not measured on the base", time(head)),
        _ => return "measured on neither side".to_owned(),
    };
    let pct = change.delta_pct.map(|pct| format!(", {pct:+.1} %")).unwrap_or_default();
    let judgement = match change.judgement {
        Judgement::Worse => "worse",
        Judgement::Better => "better",
        _ if delta == 0 => "the same",
        _ => "within the noise",
    };
    format!("{} to {}{pct}, {judgement}", time(base), time(head))
}

/// Describes the change of a stage.
fn stage_sentence(stage: &StageChange) -> String {
    if stage.basis == Basis::StepAndToken {
        return different_work(stage);
    }
    let mut text = format!("wall {}", words(&stage.wall_ns));
    if stage.busy_ns.is_on_a_side() {
        text.push_str(&format!("; GPU busy {}", words(&stage.busy_ns)));
    }
    text.push('.');
    let still = stage.wall_ns.judgement == Judgement::Same;
    match stage.busy_ns.judgement {
        Judgement::Worse if still => {
            text.push_str(" The GPU is busy for longer; less idle time hides that.");
        }
        Judgement::Better if still => {
            text.push_str(
                " The GPU is busy for less time and idle for longer: something else limits this stage.",
            );
        }
        _ => {}
    }
    text
}

/// Describes the change of a stage in which the sides did different work.
fn different_work(stage: &StageChange) -> String {
    let values = [("step", &stage.step_ns), ("time per token", &stage.token_ns)];
    let known = values.iter().filter(|(_, change)| change.is_on_both_sides());
    let parts: Vec<String> = known.map(|(name, change)| format!("{name} {}", words(change))).collect();
    if parts.is_empty() {
        return "the sides did different work, and the time of a step or a token is not known on both."
            .to_owned();
    }
    format!("{}. Values of the whole stage do not compare.", parts.join("; "))
}

/// Describes a difference of the two sides.
fn difference_sentence(difference: &Difference) -> String {
    let value = |side: &Option<String>| side.clone().unwrap_or_else(|| "unknown".to_owned());
    format!(
        "{}: {} against {}; {}",
        difference.what,
        value(&difference.base),
        value(&difference.head),
        difference.meaning
    )
}

/// Warns that the two sides are not comparable at all. The headline names differences in the work.
fn alarm(comparison: &Comparison) -> Option<String> {
    let of_work = comparison.not_whole_because();
    let what: Vec<&str> = comparison
        .differences
        .iter()
        .filter(|difference| difference.weight == Weight::Incomparable)
        .filter(|difference| !of_work.contains(difference))
        .map(|difference| difference.what.as_str())
        .collect();
    (!what.is_empty()).then(|| format!("NOT COMPARABLE: different {}", what.join(", ")))
}
