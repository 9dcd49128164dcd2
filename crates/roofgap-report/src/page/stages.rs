//! The time of each stage: a bar per stage, a table, and a bar per step; requests and tokens of each step of a serving engine; and
//! communication, hidden and exposed.

use super::class;
use crate::Bundle;
use crate::document::stages::{
    PARTS, TimePart, columns_note, corrected, coverage, outside, parts, parts_exceed_time,
    steps as steps_sentence, table, used_parts,
};
use crate::document::{capitalized, joined};
use crate::render::html::absent;
use maud::{Markup, html};
use roofgap_analyze::{Analysis, CommunicationRow, EngineStep, Note, Scheduled, Stage, StageKind, Steps};
use roofgap_base::numbers::{NONE, count, ms, or_none, time};
use roofgap_base::text::cut;
use roofgap_trace::Ns;

/// The most bars of steps; a bar stands for several of more steps.
const BARS: usize = 400;
/// Height of the drawing of steps.
const HEIGHT: f64 = 100.0;

/// Renders the bars and the table of all stages, and the steps of each.
pub fn stages(bundle: Bundle<'_>) -> Markup {
    let stages = &bundle.analysis.stages;
    let widest = stages.iter().map(Stage::elapsed_ns).max().unwrap_or(0).max(1);
    html! {
        @if !stages.is_empty() {
            (legend(used_parts(stages).into_iter().map(|at| &PARTS[at])))
            @for stage in stages { (bar(stage, 100.0 * stage.elapsed_ns() as f64 / widest as f64)) }
            (stage_table(stages))
            @if let Some(rest) = outside(bundle.analysis) { p { (capitalized(&rest)) "." } }
        }
        @for stage in stages {
            @for line in stage.coverage.as_ref().map(coverage).into_iter().chain(corrected(stage)) {
                p { (cut(&stage.name, 60)) ": " (line) }
            }
        }
        @for (at, stage) in stages.iter().enumerate() {
            @if let Some(steps) = stage.steps.as_ref().filter(|s| s.count > 1) {
                @let is_drawn = bundle.trace.is_some() && !bundle.stages.spans(at).steps.is_empty();
                (step_chart(stage, steps, is_drawn.then_some(at)))
            }
        }
        @if let Some(charts) = engine_steps(bundle) { (charts) }
    }
}

/// Returns the parts of a stage's time that are not empty, with their time in ns and their share in %.
pub fn shares(stage: &Stage) -> Vec<(&'static TimePart, i64, f64)> {
    let times = parts(stage).unwrap_or_default();
    let all = times.iter().fold(0, |sum: i64, ns| sum.saturating_add(*ns)).max(1) as f64;
    let parts = PARTS.iter().zip(times).filter(|part| part.1 > 0);
    parts.map(|(part, ns)| (part, ns, 100.0 * ns as f64 / all)).collect()
}

/// Lists parts with their shares.
fn share_words(shares: &[(&TimePart, i64, f64)]) -> String {
    joined(shares.iter().map(|(part, _, share)| format!("{} {share:.1} %", part.name)), ", ")
}

/// Renders the meaning of the colours of parts.
fn legend<'a>(parts: impl Iterator<Item = &'a TimePart>) -> Markup {
    html! { ul.legend { @for part in parts { li { i class=(part.class) {} (part.name) " " small { (part.meaning) } } } } }
}

/// Renders the parts of a bar of a width in %; parts that are wide enough have a label.
pub fn share_bar(shares: &[(&TimePart, i64, f64)], width: f64) -> Markup {
    html! {
        @for (part, ns, share) in shares {
            span class=(part.class) style=(format!("flex:{share:.4}")) title=(format!("{}: {}, {share:.1} %", part.name, time(*ns))) {
                @if share * width >= 450.0 { (format!("{share:.0} %")) }
            }
        }
    }
}

fn bar(stage: &Stage, width: f64) -> Markup {
    let name = cut(&stage.name, 60);
    let shares = parts(stage).map(|_| shares(stage));
    let label = shares.as_ref().map(|shares| format!("{name}: {}", share_words(shares)));
    let content = html! {
        @match &shares {
            Some(shares) => (share_bar(shares, width)),
            None => span.unknown style="flex:1" { "no GPU work recorded" },
        }
    };
    bar_row(&name, stage.elapsed_ns(), width, "bar", label.as_deref(), content)
}

/// Renders a bar of a width in %, with what it is and its time.
fn bar_row(name: &str, ns: i64, width: f64, class: &str, label: Option<&str>, content: Markup) -> Markup {
    html! {
        div.bar-row {
            span.bar-name { (name) " " b { (time(ns)) } }
            div class=(class) role=[label.map(|_| "img")] style=(format!("width:{width:.3}%")) aria-label=[label] { (content) }
        }
    }
}

