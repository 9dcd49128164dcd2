//! A short piece of a stage's timeline as a drawing: operations and the gaps between them.

use super::class;
use crate::bundle::Bundle;
use crate::view::numbers::time;
use crate::view::table::cut as shorten;
use maud::{Markup, html};
use roofgap_analyze::{IdleCause, IdlePart};
use roofgap_trace::{Ns, Trace};

/// Number of operations in a piece.
const OPS: usize = 24;
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 26.0;

/// Renders the middle of the longest instance of a stage; `None` where it has too few operations.
pub fn cut(bundle: Bundle<'_>, stage: usize, idle: &[IdlePart]) -> Option<Markup> {
    let trace = bundle.trace?;
    let spans = bundle.stages.spans(stage);
    let (at, _) = spans.instances.iter().enumerate().max_by_key(|(_, span)| span.length())?;
    let own = (0..trace.ops.len()).filter(|op| bundle.stages.instance_of(stage, *op) == Some(at));
    let own: Vec<usize> = own.collect();
    if own.len() < OPS {
        return None;
    }
    let device = trace.ops.device.get(own[own.len() / 2])?;
    let own: Vec<usize> = own.into_iter().filter(|op| trace.ops.device.get(*op) == Some(device)).collect();
    let middle = own.len().saturating_sub(OPS) / 2;
    let piece = own.get(middle..middle + OPS.min(own.len()))?;
    let (first, last) = piece.iter().fold((Ns::MAX, Ns::MIN), |(first, last), op| {
        (first.min(trace.ops.start[*op]), last.max(trace.ops.end[*op]))
    });
    // Gaps of several devices are not in the order of their start.
    let inside = |part: &&IdlePart| part.device == *device && part.start >= first && part.end <= last;
    let gaps: Vec<&IdlePart> = idle.iter().filter(inside).collect();
    Some(draw(trace, piece, &gaps, (first, last)))
}

fn draw(trace: &Trace, piece: &[usize], gaps: &[&IdlePart], (first, last): (Ns, Ns)) -> Markup {
    let length = (last - first).max(1);
    let x = |t: Ns| WIDTH * (t - first) as f64 / length as f64;
    let place =
        |start: Ns, end: Ns| (format!("{:.2}", x(start)), format!("{:.2}", (x(end) - x(start)).max(0.6)));
    let idle: Ns = gaps.iter().map(|part| part.end - part.start).sum();
    let share = 100.0 * idle as f64 / length as f64;
    let sentence = format!(
        "{} operations in the middle of the longest instance: {}, in which the GPU ran nothing for {} ({share:.0} %).",
        piece.len(),
        time(length),
        time(idle)
    );
    html! {
        figure.cut {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(sentence) {
                @for part in gaps {
                    @let (at, wide) = place(part.start, part.end);
                    rect class=(class::of_idle(part.cause)) x=(at) y="8" width=(wide) height="10" { title { (cause(part.cause)) ": " (time(part.end - part.start)) } }
                }
                @for &op in piece {
                    @let (start, end) = (trace.ops.start[op], trace.ops.end[op]);
                    @let (at, wide) = place(start, end);
                    @let name = trace.names.get(trace.ops.name[op]);
                    @let family = class::name(class::of_op(trace.ops.kind[op], name));
                    rect class={ "f-" (class::css(family)) } x=(at) y="0" width=(wide) height=(HEIGHT) {
                        title { (shorten(&roofgap_analyze::short_name(name), 120)) ": " (time(end - start)) }
                    }
                }
            }
            figcaption.hint { (sentence) }
        }
    }
}

fn cause(cause: IdleCause) -> String {
    class::of_idle(cause).replace('-', ": ")
}
