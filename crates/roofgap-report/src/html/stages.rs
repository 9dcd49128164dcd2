//! The time of each stage: a bar per stage, a table, and a bar per step.

use super::engine_steps::engine_steps;
use super::markup::absent;
use crate::bundle::Bundle;
use crate::view::numbers::{count, ms, or_none, time};
use crate::view::roof;
use crate::view::stages::{
    PARTS, TimePart, busy_percent, columns_note, coverage, parts, parts_exceed_time, steps as steps_sentence,
    two_clocks, used_parts,
};
use crate::view::table::cut;
use maud::{Markup, html};
use roofgap_analyze::{Stage, Steps};

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
            ul.legend {
                @for part in used_parts(stages).into_iter().map(|at| PARTS[at]) {
                    li { i class=(part.class) {} (part.name) " " small { (part.meaning) } }
                }
            }
            @for stage in stages { (bar(stage, 100.0 * stage.elapsed_ns() as f64 / widest as f64)) }
            (table(stages))
        }
        @for stage in stages {
            @if let Some(part) = &stage.coverage { p { (cut(&stage.name, 60)) ": " (coverage(part)) } }
        }
        @for (at, stage) in stages.iter().enumerate() {
            @if let Some(steps) = stage.steps.as_ref().filter(|s| s.count > 0) {
                @let found = bundle.trace.is_some() && !bundle.stages.spans(at).steps.is_empty();
                (step_chart(stage, steps, found.then_some(at)))
            }
        }
        @if let Some(charts) = engine_steps(bundle) { (charts) }
    }
}

/// Returns the parts of a stage's time that are not empty, with their time in ns and their share in %.
pub fn shares(stage: &Stage) -> Vec<(&'static TimePart, i64, f64)> {
    let parts = parts(stage);
    let all = parts.iter().flatten().sum::<i64>().max(1) as f64;
    let shares = PARTS.iter().zip(parts.into_iter().flatten());
    shares.filter(|p| p.1 > 0).map(|(part, ns)| (part, ns, 100.0 * ns as f64 / all)).collect()
}

fn bar(stage: &Stage, width: f64) -> Markup {
    let name = cut(&stage.name, 60);
    let parts = parts(stage);
    let shares = shares(stage);
    let label: Vec<String> =
        shares.iter().map(|(part, _, share)| format!("{} {share:.1} %", part.name)).collect();
    let label = parts.map(|_| format!("{name}: {}", label.join(", ")));
    html! {
        div.bar-row {
            span.bar-name { (name) " " b { (time(stage.elapsed_ns())) } }
            div.bar role=[label.as_ref().map(|_| "img")] style=(format!("width:{width:.3}%")) aria-label=[label] {
                @if parts.is_none() { span.unknown style="flex:1" { "no GPU work recorded" } }
                @for (part, ns, share) in shares {
                    span class=(part.class) style=(format!("flex:{share:.4}")) title=(format!("{}: {}, {share:.1} %", part.name, time(ns))) {
                        @if share * width >= 450.0 { (format!("{share:.0} %")) }
                    }
                }
            }
        }
    }
}

fn table(stages: &[Stage]) -> Markup {
    let used = used_parts(stages);
    let with_roof = stages.iter().any(|stage| stage.roof.roof_pct.is_some());
    let clocks: &[&str] = if two_clocks(stages) { &["Time ms", "CPU wall ms"] } else { &["Wall ms"] };
    let gpu = |stage: &Stage, n: u64| or_none(stage.busy_ns, |_| count(n));
    html! {
        div.scroll { table {
            thead { tr {
                th { "Stage" } @for name in clocks { th.n { (name) } }
                @for at in &used { th.n { (PARTS[*at].name) " ms" } }
                th.n { "Busy %" } th.n { "Kernel ms" } th.n { "Kernels" } th.n { "Launches" }
                @if with_roof { @for name in roof::COLUMNS { th.n { (name) } } }
            } }
            tbody { @for stage in stages {
                tr {
                    th scope="row" { (cut(&stage.name, 60)) }
                    @if clocks.len() > 1 { td.n { (ms(stage.elapsed_ns())) } }
                    td.n { (ms(stage.wall_ns)) }
                    @let parts = parts(stage);
                    @for at in &used { td.n { (or_none(parts.map(|p| p[*at]), ms)) } }
                    td.n { (busy_percent(stage)) }
                    td.n { (or_none(stage.kernel_ns, ms)) }
                    td.n { (gpu(stage, stage.kernel_count)) }
                    td.n { (gpu(stage, stage.launch_count)) }
                    @if with_roof { td.n { (roof::pct(&stage.roof)) } td.n { (roof::above(&stage.roof)) } }
                }
                @for note in &stage.notes {
                    tr.note {
                        th scope="row" { "of which " (cut(&note.name, 60)) }
                        @if clocks.len() > 1 { td {} }
                        td.n { (ms(note.wall_ns)) }
                        @for _ in 0..=used.len() { td {} }
                        td.n { (or_none(note.kernel_ns, ms)) }
                        td.n { (count(note.kernel_count)) }
                        td {}
                        @if with_roof { td {} td {} }
                    }
                }
            } }
        } }
        @if let Some(note) = columns_note(stages) { p.hint { (note) } }
        @if stages.iter().any(parts_exceed_time) {
            p.hint { "Parts can add up to more than the time of a stage: GPU work of one instance may run in the time of another." }
        }
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
                        rect class=[(longest * 2 > steps.p50_ns * 3).then_some("slow")] x=(format!("{:.2}", i as f64 + 0.075))
                            y=(format!("{:.2}", HEIGHT - height(longest))) width="0.85" height=(format!("{:.2}", height(longest))) {
                            title { (step_label(i * group + 1, part, longest)) }
                        }
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

fn step_label(first: usize, steps: &[i64], longest: i64) -> String {
    if steps.len() == 1 {
        return format!("step {first}: {}", time(longest));
    }
    let mean = steps.iter().sum::<i64>() / (steps.len().max(1) as i64);
    let last = first + steps.len() - 1;
    format!("steps {first} to {last}: mean {}, longest {}", time(mean), time(longest))
}
