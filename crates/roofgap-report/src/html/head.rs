//! The top of the page: what ran, on what, and what holds each stage back.

use super::markup::{escape, escape_cut};
use crate::bundle::Bundle;
use crate::number::{NONE, count, si, time};
use roofgap_analyze::{About, Analysis, DeviceInfo, Stage, StageOrigin, WorkloadInfo, verdict};
use std::fmt::Write;

/// Model, GPUs and a card for every stage.
pub(super) fn head(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut out = String::from("<dl class=\"facts\">");
    fact("Model", &model(analysis.workload.as_ref()), &mut out);
    for device in &analysis.devices {
        fact(&format!("GPU {}", device.id), &gpu(device), &mut out);
    }
    if analysis.devices.is_empty() {
        let device = analysis.workload.as_ref().and_then(|w| w.device.as_deref());
        let shown = match device {
            Some(device) => escape_cut(device, 120),
            None => dash("the inputs do not name one"),
        };
        fact("Device", &shown, &mut out);
    }
    let totals = &analysis.totals;
    let kernels = format!(
        "{} launches, {}",
        count(totals.kernel_count),
        time(totals.kernel_ns)
    );
    fact("Kernels", &kernels, &mut out);
    if let Some(whole) = &analysis.whole {
        let pct = |v: Option<f64>| v.map_or(NONE.into(), |v| format!("{v:.2} %"));
        let shares = format!(
            "MFU {}, MBU {}",
            pct(whole.mfu.as_ref().map(|m| m.by_wall_pct)),
            pct(whole.mbu.as_ref().map(|m| m.by_wall_pct))
        );
        fact("All stages", &shares, &mut out);
    }
    out.push_str("</dl>");
    out.push_str("<div class=\"cards\">");
    for stage in &analysis.stages {
        card(analysis, stage, &mut out);
    }
    out.push_str("</div>");
    if analysis.stages.is_empty() {
        let why = analysis.reasons.iter().find(|r| r.about == About::Stages);
        out.push_str(&super::absence(
            "No stages",
            why.map_or("none were found", |r| &r.why),
        ));
    }
    out
}

/// A dash with the reason for it.
pub(super) fn dash(why: &str) -> String {
    let why = why.trim_end_matches('.');
    format!("{NONE} <small>({})</small>", escape(why))
}

/// A name and a value that is HTML already.
fn fact(name: &str, value: &str, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "<div><dt>{}</dt><dd>{value}</dd></div>", escape(name));
}

fn model(workload: Option<&WorkloadInfo>) -> String {
    let Some(w) = workload else {
        return dash("the program gave no account of itself");
    };
    let mut parts = vec![w.model.as_deref().map_or(NONE.into(), |m| escape_cut(m, 120))];
    let parameters = |p: u64| format!("{}parameters", si(p as f64));
    parts.extend(w.parameters.map(parameters));
    parts.extend(w.dtype.as_deref().map(escape));
    parts.extend(w.weights.as_deref().map(|w| format!("{} weights", escape(w))));
    parts.join(", ")
}

fn gpu(device: &DeviceInfo) -> String {
    let mut parts = vec![
        device
            .name
            .as_deref()
            .map_or_else(|| dash("the capture does not name it"), |n| escape_cut(n, 120)),
    ];
    parts.extend(device.sms.map(|s| format!("{s} SMs")));
    let bandwidth = |b: u64| format!("{}B/s", si(b as f64));
    parts.extend(device.bandwidth_bytes_per_s.map(bandwidth));
    parts.join(", ")
}

fn card(analysis: &Analysis, stage: &Stage, out: &mut String) {
    let verdict = verdict(stage);
    let from = if stage.from == StageOrigin::Workload {
        " Times are the program's own."
    } else {
        ""
    };
    let share = |what: &str, value: Option<f64>, key: &str| match value {
        Some(pct) => format!("<dt>{what}</dt><dd>{pct:.2} %</dd>"),
        None => {
            let about = format!("stages.{}.{key}", stage.name);
            // Where one is unknown for the same cause as the other, the cause is stated once.
            let other = format!("stages.{}.mfu", stage.name);
            let reason = |path: &str| analysis.reasons.iter().find(|r| r.about.to_string() == path);
            let why = reason(&about).or_else(|| reason(&other));
            let why = why.map_or("not known", |r| &r.why);
            format!(
                "<dt>{what}</dt><dd title=\"{}\">{NONE} <small class=\"why\">{}</small></dd>",
                escape(why),
                escape_cut(why, 90)
            )
        }
    };
    let per_step = stage.steps.as_ref().filter(|s| s.count > 0).map(|s| {
        format!(
            "<dt>Step</dt><dd>{} <small>p50 of {}</small></dd>",
            time(s.p50_ns),
            count(s.count)
        )
    });
    let _ = write!(
        out,
        "<article class=\"card\"><h3>{}</h3><p class=\"label\">{}</p><p>{}.{from}</p><dl><dt>Wall</dt><dd>{}{}</dd>{}{}{}</dl></article>",
        escape_cut(&stage.name, 60),
        escape(verdict.label),
        capital(&escape(&verdict.why)),
        time(stage.wall_ns),
        if stage.instances > 1 {
            format!(" <small>in {} instances</small>", count(stage.instances))
        } else {
            String::new()
        },
        per_step.unwrap_or_default(),
        share("MFU", stage.mfu.as_ref().map(|m| m.by_wall_pct), "mfu"),
        share("MBU", stage.mbu.as_ref().map(|m| m.by_wall_pct), "mbu"),
    );
}

/// A sentence with its first letter large.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
