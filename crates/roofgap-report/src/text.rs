//! The analysis for a terminal: stages first, then findings, kernels, and what was lost.

use crate::number::{NONE, count, ms, ms_or, percent, share, si, time};
use crate::table::{Table, plain};
use roofgap_analyze::{About, Analysis, Stage, verdict};
use std::fmt::Write;

/// How the text may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Headings in bold.
    pub color: bool,
    /// How many kernels to list.
    pub kernels: usize,
}

impl Default for Look {
    fn default() -> Self {
        Self {
            color: false,
            kernels: 12,
        }
    }
}

/// The whole text.
pub fn render(analysis: &Analysis, look: Look) -> String {
    let mut out = String::new();
    head(analysis, &mut out);
    stages(analysis, look, &mut out);
    findings(analysis, look, &mut out);
    kernels(analysis, look, &mut out);
    counters(analysis, look, &mut out);
    losses(analysis, look, &mut out);
    out
}

fn heading(text: &str, look: Look, out: &mut String) {
    let (on, off) = if look.color {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "\n{on}{text}{off}");
}

fn head(analysis: &Analysis, out: &mut String) {
    for source in &analysis.sources {
        let version = source
            .tool_version
            .as_deref()
            .map(|v| format!(" of version {v}"))
            .unwrap_or_default();
        let _ = writeln!(out, "{}: {}{version}", plain(&source.path), source.format);
    }
    for device in &analysis.devices {
        let name = device.name.as_deref().unwrap_or("unknown GPU");
        let sms = device.sms.map(|s| format!(", {s} SMs")).unwrap_or_default();
        let bandwidth = device
            .bandwidth_bytes_per_s
            .map(|b| format!(", {}B/s", si(b as f64)))
            .unwrap_or_default();
        let _ = writeln!(out, "GPU {}: {}{sms}{bandwidth}", device.id, plain(name));
    }
    if let Some(workload) = &analysis.workload {
        let model = workload.model.as_deref().unwrap_or("unknown model");
        let parameters = workload
            .parameters
            .map(|p| format!(", {}parameters", si(p as f64)))
            .unwrap_or_default();
        let weights = workload
            .weights
            .as_deref()
            .map(|w| format!(", {w} weights"))
            .unwrap_or_default();
        let _ = writeln!(out, "model: {}{parameters}{weights}", plain(model));
    }
    let totals = &analysis.totals;
    if totals.kernel_count == 0 && totals.busy_ns.is_none() {
        let _ = writeln!(out, "no GPU work was recorded");
        return;
    }
    let busy = totals
        .busy_ns
        .map(|b| format!(", GPU busy {} ms", ms(b)))
        .unwrap_or_default();
    let _ = writeln!(
        out,
        "whole trace: {} kernels, {} ms of kernel time{busy}",
        count(totals.kernel_count),
        ms(totals.kernel_ns)
    );
}

fn stages(analysis: &Analysis, look: Look, out: &mut String) {
    heading("Stages", look, out);
    if analysis.stages.is_empty() {
        let why = analysis
            .reasons
            .iter()
            .find(|r| r.about == About::Stages)
            .map_or("none found", |r| &r.why);
        let _ = writeln!(out, "none: {why}");
        ranges(analysis, out);
        return;
    }
    let mut columns = vec![
        "stage",
        "n>",
        "wall ms>",
        "GPU busy ms>",
        "busy %>",
        "kernel ms>",
        "kernels>",
        "launches>",
        "idle ms: launch>",
        "sync>",
        "copy>",
        "other>",
    ];
    let known = |stage: &Stage| stage.mfu.is_some() || stage.mbu.is_some();
    let utilised = analysis.stages.iter().any(known);
    if utilised {
        columns.extend(["MFU %>", "MBU %>"]);
    }
    let mut table = Table::new(&columns);
    for stage in &analysis.stages {
        let mut cells = stage_cells(stage);
        cells.truncate(columns.len());
        table.row(cells);
    }
    out.push_str(&table.text());
    for stage in &analysis.stages {
        let verdict = verdict(stage);
        let _ = writeln!(out, "{}: {}: {}", stage.name, verdict.label, verdict.why);
        if let Some(late) = late(stage) {
            let _ = writeln!(out, "  {late}");
        }
        if let Some(steps) = &stage.steps {
            let launches = steps
                .launches_per_step
                .map(|l| format!(", {l:.0} launches a step"))
                .unwrap_or_default();
            let _ = writeln!(
                out,
                "  {} steps: p50 {}, p90 {}, p99 {}{launches}",
                steps.count,
                time(steps.p50_ns),
                time(steps.p90_ns),
                time(steps.p99_ns)
            );
        }
        for note in &stage.notes {
            let _ = writeln!(
                out,
                "  of which {}: wall {} ms, kernels {} ms ({})",
                plain(&note.name),
                ms(note.wall_ns),
                ms_or(note.kernel_ns),
                count(note.kernel_count)
            );
        }
    }
}