fn stage_table(stages: &[Stage]) -> Markup {
    let mut table =
        table(stages).without(&["instances", "idle ms", "rest ms", "MFU %", "MBU %", "measured MBU %"]);
    for (stage, row) in stages.iter().zip(std::mem::take(&mut table.rows)) {
        table.row(row);
        for note in &stage.notes {
            table.notes.push(table.rows.len());
            let cells = table.headings.iter().map(|heading| note_cell(&heading.name, note));
            table.rows.push(cells.collect());
        }
    }
    html! {
        (table.html())
        @if let Some(note) = columns_note(stages) { p.hint { (note) } }
        @if stages.iter().any(parts_exceed_time) {
            p.hint { "Parts can add up to more than the time of a stage: GPU work of one instance may run in the time of another." }
        }
    }
}

/// Returns the cell of a part of a stage.
fn note_cell(column: &str, note: &Note) -> String {
    match column {
        "stage" => format!("of which {}", cut(&note.name, 60)),
        "wall ms" | "CPU wall ms" => ms(note.wall_ns),
        "kernel ms" => or_none(note.kernel_ns, ms),
        "kernels" => count(note.kernel_count),
        _ => String::new(),
    }
}

/// Renders the time of each step as bars. `timeline` is the position of the stage whose steps the timeline can show.
fn step_chart(stage: &Stage, steps: &Steps, timeline: Option<usize>) -> Markup {
    let name = cut(&stage.name, 60);
    let group = steps.each_ns.len().div_ceil(BARS).max(1);
    let bars: Vec<&[i64]> = steps.each_ns.chunks(group).collect();
    let most = steps.each_ns.iter().copied().max().unwrap_or(0).max(1);
    let height = |ns: i64| (HEIGHT * ns as f64 / most as f64).max(0.5);
    let median = format!("{:.2}", HEIGHT - height(steps.p50_ns));
    html! {
        h3 { "Steps of " (name) }
        p { (steps_sentence(steps)) "." }
        @if bars.is_empty() { (absent("No bars: the duration of each step was not recorded.")) }
        @else {
            div.steps data-stage=[timeline] data-group=[timeline.map(|_| group)] data-steps=[timeline.map(|_| steps.each_ns.len())]
                tabindex=[timeline.map(|_| 0)] role="img" aria-label={ "time of each step of " (name) } {
                span.axis { (time(most)) }
                svg viewBox={ "0 0 " (bars.len()) " " (HEIGHT) } preserveAspectRatio="none" {
                    @for (i, part) in bars.iter().enumerate() {
                        @let longest = part.iter().copied().max().unwrap_or(0);
                        @let class = if longest * 2 > steps.p50_ns * 3 { "slow" } else { "" };
                        (column(class, i, 0.0, height(longest), html! { title { (step_label(i * group + 1, part, longest)) } }))
                    }
                    line x1="0" x2=(bars.len()) y1=(median) y2=(median) {}
                }
            }
            p.hint {
                "The line is the median; bars over 1.5 times the median are marked."
                @if group > 1 { " A bar is the longest of " (group) " steps." }
                @if timeline.is_some() { " Select a bar to see it in the timeline." }
            }
        }
    }
}

/// Draws a part of the `i`th column of a chart.
fn column(class: &str, i: usize, from: f64, height: f64, content: Markup) -> Markup {
    let (x, y) = (i as f64 + 0.075, HEIGHT - from - height);
    html! {
        rect class=[(!class.is_empty()).then_some(class)] x=(format!("{x:.2}")) y=(format!("{y:.2}")) width="0.85" height=(format!("{height:.2}")) { (content) }
    }
}

fn step_label(first: usize, steps: &[i64], longest: i64) -> String {
    if steps.len() == 1 {
        return format!("step {first}: {}", time(longest));
    }
    let mean = steps.iter().sum::<i64>() / (steps.len().max(1) as i64);
    let last = first + steps.len() - 1;
    format!("steps {first} to {last}: mean {}, longest {}", time(mean), time(longest))
}

/// A step of a serving engine.
struct Step {
    start: Ns,
    stage: String,
    step: EngineStep,
}

/// Renders the charts; `None` without engine steps.
fn engine_steps(bundle: Bundle<'_>) -> Option<Markup> {
    let stages = &bundle.analysis.stages;
    let of_stage = |(at, stage): (usize, &'_ Stage)| {
        let spans = bundle.stages.spans(at).instances.iter().zip(bundle.stages.engine_steps(at));
        spans
            .map(|(span, step)| Step { start: span.start, stage: stage.name.clone(), step: *step })
            .collect::<Vec<_>>()
    };
    let mut steps: Vec<Step> = stages.iter().enumerate().flat_map(of_stage).collect();
    steps.sort_by_key(|step| step.start);
    // In the colours of the stages, where there are such.
    let place = |kind| stages.iter().position(|stage| stage.kind == kind);
    let colors = [(StageKind::Prefill, 0), (StageKind::Decode, 1)]
        .map(|(kind, at)| class::stage(place(kind).unwrap_or(at)));
    (!steps.is_empty()).then(|| {
        html! {
            h3 { "Batch of each engine step" }
            (chart(&steps, "requests", &colors, |phase| phase.requests))
            (chart(&steps, "tokens", &colors, |phase| phase.tokens))
            ul.legend {
                li { i class=(colors[0]) {} "context (prefill)" }
                li { i class=(colors[1]) {} "generation (decode)" }
            }
        }
    })
}

