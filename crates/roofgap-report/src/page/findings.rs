//! Findings by saving, with their evidence drawn, an action to copy and a link to the timeline.

use super::class;
use crate::Bundle;
use crate::document::findings::{
    SAVINGS_OVERLAP, also_in, disproof, evidence_name, evidence_value, in_order, next_op, none_found, saving,
    saving_per_token, stage_at, trial,
};
use crate::render::html::absent;
use maud::{Markup, html};
use roofgap_analyze::findings::{Rows, explain, to_act_on};
use roofgap_analyze::{Finding, IdlePart, IdleParts, Kernel, StageSpans, short_name};
use roofgap_base::numbers::{counted, time};
use roofgap_base::text::cut;
use roofgap_trace::{Ns, Trace};
use serde_json::Value;

/// Number of findings that are open at first, and before the smaller ones.
const OPEN: usize = 3;
const FIRST: usize = 5;

/// Renders all findings, each with the piece of the timeline that it speaks of.
pub fn findings(bundle: Bundle<'_>, idle: &IdleParts) -> Markup {
    let analysis = bundle.analysis;
    let list = in_order(&analysis.findings);
    if list.is_empty() {
        return absent(&none_found(analysis));
    }
    let shown = to_act_on(&analysis.findings).len().min(FIRST);
    let rows = |from: usize, to: usize| {
        html! {
            ol.findings start=(from + 1) {
                @for (i, (finding, others)) in list.iter().enumerate().take(to).skip(from) {
                    li id={ "finding-" (i + 1) } { details open[i < OPEN] {
                        summary {
                            b { (finding.title) }
                            span.saving {
                                (saving(analysis, finding))
                                @if let Some(token) = saving_per_token(analysis, finding) { ", " (token) }
                                ", " (finding.confidence.as_str()) " " code { (finding.id) }
                                @if let Some(id) = &finding.part_of { ", part of " code { (id) } }
                                @if let Some(stages) = also_in(analysis, others) { "; " (stages) }
                            }
                        }
                        p.action { b { "Do: " } span { (finding.action) } " " button.copy type="button" hidden { "Copy" } }
                        @if let Some((command, changes)) = trial(finding, &bundle.context.title) {
                            p.action { b { "Try: " } span { (command) } " " button.copy type="button" hidden { "Copy" } " (" (changes) ")" }
                        }
                        @if let Some(line) = disproof(finding) { p.hint { (line) } }
                        @if let Some(drawing) = piece(bundle, finding, idle) { (drawing) }
                        dl.evidence {
                            @for (key, value) in &finding.evidence {
                                div { dt { (evidence_name(key)) } dd { (evidence(key, value)) } }
                            }
                        }
                        @if let Some(link) = link(bundle, finding) { (link) }
                    } }
                }
            }
        }
    };
    html! {
        @if list.len() > 1 { p.hint { (SAVINGS_OVERLAP) } }
        (rows(0, shown))
        @if list.len() > shown {
            details { summary { (counted((list.len() - shown) as u64, "smaller finding")) } (rows(shown, list.len())) }
        }
    }
}

fn evidence(key: &str, value: &Value) -> Markup {
    let shown = evidence_value(key, value);
    html! {
        @if value.is_string() { span title=(cut(&shown, 2000)) { (cut(&shown, 120)) } }
        @else { (cut(&shown, 200)) }
    }
}

/// Returns the position of the stage of a finding, if the timeline has it.
fn place(bundle: Bundle<'_>, finding: &Finding) -> Option<usize> {
    let at = stage_at(bundle.analysis, finding)?;
    let is_drawn = bundle.trace.is_some() && !bundle.stages.spans(at).instances.is_empty();
    is_drawn.then_some(at)
}

/// Renders a button that shows the finding in the timeline; `None` if its stage is not there.
fn link(bundle: Bundle<'_>, finding: &Finding) -> Option<Markup> {
    let at = place(bundle, finding)?;
    let (kernel, step) = (named_kernel(finding), named_step(finding, bundle.stages.spans(at)));
    let stage = cut(finding.stage.as_deref().unwrap_or_default(), 60);
    let label = match (kernel, step) {
        (Some(_), _) => format!("Show this kernel in {stage}"),
        (None, Some(step)) => format!("Show step {step} of {stage}"),
        (None, None) => format!("Show {stage} in the timeline"),
    };
    Some(html! {
        button.jump type="button" data-stage=(at) data-kernel=[kernel] data-step=[step.map(|s| s - 1)] { (label) }
    })
}

/// Returns the kernel that the evidence of a finding names.
fn named_kernel(finding: &Finding) -> Option<&str> {
    ["kernel", "largest"].iter().find_map(|key| finding.evidence.get(*key)?.as_str())
}

/// Returns the number of the step that the evidence names, in place of a kernel; the first is 1.
fn named_step(finding: &Finding, spans: &StageSpans) -> Option<usize> {
    let step = usize::try_from(finding.evidence.get("slowest_step")?.as_u64()?).ok()?;
    (named_kernel(finding).is_none() && (1..=spans.steps.len()).contains(&step)).then_some(step)
}

/// What a finding speaks of: words for it, its time, and the operation that it is or that ended it.
struct Spot {
    what: String,
    start: Ns,
    end: Ns,
    op: usize,
}

