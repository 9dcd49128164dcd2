//! Where the time of each stage goes: a bar each, and the same in numbers.

use super::markup::{escape, escape_cut};
use crate::bundle::Bundle;
use crate::number::{NONE, count, ms, ms_or};
use roofgap_analyze::Stage;
use std::fmt::Write;

/// The parts of a stage: class, name and what it means.
const PARTS: [(&str, &str, &str); 7] = [
    ("busy", "GPU busy", "at least one operation ran"),
    (
        "idle-launch",
        "idle: launch",
        "the CPU had not launched the next operation yet",
    ),
    (
        "idle-sync",
        "idle: sync",
        "the launching thread was waiting for the device",
    ),
    (
        "idle-copy",
        "idle: copy",
        "the launching thread was inside a copy call",
    ),
    ("idle-other", "idle: other", "launched and not started"),
    (
        "outside",
        "outside",
        "before the first and after the last GPU operation of the stage",
    ),
    (
        "shared",
        "shared",
        "instances at the same time on one GPU, whose time counts once",
    ),
];

/// The part that only programs of several processes or threads have.
const SHARED: usize = 6;

/// A bar for every stage, and a table.
pub(super) fn stages(bundle: Bundle<'_>) -> String {
    let stages = &bundle.analysis.stages;
    if stages.is_empty() {
        return String::new();
    }
    let mut out = String::from("<ul class=\"legend\">");
    for (class, name, meaning) in PARTS.iter().take(used(stages)) {
        let _ = write!(
            out,
            "<li><i class=\"{class}\"></i>{name} <small>{meaning}</small></li>"
        );
    }
    out.push_str("</ul>");
    let widest = stages.iter().map(|s| s.wall_ns).max().unwrap_or(0).max(1);
    for stage in stages {
        bar(stage, widest, &mut out);
    }
    table(stages, &mut out);
    out
}

/// How long each part of a stage took; `None` without GPU work.
fn parts(stage: &Stage) -> Option<[i64; 7]> {
    let (busy, idle, projected) = (stage.busy_ns?, stage.idle?, stage.projected_ns?);
    let each = |ns| stage.each_device(ns);
    let elapsed = stage.elapsed_ns();
    let outside = (elapsed - projected).max(0);
    let known = each(busy + idle.total_ns()) + outside;
    // Less than one per cent lies at the edges of instances.
    let shared = Some(elapsed - known).filter(|rest| *rest > elapsed / 100);
    Some([
        each(busy),
        each(idle.launch_ns),
        each(idle.sync_ns),
        each(idle.copy_ns),
        each(idle.other_ns),
        outside,
        shared.unwrap_or(0),
    ])
}

/// The parts that any stage has.
fn used(stages: &[Stage]) -> usize {
    let shared = |s: &Stage| parts(s).is_some_and(|p| p[SHARED] > 0);
    if stages.iter().any(shared) {
        PARTS.len()
    } else {
        SHARED
    }
}

fn bar(stage: &Stage, widest: i64, out: &mut String) {
    let width = 100.0 * stage.wall_ns as f64 / widest as f64;
    let _ = write!(
        out,
        "<div class=\"bar-row\"><span class=\"bar-name\">{} <b>{} ms</b></span>",
        escape_cut(&stage.name, 60),
        ms(stage.wall_ns)
    );
    let Some(parts) = parts(stage) else {
        let _ = write!(
            out,
            "<div class=\"bar\" style=\"width:{width:.3}%\"><span class=\"unknown\" style=\"flex:1\">no GPU work recorded</span></div></div>"
        );
        return;
    };
    let all: i64 = parts.iter().sum::<i64>().max(1);
    let mut said = Vec::new();
    let mut cells = String::new();
    for ((class, name, _), ns) in PARTS.iter().zip(parts).filter(|p| p.1 > 0) {
        let share = 100.0 * ns as f64 / all as f64;
        said.push(format!("{name} {share:.1} %"));
        let label = if share * width >= 450.0 {
            format!("{share:.0} %")
        } else {
            String::new()
        };
        let _ = write!(
            cells,
            "<span class=\"{class}\" style=\"flex:{share:.4}\" title=\"{name}: {} ms, {share:.1} %\">{label}</span>",
            ms(ns)
        );
    }
    let _ = write!(
        out,
        "<div class=\"bar\" role=\"img\" style=\"width:{width:.3}%\" aria-label=\"{}: {}\">{cells}</div></div>",
        escape_cut(&stage.name, 60),
        escape(&said.join(", "))
    );
}

fn table(stages: &[Stage], out: &mut String) {
    out.push_str("<div class=\"scroll\"><table><thead><tr><th>Stage</th><th class=\"n\">Wall ms</th>");
    for (_, name, _) in PARTS.iter().take(used(stages)) {
        let _ = write!(out, "<th class=\"n\">{name} ms</th>");
    }
    out.push_str(
        "<th class=\"n\">Busy %</th><th class=\"n\">Kernel ms</th><th class=\"n\">Kernels</th><th class=\"n\">Launches</th></tr></thead><tbody>",
    );
    for stage in stages {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td>",
            escape_cut(&stage.name, 60),
            ms(stage.wall_ns)
        );
        let parts = parts(stage);
        for i in 0..used(stages) {
            let value = parts.and_then(|p| p.get(i).copied());
            let _ = write!(out, "<td class=\"n\">{}</td>", ms_or(value));
        }
        let gpu = |n: u64| {
            if stage.busy_ns.is_some() {
                count(n)
            } else {
                NONE.into()
            }
        };
        let busy = crate::text::busy_percent(stage);
        let _ = write!(
            out,
            "<td class=\"n\">{busy}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            ms_or(stage.kernel_ns),
            gpu(stage.kernel_count),
            gpu(stage.launch_count)
        );
        for note in &stage.notes {
            let _ = write!(
                out,
                "<tr class=\"note\"><th scope=\"row\">of which {}</th><td class=\"n\">{}</td>{}<td></td><td class=\"n\">{}</td><td class=\"n\">{}</td><td></td></tr>",
                escape_cut(&note.name, 60),
                ms(note.wall_ns),
                "<td></td>".repeat(used(stages)),
                ms_or(note.kernel_ns),
                count(note.kernel_count)
            );
        }
    }
    out.push_str("</tbody></table></div>");
    let more = |s: &Stage| parts(s).is_some_and(|p| p.iter().sum::<i64>() > s.wall_ns + s.wall_ns / 50);
    if stages.iter().any(more) {
        out.push_str(
            "<p class=\"hint\">Parts can add up to more than the wall time: they are summed over GPUs, and GPU work may go on after its range has closed on the CPU.</p>",
        );
    }
}