/// Renders one quantity of all steps: context below, generation on top.
fn chart(steps: &[Step], name: &str, colors: &[String; 2], value: fn(&Scheduled) -> Option<u64>) -> Markup {
    let known = |step: &Step| value(&step.step.context).zip(value(&step.step.generation));
    let total = |step: &Step| known(step).map_or(0, |(context, generation)| context + generation);
    if steps.iter().all(|step| known(step).is_none()) {
        return absent(&format!("No {name}: the names of the steps do not tell them."));
    }
    let group = steps.len().div_ceil(BARS).max(1);
    let bars: Vec<&[Step]> = steps.chunks(group).collect();
    let most = steps.iter().map(total).max().unwrap_or(0).max(1);
    let height = |n: u64| HEIGHT * n as f64 / most as f64;
    html! {
        div.steps role="img" aria-label={ (name) " of " (count(steps.len() as u64)) " engine steps, at most " (count(most)) } {
            span.axis { (count(most)) " " (name) }
            svg viewBox={ "0 0 " (bars.len()) " " (HEIGHT) } preserveAspectRatio="none" {
                @for (i, part) in bars.iter().enumerate() {
                    @if let Some((at, step)) = part.iter().enumerate().max_by_key(|(_, step)| total(step)) {
                        @let (context, generation) = known(step).unwrap_or_default();
                        g {
                            title {
                                "step " (count((i * group + at + 1) as u64)) ", " (cut(&step.stage, 60)) ": "
                                (or_none(value(&step.step.context), count)) " context, " (or_none(value(&step.step.generation), count)) " generation " (name)
                                @if known(step).is_none() { " (" (NONE) ": not in the name of the step)" }
                            }
                            (column(&colors[0], i, 0.0, height(context), html! {}))
                            (column(&colors[1], i, height(context), height(generation), html! {}))
                        }
                    }
                }
            }
        }
        @if group > 1 { p.hint { "A bar is the largest of " (group) " steps." } }
    }
}

/// The most bars; the table below has all rows, also those without a time.
const COLLECTIVES: usize = 12;

/// Renders a bar for each of the longest rows.
pub fn communication(analysis: &Analysis) -> Markup {
    let timed = analysis.communication.iter().filter(|row| row.total_ns > 0);
    let rows: Vec<&CommunicationRow> = timed.take(COLLECTIVES).collect();
    let widest = rows.iter().map(|row| row.total_ns).max().unwrap_or(0).max(1);
    html! {
        @if !rows.is_empty() {
            ul.legend {
                li { i.busy {} "hidden " small { "behind computation" } }
                li { i.exposed {} "exposed " small { "no computation at the same time" } }
            }
            @for row in rows { (collective(row, widest)) }
        }
    }
}

fn collective(row: &CommunicationRow, widest: i64) -> Markup {
    let device = match row.device {
        Some(device) => format!(", GPU {device}"),
        None if row.on == "cpu" => ", CPU".to_owned(),
        None => String::new(),
    };
    let name = format!("{}{device}", cut(&row.collective, 60));
    let share = 100.0 * row.exposed_ns.clamp(0, row.total_ns) as f64 / row.total_ns as f64;
    let label = format!("{name}: {share:.1} % exposed");
    let content = html! {
        span.busy style=(format!("flex:{:.4}", 100.0 - share)) {}
        span.exposed style=(format!("flex:{share:.4}")) {}
    };
    bar_row(
        &name,
        row.total_ns,
        100.0 * row.total_ns as f64 / widest as f64,
        "bar thin",
        Some(&label),
        content,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::ENGINES;

    /// The title of a bar names the step whose numbers it has.
    #[test]
    fn a_bar_of_several_steps_names_the_largest() {
        let scheduled = |requests| Scheduled { requests: Some(requests), ..Scheduled::default() };
        let mut steps: Vec<Step> = (0..800)
            .map(|start| Step {
                start,
                stage: "decode".to_owned(),
                step: EngineStep { engine: ENGINES[0], context: scheduled(0), generation: scheduled(1) },
            })
            .collect();
        steps[3].step.generation = scheduled(7);
        let drawn =
            chart(&steps, "requests", &[0, 1].map(class::stage), |phase| phase.requests).into_string();
        assert!(drawn.contains("step 4, decode: 0 context, 7 generation requests"), "{drawn}");
        assert!(drawn.contains("A bar is the largest of 2 steps."));
    }
}
