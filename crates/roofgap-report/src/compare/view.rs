//! The sections of a comparison, which text, Markdown and HTML render. Every sentence is computed from the rows below it.

use crate::document::stages::once_each;
use crate::document::table::Table;
use crate::document::{Block, Section, joined_any, maybe};
use crate::render::screen::Tone;
use roofgap_analyze::compare::{
    Basis, Change, Comparison, Difference, FunctionChange, GateOutcome, GateResult, GateVerdict, Judgement,
    KernelChange, KernelSide, KernelStatus, METRICS, MatchedBy, Metric, Outlier, SideName, StageChange,
    Weight,
};
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

/// Returns the section of a stage, then those of its breakdown and of its kernels.
fn stage_sections(stage: &StageChange, form: Form) -> Vec<Section> {
    let drawing = || form.is_page.then_some(Block::Drawing);
    let no_parts = match stage.basis {
        Basis::StepAndToken => Some("the two sides did different work"),
        Basis::Nothing => Some("the two sides do not compare"),
        _ => stage.explanation.why_not.as_deref(),
    };
    let no_kernels = unmeasured_side(&stage.kernel_ns)
        .map(|side| format!("the kernels do not compare: they were not measured on the {side}"));
    let own = Section::new("", stage.name.as_str())
        .with([Block::Line(stage_sentence(stage))])
        .with(drawing())
        .with([Block::Table(numbers(stage))])
        .with([Block::Note(format!("noise of wall time: {}", stage.wall_noise_from))])
        .with(outliers(stage).into_iter().map(Block::Note))
        .with(no_parts.map(|why| Block::Missing(format!("no breakdown of the change: {why}"))))
        .with(no_kernels.map(Block::Missing));
    let parts = parts(stage, form.parts);
    let breakdown = (!parts.is_empty()).then(|| {
        let block = drawing().unwrap_or_else(|| Block::Table(parts_table(stage, &parts)));
        Section::new("", "Breakdown of the change of wall time").with([block]).inner()
    });
    let kernels = kernels(&stage.kernels, form.kernels);
    let kernels =
        (!kernels.is_empty()).then(|| Section::new("", "Kernels that changed").with(kernels).inner());
    let functions = functions(stage, form.kernels).map(|table| {
        let title = "Functions of the CPU in which the GPU is idle for a different time, by step";
        Section::new("", title).with([Block::Table(table)]).inner()
    });
    [Some(own), breakdown, kernels, functions].into_iter().flatten().collect()
}

