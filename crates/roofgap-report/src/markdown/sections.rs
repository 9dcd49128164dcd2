//! Parts that several reports share.

use crate::bundle::Bundle;
use crate::number::{NONE, count, ms, ms_or, percent, plural, quantity, share, si, time, words};
use crate::table::{Table, escape};
use crate::text::{busy_percent, late, nothing_found};
use roofgap_analyze::{About, Analysis, Kernel, StageOrigin, verdict};
use std::fmt::Write;

/// Why `about` is empty, or `otherwise`.
pub(super) fn reason<'a>(analysis: &'a Analysis, about: &About, otherwise: &'a str) -> &'a str {
    analysis.reason(about).unwrap_or(otherwise)
}

/// The stages in which a kernel ran, the one with most of its time first.
pub(super) fn stage_of(analysis: &Analysis, kernel: &Kernel) -> String {
    let mut stages: Vec<(i64, &str)> = analysis
        .stages
        .iter()
        .filter_map(|s| {
            let same = s
                .kernels
                .iter()
                .find(|k| k.name == kernel.name && k.device == kernel.device)?;
            Some((same.total_ns, s.name.as_str()))
        })
        .collect();
    stages.sort_by_key(|s| std::cmp::Reverse(s.0));
    if stages.is_empty() {
        NONE.into()
    } else {
        stages.iter().map(|s| s.1).collect::<Vec<_>>().join(", ")
    }
}

/// The environment as a table.
pub(super) fn environment(bundle: Bundle<'_>) -> String {
    let mut table = Table::new(&["what", "value"]);
    for (name, value) in &bundle.context.environment {
        table.row([name.clone(), value.clone()]);
    }
    for device in &bundle.analysis.devices {
        let mut facts = device.name.clone().unwrap_or_else(|| "unknown GPU".into());
        if let Some(cc) = &device.compute_capability {
            let _ = write!(facts, ", compute capability {cc}");
        }
        if let Some(sms) = device.sms {
            let _ = write!(facts, ", {sms} SMs");
        }
        if let Some(memory) = device.memory_bytes {
            let _ = write!(facts, ", {:.1} GiB", memory as f64 / f64::from(1u32 << 30));
        }
        if let Some(bandwidth) = device.bandwidth_bytes_per_s {
            let _ = write!(facts, ", {}B/s", si(bandwidth as f64));
        }
        table.row([format!("GPU {}", device.id), facts]);
    }
    if let Some(w) = &bundle.analysis.workload {
        let mut row = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                table.row([name.into(), value]);
            }
        };
        row("model", w.model.clone());
        row("revision", w.revision.clone());
        row("parameters", w.parameters.map(count));
        row("active parameters", w.active_parameters.map(count));
        row("dtype", w.dtype.clone());
        row("weights", w.weights.clone());
        row("prompt tokens", w.prompt_tokens.map(count));
        row("vision tokens", w.vision_tokens.map(count));
        row("generated tokens", w.generated_tokens.map(count));
        row("batch", w.batch.map(count));
        row("device", w.device.clone());
    }
    for source in &bundle.analysis.sources {
        let version = source.tool_version.as_deref().unwrap_or("unknown version");
        table.row([
            format!("input ({})", source.format),
            format!("{} ({version})", source.path),
        ]);
    }
    if table.is_empty() {
        "Nothing is known of the environment.\n".into()
    } else {
        table.markdown()
    }
}

/// The whole trace in numbers.
pub(super) fn aggregates(bundle: Bundle<'_>) -> String {
    let totals = &bundle.analysis.totals;
    let mut table = Table::new(&["what", "value>"]);
    table.row(["kernel launches".into(), count(totals.kernel_count)]);
    table.row(["kernel time, ms".into(), ms(totals.kernel_ns)]);
    table.row(["GPU busy, ms".into(), ms_or(totals.busy_ns)]);
    table.row(["copies, ms".into(), ms_or(totals.memcpy_ns)]);
    table.row(["memory sets, ms".into(), ms_or(totals.memset_ns)]);
    table.row([
        "GPU operations without a launch record".into(),
        count(totals.unattributed_count),
    ]);
    table.markdown()
}

