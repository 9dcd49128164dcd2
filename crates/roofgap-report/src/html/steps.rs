//! The time of each step of a stage, as bars.

use super::markup::escape_cut;
use crate::bundle::Bundle;
use crate::number::{count, time};
use roofgap_analyze::{Stage, Steps};
use std::fmt::Write;

/// The most bars; more steps share one.
const MOST: usize = 400;
/// Height of the drawing.
const HEIGHT: f64 = 100.0;

/// A chart for every stage with steps.
pub(super) fn steps(bundle: Bundle<'_>) -> String {
    let mut out = String::new();
    for (at, stage) in bundle.analysis.stages.iter().enumerate() {
        if let Some(steps) = stage.steps.as_ref().filter(|s| s.count > 0) {
            let found = bundle.trace.is_some() && !bundle.stages.spans(at).steps.is_empty();
            chart(stage, steps, at, found, &mut out);
        }
    }
    out
}

fn chart(stage: &Stage, steps: &Steps, at: usize, found: bool, out: &mut String) {
    let name = escape_cut(&stage.name, 60);
    let launches = steps
        .launches_per_step
        .map(|l| format!(", {l:.0} launches a step"))
        .unwrap_or_default();
    let _ = write!(
        out,
        "<h3>Steps of {name}</h3><p>{} steps: mean {}, p50 {}, p90 {}, p99 {}{launches}.</p>",
        count(steps.count),
        time(steps.mean_ns),
        time(steps.p50_ns),
        time(steps.p90_ns),
        time(steps.p99_ns)
    );
    if steps.each_ns.is_empty() {
        out.push_str(&super::absence(
            "No bars",
            "the length of each step was not recorded",
        ));
        return;
    }
    let group = steps.each_ns.len().div_ceil(MOST);
    let most = steps.each_ns.iter().copied().max().unwrap_or(0).max(1) as f64;
    let bars: Vec<&[i64]> = steps.each_ns.chunks(group).collect();
    let link = if found {
        format!(
            " data-stage=\"{at}\" data-group=\"{group}\" data-steps=\"{}\" tabindex=\"0\"",
            steps.each_ns.len()
        )
    } else {
        String::new()
    };
    let _ = write!(
        out,
        "<div class=\"steps\"{link} role=\"img\" aria-label=\"time of each step of {name}\"><span class=\"axis\">{}</span><svg viewBox=\"0 0 {} {HEIGHT}\" preserveAspectRatio=\"none\">",
        time(most as i64),
        bars.len()
    );
    let height = |ns: i64| (HEIGHT * ns as f64 / most).max(0.5);
    for (i, part) in bars.iter().enumerate() {
        let longest = part.iter().copied().max().unwrap_or(0);
        let tall = height(longest);
        let first = i * group + 1;
        let label = if group == 1 {
            format!("step {first}: {}", time(longest))
        } else {
            let mean = part.iter().sum::<i64>() / (part.len().max(1) as i64);
            format!(
                "steps {first} to {}: mean {}, longest {}",
                first + part.len() - 1,
                time(mean),
                time(longest)
            )
        };
        let slow = if longest * 2 > steps.p50_ns * 3 {
            " class=\"slow\""
        } else {
            ""
        };
        let _ = write!(
            out,
            "<rect{slow} x=\"{:.2}\" y=\"{:.2}\" width=\"0.85\" height=\"{tall:.2}\"><title>{label}</title></rect>",
            i as f64 + 0.075,
            HEIGHT - tall
        );
    }
    let median = HEIGHT - height(steps.p50_ns);
    let _ = write!(
        out,
        "<line x1=\"0\" x2=\"{}\" y1=\"{median:.2}\" y2=\"{median:.2}\"/></svg></div>",
        bars.len()
    );
    let shared = if group > 1 {
        format!(" A bar is the longest of {group} steps.")
    } else {
        String::new()
    };
    let jump = if found {
        " Select a bar to see it in the timeline."
    } else {
        ""
    };
    let _ = write!(
        out,
        "<p class=\"hint\">The line is the median; bars over one and a half times the median are marked.{shared}{jump}</p>"
    );
}