/// One stage as the cells of a table.
fn stage_cells(stage: &Stage) -> Vec<String> {
    let idle =
        |f: fn(&roofgap_analyze::Idle) -> i64| stage.idle.as_ref().map_or(NONE.to_owned(), |i| ms(f(i)));
    let gpu = stage.busy_ns.is_some();
    let number = |n: u64| if gpu { count(n) } else { NONE.to_owned() };
    vec![
        stage.name.clone(),
        stage.instances.to_string(),
        ms(stage.wall_ns),
        ms_or(stage.busy_ns),
        busy_percent(stage),
        ms_or(stage.kernel_ns),
        number(stage.kernel_count),
        number(stage.launch_count),
        idle(|i| i.launch_ns),
        idle(|i| i.sync_ns),
        idle(|i| i.copy_ns),
        idle(|i| i.other_ns),
        stage
            .mfu
            .as_ref()
            .map_or(NONE.to_owned(), |m| share(m.by_wall_pct)),
        stage
            .mbu
            .as_ref()
            .map_or(NONE.to_owned(), |m| share(m.by_wall_pct)),
    ]
}

/// Part of the stage's time in which its GPUs were busy, in %.
pub(crate) fn busy_percent(stage: &Stage) -> String {
    let busy = stage.busy_ns.and_then(|_| stage.busy_share());
    busy.map_or(NONE.to_owned(), |share| format!("{:.1}", 100.0 * share))
}

/// Says so where the ranges of a stage do not hold all of its time.
pub(crate) fn late(stage: &Stage) -> Option<String> {
    stage.closes_early().then(|| {
        format!(
            "the ranges of {} close before the GPU has finished: it works for {} more; wait for the device at the end of the range \
             to time it whole",
            stage.name,
            time(stage.late_ns)
        )
    })
}

/// What to say where no finding stands.
pub(crate) fn nothing_found(analysis: &Analysis) -> String {
    let busy: Vec<&str> = analysis
        .stages
        .iter()
        .filter(|stage| verdict(stage).label == "GPU-bound")
        .map(|stage| stage.name.as_str())
        .collect();
    if busy.is_empty() {
        return "No findings: nothing in the data supports one.".into();
    }
    let mut asks = Vec::new();
    if analysis.counters.is_empty() {
        asks.push("counters of ncu");
    }
    if analysis.stages.iter().all(|stage| stage.mbu.is_none()) {
        asks.push("the model (--model)");
    }
    let next = if asks.is_empty() {
        String::new()
    } else {
        format!(
            " Give {} to see how far they are from their roof.",
            asks.join(" and ")
        )
    };
    format!(
        "No findings: the GPU is busy in {}, so its kernels are the limit.{next}",
        busy.join(" and ")
    )
}

fn ranges(analysis: &Analysis, out: &mut String) {
    if analysis.ranges.is_empty() {
        return;
    }
    let mut table = Table::new(&["domain", "range", "count>", "wall ms>", "kernels>"]);
    for range in analysis.ranges.iter().take(20) {
        table.row([
            range.domain.clone(),
            range.name.clone(),
            count(range.instances),
            ms(range.wall_ns),
            count(range.kernel_count),
        ]);
    }
    let _ = writeln!(out, "ranges that are there:");
    out.push_str(&table.text());
    if analysis.ranges.len() > 20 {
        let _ = writeln!(out, "and {} more", analysis.ranges.len() - 20);
    }
}