/// The stages as a table, with a verdict each; idle time by cause where there is room for it.
pub(super) fn stages(bundle: Bundle<'_>, causes: bool) -> String {
    let analysis = bundle.analysis;
    if analysis.stages.is_empty() {
        let mut out = format!(
            "No stages: {}.\n",
            escape(reason(analysis, &About::Stages, "none were found"))
        );
        if !analysis.ranges.is_empty() {
            let mut table = Table::new(&["domain", "range", "count>", "wall ms>", "kernels>"]);
            for r in analysis.ranges.iter().take(30) {
                table.row([
                    r.domain.clone(),
                    r.name.clone(),
                    count(r.instances),
                    ms(r.wall_ns),
                    count(r.kernel_count),
                ]);
            }
            let _ = write!(out, "\nRanges that are there:\n\n{}", table.markdown());
        }
        return out;
    }
    let mut table = Table::new(&[
        "stage",
        "instances>",
        "wall ms>",
        "GPU busy ms>",
        "busy %>",
        "idle ms>",
        "kernel ms>",
        "kernels>",
        "launches>",
    ]);
    for stage in &analysis.stages {
        let number = |n: u64| stage.busy_ns.map_or(NONE.to_owned(), |_| count(n));
        table.row([
            stage.name.clone(),
            stage.instances.to_string(),
            ms(stage.wall_ns),
            ms_or(stage.busy_ns),
            busy_percent(stage),
            ms_or(stage.idle.map(|idle| idle.total_ns())),
            ms_or(stage.kernel_ns),
            number(stage.kernel_count),
            number(stage.launch_count),
        ]);
    }
    let mut out = table.markdown();
    if causes && analysis.stages.iter().any(|stage| stage.idle.is_some()) {
        let mut table = Table::new(&["idle ms of", "launch>", "sync>", "copy>", "other>"]);
        for stage in &analysis.stages {
            let Some(idle) = stage.idle else { continue };
            let causes = [idle.launch_ns, idle.sync_ns, idle.copy_ns, idle.other_ns].map(ms);
            let mut cells = vec![stage.name.clone()];
            cells.extend(causes);
            table.row(cells);
        }
        let _ = write!(out, "\n{}", table.markdown());
    }
    out.push('\n');
    for stage in &analysis.stages {
        let verdict = verdict(stage);
        let from = if stage.from == StageOrigin::Workload {
            " (times are the program's own)"
        } else {
            ""
        };
        // The summary has said why at its top.
        let why = if causes {
            format!(": {}", verdict.why)
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "- **{}**: {}{why}{from}.",
            escape(&stage.name),
            verdict.label
        );
        if let Some(late) = late(stage) {
            let _ = writeln!(out, "  - {}.", escape_line(&late));
        }
        if let Some(steps) = &stage.steps {
            let launches = steps
                .launches_per_step
                .map(|l| format!(", {l:.0} launches a step"))
                .unwrap_or_default();
            let _ = writeln!(
                out,
                "  - {} steps: mean {}, p50 {}, p90 {}, p99 {}{launches}.",
                steps.count,
                time(steps.mean_ns),
                time(steps.p50_ns),
                time(steps.p90_ns),
                time(steps.p99_ns)
            );
        }
        for note in &stage.notes {
            let _ = writeln!(
                out,
                "  - of which `{}`: {} ms wall ({} % of the stage), {} ms in {}.",
                note.name.replace('`', "'"),
                ms(note.wall_ns),
                percent(note.wall_ns, stage.wall_ns),
                ms_or(note.kernel_ns),
                plural(note.kernel_count, "kernel")
            );
        }
    }
    out
}

