//! What there is to say of a comparison, once for all forms.

use super::grid::Grid;
use super::sentences;
use crate::number::{NONE, ms};
use roofgap_analyze::compare::{
    Change, Comparison, GateOutcome, Judgement, KernelChange, KernelStatus, MatchedBy, StageChange,
};

/// How many rows of a table are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) parts: usize,
    pub(super) kernels: usize,
}

/// All of it.
pub(super) struct View {
    pub(super) headline: String,
    pub(super) alarm: Option<String>,
    pub(super) differences: Vec<String>,
    pub(super) unchecked: Option<String>,
    pub(super) gates: Grid<3>,
    pub(super) stages: Vec<StageView>,
    /// Kernels of the whole trace, where there is no stage on both sides.
    pub(super) kernels: Option<Grid<7>>,
    pub(super) renamed: Vec<String>,
    pub(super) one_sided: Vec<String>,
}

/// One stage.
pub(super) struct StageView {
    pub(super) name: String,
    pub(super) sentence: String,
    pub(super) noise: String,
    pub(super) numbers: Grid<6>,
    pub(super) parts: Grid<3>,
    /// The same parts as numbers, for bars.
    pub(super) bars: Vec<(String, i64)>,
    pub(super) why_no_parts: Option<String>,
    pub(super) kernels: Grid<7>,
    pub(super) more_kernels: usize,
    pub(super) renamed: Vec<String>,
}

impl View {
    pub(super) fn of(comparison: &Comparison, size: Size) -> Self {
        let gone = comparison.stages_gone.iter();
        let added = comparison.stages_added.iter();
        let mut one_sided: Vec<String> = gone
            .map(|name| format!("stage {name} is on the base only"))
            .collect();
        one_sided.extend(added.map(|name| format!("stage {name} is on the head only")));
        let whole = comparison.stages.is_empty() && !comparison.kernels.is_empty();
        View {
            headline: sentences::headline(comparison),
            alarm: sentences::alarm(comparison),
            differences: comparison.differences.iter().map(sentences::difference).collect(),
            unchecked: (!comparison.unchecked.is_empty())
                .then(|| format!("neither side says: {}", comparison.unchecked.join(", "))),
            gates: gates(comparison),
            stages: comparison
                .stages
                .iter()
                .map(|stage| StageView::of(stage, size))
                .collect(),
            kernels: whole.then(|| kernels(&comparison.kernels, size.kernels).0),
            renamed: if whole {
                renamed(&comparison.kernels)
            } else {
                Vec::new()
            },
            one_sided,
        }
    }
}

impl StageView {
    fn of(stage: &StageChange, size: Size) -> Self {
        let (kernels, more_kernels) = kernels(&stage.kernels, size.kernels);
        let (parts, bars) = parts(stage, size.parts);
        StageView {
            name: stage.name.clone(),
            sentence: sentences::stage(stage),
            noise: format!("noise of wall time: {}", stage.wall_noise_from),
            numbers: numbers(stage),
            parts,
            bars,
            why_no_parts: stage.explanation.why_not.clone(),
            kernels,
            more_kernels,
            renamed: renamed(&stage.kernels),
        }
    }
}

fn gates(comparison: &Comparison) -> Grid<3> {
    let mut grid = Grid::new(["gate", "outcome", "why"]);
    for gate in &comparison.gates {
        let outcome = match gate.outcome {
            GateOutcome::Held => "held",
            GateOutcome::WithinNoise => "within noise",
            GateOutcome::Broken => "BROKEN",
            GateOutcome::NotMeasured => "not measured",
        };
        grid.rows
            .push([gate.gate.clone(), outcome.to_owned(), gate.why.clone()]);
    }
    grid
}

fn judgement(judgement: Judgement) -> String {
    match judgement {
        Judgement::Same => "same",
        Judgement::Better => "better",
        Judgement::Worse => "worse",
        Judgement::Unknown => NONE,
    }
    .to_owned()
}

fn signed(ns: i64) -> String {
    format!("{:+.3}", ns as f64 / 1e6)
}

