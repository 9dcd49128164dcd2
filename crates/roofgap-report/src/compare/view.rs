//! The view model of a comparison: rows and sentences that text, Markdown and HTML render.

use super::sentences;
use crate::document::table::Table;
use crate::render::screen::Tone;
use roofgap_analyze::compare::{
    Basis, Change, Comparison, GateOutcome, GateResult, Judgement, KernelChange, KernelSide, KernelStatus,
    MatchedBy, StageChange,
};
use roofgap_base::numbers::{NONE, ms, or_none, us};

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
        let mut differences: Vec<String> = comparison.differences.iter().map(sentences::difference).collect();
        if !comparison.unchecked.is_empty() {
            differences.push(format!("unknown on both sides: {}", comparison.unchecked.join(", ")));
        }
        // Stages that are on both sides hold the kernels.
        let whole: &[KernelChange] = if comparison.stages.is_empty() { &comparison.kernels } else { &[] };
        View {
            headline: sentences::headline(comparison),
            tone: sentences::tone(comparison),
            alarm: sentences::alarm(comparison),
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
            sentence: sentences::stage(stage),
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
            why_no_kernels: sentences::unmeasured_side(&stage.kernel_ns)
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
    let times: [(&str, &Change<i64>); 10] = [
        ("wall ms", &stage.wall_ns),
        ("unprofiled ms", &stage.unwatched_ns),
        ("step ms", &stage.step_ns),
        ("GPU busy ms", &stage.busy_ns),
        ("kernels ms", &stage.kernel_ns),
        ("idle ms", &stage.idle_ns),
        ("  not launched yet", &stage.idle_launch_ns),
        ("  waiting for the device", &stage.idle_sync_ns),
        ("  in a copy call", &stage.idle_copy_ns),
        ("  other", &stage.idle_other_ns),
    ];
    let quantities: [(&str, &Change<f64>); 4] = [
        ("launches", &stage.launches),
        ("launches per step", &stage.launches_per_step),
        ("MFU %", &stage.mfu_pct),
        ("MBU %", &stage.mbu_pct),
    ];
    let mut table = Table::new(&["", "base>", "head>", "change %>", "noise>", "is!"]);
    for (name, change) in times {
        if change.base.unwrap_or(0) != 0 || change.head.unwrap_or(0) != 0 {
            change_row(&mut table, name, change, ms);
        }
    }
    let token = &stage.token_ns;
    if token.base.is_some() || token.head.is_some() {
        change_row(&mut table, "per token µs", token, us);
    }
    for (name, change) in quantities {
        if change.base.is_some() || change.head.is_some() {
            change_row(&mut table, name, change, |value| format!("{value:.2}"));
        }
    }
    table
}

fn change_row<T: Copy>(table: &mut Table, name: &str, change: &Change<T>, show: impl Fn(T) -> String) {
    let (judgement, tone) = match change.judgement {
        Judgement::Same => ("same", None),
        Judgement::Better => ("better", Some(Tone::Good)),
        Judgement::Worse => ("worse", Some(Tone::Bad)),
        Judgement::Unknown => (NONE, None),
    };
    let cells = [
        name.to_owned(),
        or_none(change.base, &show),
        or_none(change.head, &show),
        or_none(change.delta_pct, |pct| format!("{pct:+.1}")),
        or_none(change.noise, &show),
        judgement.to_owned(),
    ];
    table.judged_row(cells, tone);
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
        let sum = rest.iter().map(|part| part.delta_ns).sum();
        list.push((format!("{} more", rest.len()), sum, ""));
    }
    list
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