/// MFU and MBU of each stage, or why there is none.
pub(super) fn utilisation(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut table = Table::new(&[
        "stage",
        "FLOPs>",
        "peak FLOP/s>",
        "MFU by wall %>",
        "MFU by busy %>",
        "bytes>",
        "bandwidth B/s>",
        "MBU by wall %>",
        "MBU by busy %>",
        "step floor>",
        "step took>",
    ]);
    let pct = share;
    let none = || NONE.to_owned();
    let stages = analysis
        .stages
        .iter()
        .map(|s| (s.name.as_str(), s.mfu.as_ref(), s.mbu.as_ref()));
    let whole = analysis
        .whole
        .iter()
        .map(|w| ("whole", w.mfu.as_ref(), w.mbu.as_ref()));
    for (name, mfu, mbu) in stages.chain(whole) {
        table.row([
            name.to_owned(),
            mfu.map_or_else(none, |m| si(m.flops)),
            mfu.map_or_else(none, |m| {
                format!("{} ({})", si(m.peak_flops_per_s).trim_end(), m.dtype)
            }),
            mfu.map_or_else(none, |m| pct(m.by_wall_pct)),
            mfu.and_then(|m| m.by_busy_pct).map_or_else(none, pct),
            mbu.map_or_else(none, |m| si(m.bytes)),
            mbu.map_or_else(none, |m| si(m.bandwidth_bytes_per_s)),
            mbu.map_or_else(none, |m| pct(m.by_wall_pct)),
            mbu.and_then(|m| m.by_busy_pct).map_or_else(none, pct),
            mbu.and_then(|m| m.floor_step_ns).map_or_else(none, time),
            mbu.and_then(|m| m.step_ns).map_or_else(none, time),
        ]);
    }
    let mut out = if table.is_empty() {
        String::new()
    } else {
        table.markdown()
    };
    // One line a reason, however many numbers it takes away.
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for reason in &analysis.reasons {
        let (About::StageMfu(stage) | About::StageMbu(stage)) = &reason.about else {
            continue;
        };
        let stage = stage.as_str();
        let at = lines.iter().position(|(why, _)| *why == reason.why);
        let at = at.unwrap_or_else(|| {
            lines.push((&reason.why, Vec::new()));
            lines.len() - 1
        });
        if let Some((_, stages)) = lines.get_mut(at).filter(|(_, stages)| !stages.contains(&stage)) {
            stages.push(stage);
        }
    }
    let mut why: Vec<String> = lines
        .iter()
        .map(|(why, stages)| format!("- {}: {}.", escape(&stages.join(", ")), escape_line(why)))
        .collect();
    if table.is_empty() && why.is_empty() {
        why.push("No MFU: the model is not known; name it with `--model NAME|config.json`.".into());
    }
    if !why.is_empty() {
        let _ = writeln!(out, "\n{}", why.join("\n"));
    }
    out
}

/// The findings, the first of them or all, with the evidence or without.
pub(super) fn findings(bundle: Bundle<'_>, most: usize, evidence: bool) -> String {
    let analysis = bundle.analysis;
    if analysis.findings.is_empty() {
        return format!("{}\n", nothing_found(analysis));
    }
    let mut out = String::new();
    for (i, f) in analysis.findings.iter().take(most).enumerate() {
        let _ = writeln!(out, "{}. **{}**", i + 1, escape_line(&f.title));
        let _ = writeln!(
            out,
            "   - saves at most {} ms ({:.1} % of the stage)",
            ms(f.bound_ns),
            f.bound_pct
        );
        if evidence {
            let list: Vec<String> = f
                .evidence
                .iter()
                .map(|(key, value)| format!("{} {}", words(key), shown(key, value)))
                .collect();
            let _ = writeln!(out, "   - evidence: {}", escape_line(&list.join(", ")));
        }
        let _ = writeln!(out, "   - {}", escape_line(&f.action));
    }
    out
}

/// A value of evidence for people.
fn shown(key: &str, value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(number) => quantity(key, number),
        other => other.to_string(),
    }
}

/// Escapes a sentence: what could be markup or a tag, not what reads well.
pub(super) fn escape_line(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('|', "\\|")
        .replace('`', "\\`")
        .replace('*', "\\*")
}