/// Describes the steps that are far from the others: one sentence for each side.
fn outliers(stage: &StageChange) -> Vec<String> {
    let longest = |side| {
        let own = stage.outliers.iter().filter(|outlier| outlier.side == side);
        let count = own.clone().count();
        own.max_by_key(|outlier| outlier.ns).map(|outlier| (outlier, count))
    };
    let sentence = |(longest, count): (&Outlier, usize)| {
        let side = longest.side.as_str();
        let what = match count {
            1 => format!("step {} of the {side} is an outlier", longest.step),
            count => {
                format!("{count} steps of the {side} are outliers, the longest is step {}", longest.step)
            }
        };
        format!(
            "{what}: {}, {} more than usual; outliers are part of the wall time, not of the step time and the noise",
            time(longest.ns),
            time(longest.excess_ns)
        )
    };
    [SideName::Base, SideName::Head].into_iter().filter_map(longest).map(sentence).collect()
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
    let rows: Vec<(&Metric, Change<f64>)> = METRICS
        .iter()
        .map(|metric| (metric, metric.of(stage)))
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
        .judged("is", |(_, change)| (change.judgement.as_str().unwrap_or(NONE), tone(change.judgement)))
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

/// Lists the parts of a change, ns, and whether each is beyond the noise: the largest by name, the rest in one. The change of a whole
/// stage has no meaning where the sides did different work.
pub fn parts(stage: &StageChange, most: usize) -> Vec<(String, i64, &'static str)> {
    if matches!(stage.basis, Basis::StepAndToken | Basis::Nothing) {
        return Vec::new();
    }
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
        .text("part of the change of wall time", |part| &part.0)
        .number("ms", |part| signed_ms(part.1))
        .text("beyond noise", |part| part.2)
        .build();
    if !table.is_empty() {
        table.row([SUM.to_owned(), signed_ms(stage.explanation.wall_delta_ns), String::new()]);
    }
    table
}

/// Returns the table of kernels that changed, the number of those left out, and the ones that were matched under different names.
fn kernels(changes: &[KernelChange], most: usize) -> Vec<Block> {
    let mut changed: Vec<&KernelChange> = changes.iter().filter(|k| k.status != KernelStatus::Same).collect();
    let more = changed.len().saturating_sub(most);
    changed.truncate(most);
    let calls = |calls: f64| format!("{calls:.*}", usize::from(calls.fract() != 0.0));
    let table = Table::of(&changed)
        .text("kernel", |k| {
            let renamed = k.matched_by == MatchedBy::FamilyAndPlace;
            format!("{}{}", k.short_name, if renamed { " (renamed)" } else { "" })
        })
        .judged("is", |k| status(k.status))
        .number("change ms", |k| signed_ms(k.delta_ns))
        .ms("base", |k| k.base.as_ref().map(|side| side.total_ns))
        .ms("head", |k| k.head.as_ref().map(|side| side.total_ns))
        .number("calls", |k| both(k, |side| calls(side.calls)))
        .number("mean µs", |k| both(k, |side| us(side.mean_ns)))
        .build();
    let more = (more > 0).then(|| Block::Note(format!("{more} more are in the JSON")));
    Block::table(table).into_iter().chain(more).chain(Block::list(renamed(changes))).collect()
}

/// Returns the table of functions whose idle time changed beyond its noise.
fn functions(stage: &StageChange, most: usize) -> Option<Table> {
    let changed = |own: &&FunctionChange| {
        matches!(own.idle_ns.judgement, Judgement::Better | Judgement::Worse) && stage.basis != Basis::Nothing
    };
    let changed: Vec<&FunctionChange> = stage.functions.iter().filter(changed).take(most).collect();
    let table = Table::of(&changed)
        .text("function", |own| &own.function)
        .text("file", |own| own.file.as_deref().unwrap_or_default())
        .number("change ms", |own| maybe(own.idle_ns.delta, signed_ms))
        .ms("base", |own| own.idle_ns.base)
        .ms("head", |own| own.idle_ns.head)
        .build();
    (!changed.is_empty()).then_some(table)
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

/// States the main result in one sentence, after what the two sides are where they are not the same thing.
pub fn headline(comparison: &Comparison) -> String {
    let conclusion = conclusion(comparison);
    alarm(comparison).map_or_else(|| conclusion.clone(), |alarm| format!("{alarm}. {conclusion}"))
}

/// States the conclusion; before it, that the two are not comparable as a whole.
pub fn conclusion(comparison: &Comparison) -> String {
    let by = match comparison.basis {
        Basis::Whole => return result(comparison),
        Basis::Instance => "; by instance: ",
        Basis::StepAndToken => "; by step and token: ",
        Basis::Nothing => "",
    };
    let because = comparison.not_whole_because();
    let because: Vec<&str> = because.iter().map(|difference| difference.what.as_str()).collect();
    let (how, result) = match comparison.basis {
        Basis::Nothing if comparison.gates.is_empty() => ("", String::new()),
        Basis::Nothing => ("", format!("; {}", result(comparison))),
        _ => (" as a whole", result(comparison)),
    };
    format!("not comparable{how} (different {}){by}{result}", because.join(", "))
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
    let mut words: [(&str, Vec<String>); 4] =
        ["worse", "mixed", "better", "unclear"].map(|word| (word, Vec::new()));
    for stage in &comparison.stages {
        let (worse, better) = (said(stage, Judgement::Worse), said(stage, Judgement::Better));
        let (at, rows) = match (worse, better) {
            (Some(worse), Some(better)) => (1, format!("{worse}, {better}")),
            (Some(worse), None) => (0, worse),
            (None, Some(better)) => (2, better),
            (None, None) => match said(stage, Judgement::Unclear) {
                Some(unclear) => (3, format!("{unclear} by outlier steps")),
                None => continue,
            },
        };
        words[at].1.push(format!("{} ({rows})", stage.name));
    }
    let known = words.iter().filter(|(_, stages)| !stages.is_empty());
    let parts = known.map(|(word, stages)| format!("{word}: {}", stages.join(", ")));
    if let Some(parts) = joined_any(parts, "; ") {
        return parts;
    }
    let rows = || comparison.stages.iter().flat_map(main_rows).map(|(_, change)| change);
    let withdrawn = rows().any(|row| row.is_on_both_sides() && row.judgement == Judgement::Unknown);
    let judged = rows().any(|row| row.judgement != Judgement::Unknown);
    match (withdrawn, judged) {
        _ if comparison.stages.is_empty() => total(comparison),
        (true, false) => "no time of a stage compares".to_owned(),
        (true, true) => "no change beyond the noise in the times that compare".to_owned(),
        _ if comparison.stages.iter().any(StageChange::has_changed) => {
            "no change of stage times beyond the noise".to_owned()
        }
        _ => "no change beyond the noise".to_owned(),
    }
}

/// Returns the times by which a stage is judged, the first ones first: those of a step and of a token where the sides did different
/// work.
fn main_rows(stage: &StageChange) -> impl Iterator<Item = (&'static Metric, Change<f64>)> {
    let names: &[&str] = match stage.basis {
        Basis::StepAndToken => &["step", "token"],
        _ => &["wall", "unwatched", "step", "busy", "kernel"],
    };
    let rows = METRICS.iter().filter(|metric| names.contains(&metric.name()));
    rows.map(|metric| (metric, metric.of(stage)))
}

/// Names the first row of a stage with a judgement: `wall +38.4 %`.
fn said(stage: &StageChange, wanted: Judgement) -> Option<String> {
    let (metric, change) = main_rows(stage).find(|(_, change)| change.judgement == wanted)?;
    let label = metric.label.trim_end_matches([' ', 'm', 's', 'µ']);
    Some(format!("{label}{}", maybe(change.delta_pct, |pct| format!(" {} %", signed(pct)))))
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

/// Describes a change: `71.6 ms to 78.8 ms, +10.0 %, worse`.
fn words(change: &Change<i64>) -> String {
    let (base, head, delta) = match (change.base, change.head, change.delta) {
        (Some(base), Some(head), Some(delta)) => (base, head, delta),
        (Some(base), ..) => return format!("{} on the base, not measured on the head", time(base)),
        (_, Some(head), _) => return format!("{} on the head, not measured on the base", time(head)),
        _ => return "measured on neither side".to_owned(),
    };
    let pct = maybe(change.delta_pct, |pct| format!(", {} %", signed(pct)));
    let judgement = match change.judgement {
        Judgement::Worse => "worse",
        Judgement::Better => "better",
        Judgement::Unclear => "unclear: without outlier steps it is within the noise",
        Judgement::Unknown => "not judged",
        Judgement::Same if delta == 0 => "the same",
        Judgement::Same => "within the noise",
    };
    format!("{} to {}{pct}, {judgement}", time(base), time(head))
}

/// Describes the change of a stage.
fn stage_sentence(stage: &StageChange) -> String {
    match stage.basis {
        Basis::StepAndToken => return different_work(stage),
        Basis::Nothing => return "the times of the two sides do not compare.".to_owned(),
        Basis::Whole | Basis::Instance => {}
    }
    let mut text = format!("wall {}", words(&stage.wall_ns));
    if stage.busy_ns.is_on_a_side() {
        text.push_str(&format!("; GPU busy {}", words(&stage.busy_ns)));
    }
    text.push('.');
    if stage.wall_ns.judgement == Judgement::Same
        && let (Some(busy), Some(idle)) = (stage.busy_ns.delta, stage.idle_ns.delta)
    {
        // Idle time makes up for at least half of the change.
        let is_made_up = idle.signum() == -busy.signum() && idle.unsigned_abs() >= busy.unsigned_abs() / 2;
        match stage.busy_ns.judgement {
            Judgement::Worse if is_made_up => {
                text.push_str(" The GPU is busy for longer; less idle time hides that.");
            }
            Judgement::Better if is_made_up => text.push_str(
                " The GPU is busy for less time and idle for longer: something else limits this stage.",
            ),
            _ => {}
        }
    }
    text
}

/// Describes the change of a stage in which the sides did different work.
fn different_work(stage: &StageChange) -> String {
    let values = [("step", &stage.step_ns), ("time per token", &stage.token_ns)];
    let known = values.iter().filter(|(_, change)| change.is_on_both_sides());
    let parts = joined_any(known.map(|(name, change)| format!("{name} {}", words(change))), "; ");
    parts.map_or_else(
        || "the sides did different work, and the time of a step or a token is not known on both.".to_owned(),
        |parts| format!("{parts}. Values of the whole stage do not compare."),
    )
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