/// Finds the longest launch of the kernel of a finding, or its longest gap; `None` where it is about neither.
fn spot(bundle: Bundle<'_>, finding: &Finding, stage: usize, idle: &IdleParts) -> Option<Spot> {
    let (trace, index, warm) = (bundle.trace?, bundle.stages, bundle.stages.warm(stage));
    let (named, rows) = (named_kernel(finding), explain(&finding.id)?.rows);
    let is_meant = |kernel: &&Kernel| match (named, rows) {
        (Some(named), _) => kernel.name == named || kernel.short_name == named,
        (None, Rows::Kernels(families)) => families.is_empty() || families.contains(&kernel.family),
        _ => false,
    };
    let kernels = &bundle.analysis.stages.get(stage)?.kernels;
    if let Some(kernel) = kernels.iter().filter(is_meant).max_by_key(|kernel| kernel.total_ns) {
        let (id, _) = trace.names.iter().find(|(_, name)| *name == kernel.name)?;
        let is_launch = |op: &usize| trace.ops.name[*op] == id;
        let launches = (0..trace.ops.len()).filter(is_launch).filter(|op| index.holds(warm, *op));
        let op = launches.max_by_key(|op| trace.ops.end[*op] - trace.ops.start[*op])?;
        let what = format!("the longest launch of {}", cut(&kernel.short_name, 80));
        return Some(Spot { what, start: trace.ops.start[op], end: trace.ops.end[op], op });
    }
    let (cause, step) = match rows {
        Rows::Gaps(cause) => (Some(cause), None),
        Rows::Steps => (None, named_step(finding, index.spans(stage))),
        Rows::Kernels(_) | Rows::Evidence => return None,
    };
    let span = step.and_then(|step| index.spans(stage).steps.get(step - 1));
    let is_meant = |part: &IdlePart| {
        cause.is_none_or(|cause| cause == part.cause)
            && span.is_none_or(|span| part.start < span.end && span.start < part.end)
    };
    let before = |part: IdlePart| {
        let op = next_op(trace, part.device, part.end).filter(|op| index.holds(warm, *op))?;
        Some((part.start, part.end, op))
    };
    // Looking for the operation behind a gap takes long, and few gaps are the longest so far.
    let longest = idle.iter().filter(is_meant).fold(None, |longest: Option<(Ns, Ns, usize)>, part| {
        let is_longer = longest.is_none_or(|(start, end, _)| part.end - part.start >= end - start);
        if is_longer { before(part).or(longest) } else { longest }
    });
    let (start, end, op) = longest?;
    let place = step.map_or_else(String::new, |step| format!(" in step {step}"));
    Some(Spot { what: format!("the longest gap{place}"), start, end, op })
}

/// Number of operations in a piece.
const OPS: usize = 24;
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 26.0;

/// Renders the operations around what a finding speaks of.
fn piece(bundle: Bundle<'_>, finding: &Finding, idle: &IdleParts) -> Option<Markup> {
    let trace = bundle.trace?;
    let spot = spot(bundle, finding, place(bundle, finding)?, idle)?;
    let device = trace.ops.device.get(spot.op)?;
    let is_own = |op: &usize| trace.ops.device.get(*op) == Some(device);
    let mut piece: Vec<usize> = (0..spot.op).rev().filter(is_own).take(OPS / 2).collect();
    piece.extend((spot.op..trace.ops.len()).filter(is_own).take(OPS / 2));
    let (first, last) = piece.iter().fold((spot.start, spot.end), |(first, last), op| {
        (first.min(trace.ops.start[*op]), last.max(trace.ops.end[*op]))
    });
    // Gaps of several devices are not in the order of their start.
    let inside = |part: &IdlePart| part.device == *device && part.start >= first && part.end <= last;
    let gaps: Vec<IdlePart> = idle.iter().filter(inside).collect();
    Some(draw(trace, &piece, &gaps, (first, last), &spot))
}

fn draw(trace: &Trace, piece: &[usize], gaps: &[IdlePart], (first, last): (Ns, Ns), spot: &Spot) -> Markup {
    let length = (last - first).max(1);
    let x = |t: Ns| WIDTH * (t - first) as f64 / length as f64;
    let box_of = |class: &str, (start, end): (Ns, Ns), (y, height): (f64, f64), title: Option<String>| {
        let (at, wide) = (format!("{:.2}", x(start)), format!("{:.2}", (x(end) - x(start)).max(0.6)));
        html! {
            rect class=(class) x=(at) y=(y) width=(wide) height=(height) {
                @if let Some(title) = title { title { (title) ": " (time(end - start)) } }
            }
        }
    };
    let idle: Ns = gaps.iter().map(|part| part.end - part.start).sum();
    let share = 100.0 * idle as f64 / length as f64;
    let sentence = format!(
        "Outlined: {}, {}. Of the {} around it, the GPU ran nothing for {} ({share:.0} %).",
        spot.what,
        time(spot.end - spot.start),
        time(length),
        time(idle)
    );
    let op_box = |op: usize| {
        let name = trace.names.get(trace.ops.name[op]);
        let class = format!("f-{}", class::css(class::of_op(trace.ops.kind[op], name)));
        let span = (trace.ops.start[op], trace.ops.end[op]);
        box_of(&class, span, (0.0, HEIGHT), Some(cut(&short_name(name), 120)))
    };
    html! {
        figure.cut {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(sentence) {
                @for part in gaps {
                    @let class = class::of_idle(part.cause);
                    (box_of(class, (part.start, part.end), (8.0, 10.0), Some(class.replace('-', ": "))))
                }
                @for &op in piece { (op_box(op)) }
                (box_of("spot", (spot.start, spot.end), (1.0, HEIGHT - 2.0), None))
            }
            figcaption.hint { (sentence) }
        }
    }
}
