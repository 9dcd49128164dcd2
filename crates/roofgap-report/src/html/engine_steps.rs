//! Requests and tokens of each step of a serving engine, as bars in the order of time.

use super::markup::absent;
use crate::bundle::Bundle;
use crate::view::numbers::{NONE, count, or_none};
use crate::view::table::cut;
use maud::{Markup, html};
use roofgap_analyze::{EngineStep, Scheduled};
use roofgap_trace::Ns;

/// The most bars; a bar is the largest of several of more steps.
const BARS: usize = 400;
const HEIGHT: f64 = 100.0;

struct Step<'a> {
    start: Ns,
    stage: &'a str,
    step: EngineStep,
}

/// Renders the charts; `None` without engine steps.
pub fn engine_steps(bundle: Bundle<'_>) -> Option<Markup> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for (at, stage) in bundle.analysis.stages.iter().enumerate() {
        let spans = bundle.stages.spans(at).instances.iter();
        let own = spans.zip(bundle.stages.engine_steps(at));
        steps.extend(own.map(|(span, step)| Step { start: span.start, stage: &stage.name, step: *step }));
    }
    if steps.is_empty() {
        return None;
    }
    steps.sort_by_key(|step| step.start);
    Some(html! {
        h3 { "Batch of each engine step" }
        (chart(&steps, "requests", |phase| phase.requests))
        (chart(&steps, "tokens", |phase| phase.tokens))
        ul.legend {
            li { i.f-attention {} "context (prefill)" }
            li { i.f-gemm {} "generation (decode)" }
        }
    })
}

/// Renders one quantity of all steps: context below, generation on top.
fn chart(steps: &[Step<'_>], name: &str, value: fn(&Scheduled) -> Option<u64>) -> Markup {
    let known = |step: &Step<'_>| value(&step.step.context).zip(value(&step.step.generation));
    let total = |step: &Step<'_>| known(step).map_or(0, |(context, generation)| context + generation);
    if steps.iter().all(|step| known(step).is_none()) {
        return absent(&format!("No {name}: the names of the steps do not tell them."));
    }
    let group = steps.len().div_ceil(BARS).max(1);
    let bars: Vec<&[Step<'_>]> = steps.chunks(group).collect();
    let most = steps.iter().map(total).max().unwrap_or(0).max(1);
    let height = |n: u64| HEIGHT * n as f64 / most as f64;
    html! {
        div.steps role="img" aria-label={ (name) " of " (count(steps.len() as u64)) " engine steps, at most " (count(most)) } {
            span.axis { (count(most)) " " (name) }
            svg viewBox={ "0 0 " (bars.len()) " " (HEIGHT) } preserveAspectRatio="none" {
                @for (i, part) in bars.iter().enumerate() {
                    @if let Some((at, step)) = part.iter().enumerate().max_by_key(|(_, step)| total(step)) {
                        @let (context, generation) = known(step).unwrap_or_default();
                        @let x = format!("{:.2}", i as f64 + 0.075);
                        g {
                            title {
                                "step " (count((i * group + at + 1) as u64)) ", " (cut(step.stage, 60)) ": "
                                (or_none(value(&step.step.context), count)) " context, " (or_none(value(&step.step.generation), count)) " generation " (name)
                                @if known(step).is_none() { " (" (NONE) ": not in the name of the step)" }
                            }
                            rect.f-attention x=(x) y=(format!("{:.2}", HEIGHT - height(context))) width="0.85" height=(format!("{:.2}", height(context))) {}
                            rect.f-gemm x=(x) y=(format!("{:.2}", HEIGHT - height(context + generation))) width="0.85" height=(format!("{:.2}", height(generation))) {}
                        }
                    }
                }
            }
        }
        @if group > 1 { p.hint { "A bar is the largest of " (group) " steps." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::ENGINES;

    /// The title of a bar names the step whose numbers it has.
    #[test]
    fn a_bar_of_several_steps_names_the_largest() {
        let scheduled = |requests| Scheduled { requests: Some(requests), ..Scheduled::default() };
        let mut steps: Vec<Step<'_>> = (0..800)
            .map(|start| Step {
                start,
                stage: "decode",
                step: EngineStep { engine: ENGINES[0], context: scheduled(0), generation: scheduled(1) },
            })
            .collect();
        steps[3].step.generation = scheduled(7);
        let drawn = chart(&steps, "requests", |phase| phase.requests).into_string();
        assert!(drawn.contains("step 4, decode: 0 context, 7 generation requests"), "{drawn}");
        assert!(drawn.contains("A bar is the largest of 2 steps."));
    }
}