fn numbers(stage: &StageChange) -> Grid<6> {
    let mut grid = Grid::new(["", "base>", "head>", "change %>", "noise>", "is"]);
    let pct = |pct: Option<f64>| pct.map_or(NONE.to_owned(), |pct| format!("{pct:+.1}"));
    let times: [(&str, &Change<i64>); 10] = [
        ("wall ms", &stage.wall_ns),
        ("unwatched ms", &stage.unwatched_ns),
        ("step ms", &stage.step_ns),
        ("GPU busy ms", &stage.busy_ns),
        ("kernels ms", &stage.kernel_ns),
        ("idle ms", &stage.idle_ns),
        ("  not launched yet", &stage.idle_launch_ns),
        ("  waiting for the device", &stage.idle_sync_ns),
        ("  in a copy call", &stage.idle_copy_ns),
        ("  other", &stage.idle_other_ns),
    ];
    for (name, change) in times {
        if change.base.unwrap_or(0) == 0 && change.head.unwrap_or(0) == 0 {
            continue;
        }
        let show = |value: Option<i64>| value.map_or(NONE.to_owned(), ms);
        grid.rows.push([
            name.to_owned(),
            show(change.base),
            show(change.head),
            pct(change.delta_pct),
            show(change.noise),
            judgement(change.judgement),
        ]);
    }
    let plain: [(&str, &Change<f64>); 4] = [
        ("launches", &stage.launches),
        ("launches a step", &stage.launches_per_step),
        ("MFU %", &stage.mfu_pct),
        ("MBU %", &stage.mbu_pct),
    ];
    for (name, change) in plain {
        if change.base.is_none() && change.head.is_none() {
            continue;
        }
        let show = |value: Option<f64>| value.map_or(NONE.to_owned(), |value| format!("{value:.2}"));
        grid.rows.push([
            name.to_owned(),
            show(change.base),
            show(change.head),
            pct(change.delta_pct),
            show(change.noise),
            judgement(change.judgement),
        ]);
    }
    grid
}

/// The parts of the change: the largest by name, the rest in one line, and their sum.
fn parts(stage: &StageChange, most: usize) -> (Grid<3>, Vec<(String, i64)>) {
    let mut grid = Grid::new(["part of the change of wall time", "ms>", "beyond noise"]);
    let mut bars = Vec::new();
    let explanation = &stage.explanation;
    for part in explanation.parts.iter().take(most) {
        let beyond = if part.beyond_noise { "yes" } else { "no" };
        grid.rows
            .push([part.name.clone(), signed(part.delta_ns), beyond.to_owned()]);
        bars.push((part.name.clone(), part.delta_ns));
    }
    if let Some(rest) = explanation.parts.get(most..).filter(|rest| !rest.is_empty()) {
        let sum: i64 = rest.iter().map(|part| part.delta_ns).sum();
        let name = format!("{} more", rest.len());
        grid.rows.push([name.clone(), signed(sum), String::new()]);
        bars.push((name, sum));
    }
    if !grid.rows.is_empty() {
        let sum = signed(explanation.wall_delta_ns);
        grid.rows
            .push(["sum: the change of wall time".to_owned(), sum, String::new()]);
    }
    (grid, bars)
}

/// Kernels that changed, and how many more than are shown.
fn kernels(changes: &[KernelChange], most: usize) -> (Grid<7>, usize) {
    let mut grid = Grid::new([
        "kernel",
        "is",
        "change ms>",
        "base ms>",
        "head ms>",
        "calls>",
        "mean µs>",
    ]);
    let changed: Vec<&KernelChange> = changes
        .iter()
        .filter(|kernel| kernel.status != KernelStatus::Same)
        .collect();
    for kernel in changed.iter().take(most) {
        let side = |side: &Option<roofgap_analyze::compare::KernelSide>| {
            side.as_ref().map_or(NONE.to_owned(), |side| ms(side.total_ns))
        };
        let (base, head) = (kernel.base.as_ref(), kernel.head.as_ref());
        let both = |get: &dyn Fn(&roofgap_analyze::compare::KernelSide) -> String| {
            let (base, head) = (base.map(get), head.map(get));
            match (base, head) {
                (Some(base), Some(head)) if base == head => base,
                (Some(base), Some(head)) => format!("{base} → {head}"),
                (one, other) => one.or(other).unwrap_or_default(),
            }
        };
        let star = if kernel.matched_by == MatchedBy::FamilyAndPlace {
            " (renamed)"
        } else {
            ""
        };
        grid.rows.push([
            format!("{}{star}", kernel.short_name),
            status(kernel.status).to_owned(),
            signed(kernel.delta_ns),
            side(&kernel.base),
            side(&kernel.head),
            both(&|side| calls(side.calls)),
            both(&|side| format!("{:.2}", side.mean_ns as f64 / 1e3)),
        ]);
    }
    let more = changed.len().saturating_sub(most);
    (grid, more)
}

fn calls(calls: f64) -> String {
    if calls.fract() == 0.0 {
        format!("{calls:.0}")
    } else {
        format!("{calls:.1}")
    }
}

fn status(status: KernelStatus) -> &'static str {
    match status {
        KernelStatus::Same => "same",
        KernelStatus::Faster => "faster",
        KernelStatus::Slower => "slower",
        KernelStatus::MoreCalls => "more calls",
        KernelStatus::FewerCalls => "fewer calls",
        KernelStatus::Added => "added",
        KernelStatus::Gone => "gone",
    }
}

/// Which names were taken for one kernel, and why.
fn renamed(changes: &[KernelChange]) -> Vec<String> {
    let pair = |kernel: &KernelChange| {
        let why = kernel.match_reason.as_ref()?;
        let (base, head) = (kernel.base.as_ref()?, kernel.head.as_ref()?);
        let name = |name: &str| roofgap_analyze::short_name(name);
        Some(format!(
            "{} is taken for {}: {why}",
            name(&head.name),
            name(&base.name)
        ))
    };
    changes.iter().filter_map(pair).take(8).collect()
}