fn findings(analysis: &Analysis, look: Look, out: &mut String) {
    if analysis.stages.is_empty() && analysis.findings.is_empty() {
        return;
    }
    heading("What to do first", look, out);
    if analysis.findings.is_empty() {
        let _ = writeln!(out, "{}", nothing_found(analysis));
    }
    for (i, finding) in analysis.findings.iter().take(5).enumerate() {
        let _ = writeln!(out, "{}. {}", i + 1, finding.title);
        let _ = writeln!(
            out,
            "   saves at most {} ms ({:.1} % of the stage)",
            ms(finding.bound_ns),
            finding.bound_pct
        );
        let _ = writeln!(out, "   {}", finding.action);
    }
    if analysis.findings.len() > 5 {
        let _ = writeln!(out, "and {} more", analysis.findings.len() - 5);
    }
}

fn kernels(analysis: &Analysis, look: Look, out: &mut String) {
    heading("Kernels by time, whole trace", look, out);
    let several = analysis.devices.len() > 1;
    let mut columns = vec!["kernel", "family", "total ms>", "share %>", "calls>", "mean µs>"];
    if several {
        columns.insert(1, "GPU>");
    }
    let mut table = Table::new(&columns);
    for kernel in analysis.kernels.iter().take(look.kernels) {
        let mut cells = vec![
            kernel.short_name.clone(),
            kernel.family.to_string(),
            ms(kernel.total_ns),
            percent(kernel.total_ns, analysis.totals.kernel_ns),
            count(kernel.calls),
            format!("{:.2}", kernel.mean_ns as f64 / 1e3),
        ];
        if several {
            cells.insert(1, kernel.device.map_or(NONE.to_owned(), |d| d.to_string()));
        }
        table.row(cells);
    }
    if table.is_empty() {
        let _ = writeln!(out, "none: the input holds no kernels");
        return;
    }
    out.push_str(&table.text());
    if let Some(rest) = analysis.kernels.get(look.kernels..).filter(|r| !r.is_empty()) {
        let total: i64 = rest.iter().map(|k| k.total_ns).sum();
        let _ = writeln!(out, "and {} more with {} ms together", rest.len(), ms(total));
    }
}

fn counters(analysis: &Analysis, look: Look, out: &mut String) {
    if analysis.counters.is_empty() {
        return;
    }
    heading("Counters", look, out);
    let pct = |v: Option<f64>| v.map_or(NONE.to_owned(), |v| format!("{v:.1}"));
    let mut table = Table::new(&[
        "kernel", "stage", "µs>", "SM %>", "DRAM %>", "L2 %>", "FLOP/B>", "bound",
    ]);
    for row in analysis.counters.iter().take(look.kernels) {
        table.row([
            roofgap_analyze::short_name(&row.kernel),
            row.stage.clone().unwrap_or_else(|| NONE.into()),
            row.duration_ns
                .map_or(NONE.to_owned(), |d| format!("{:.2}", d as f64 / 1e3)),
            pct(row.sm_pct),
            pct(row.dram_pct),
            pct(row.l2_pct),
            pct(row.intensity),
            row.bound.clone().unwrap_or_else(|| NONE.into()),
        ]);
    }
    out.push_str(&table.text());
    if analysis.counters.len() > look.kernels {
        let _ = writeln!(out, "and {} more", analysis.counters.len() - look.kernels);
    }
}

fn losses(analysis: &Analysis, look: Look, out: &mut String) {
    if analysis.losses.is_empty() {
        return;
    }
    heading("What was lost", look, out);
    for loss in &analysis.losses {
        let _ = writeln!(
            out,
            "{} ({}): {}: {}",
            loss.id,
            loss.severity,
            count(loss.count),
            loss.meaning
        );
    }
}
