//! The analysis for a terminal: stages, findings, kernels, counters and losses.

use crate::view::numbers::{count, ms};
use crate::view::provenance::{self, missing};
use crate::view::requests::{against_steps, requests_text};
use crate::view::table::{Table, plain};
use crate::view::{findings, gpu_work, headline, job, kernels, layers, measured, stage1, stages};
use roofgap_analyze::{About, Analysis, StageKind, verdict};
use std::fmt::Write;

/// The most findings listed.
const FINDINGS: usize = 5;

/// The most ranges listed.
const RANGES: usize = 20;

/// Options for text output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Print headings in bold.
    pub color: bool,
    /// The most kernels listed.
    pub kernels: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            color: false,
            kernels: 12,
        }
    }
}

impl TextOptions {
    /// Formats a heading.
    pub(crate) fn bold(self, text: &str) -> String {
        if self.color {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Ranks that are listed even where fewer kernels are.
const RANKS: usize = 64;

/// Renders an analysis as text.
pub fn render(analysis: &Analysis, options: TextOptions) -> String {
    let mut out = String::new();
    let sections: [fn(&Analysis, TextOptions, &mut String); 14] = [
        head,
        ranks,
        stages,
        requests,
        findings,
        kernels,
        by_layer,
        graphs,
        copies,
        communication,
        counters,
        rules,
        stage1_figures,
        losses,
    ];
    for section in sections {
        section(analysis, options, &mut out);
    }
    out
}

// Writing to a string cannot fail, so the results of `write!` are dropped in this file.

fn heading(text: &str, options: TextOptions, out: &mut String) {
    let _ = writeln!(out, "\n{}", options.bold(text));
}

/// States how many rows were left out.
fn more(all: usize, shown: usize, out: &mut String) {
    if all > shown {
        let _ = writeln!(out, "and {} more", all - shown);
    }
}

fn head(analysis: &Analysis, _: TextOptions, out: &mut String) {
    for source in &analysis.sources {
        let version = source.tool_version.as_deref();
        let version = version.map(|v| format!(", version {v}")).unwrap_or_default();
        let _ = writeln!(out, "{}: {}{version}", plain(&source.path), source.format);
    }
    for device in &analysis.devices {
        let _ = writeln!(out, "GPU {}: {}", device.id, plain(&provenance::device(device)));
    }
    if let Some(workload) = &analysis.workload {
        let _ = writeln!(out, "model: {}", plain(&provenance::model(workload)));
    }
    if let Some(rank) = job::ranks_line(analysis) {
        let _ = writeln!(out, "rank: {rank}");
    }
    if let Some(engine) = &analysis.engine {
        let _ = writeln!(out, "engine: {}", plain(&provenance::engine(engine)));
    }
    let totals = &analysis.totals;
    if measured::alone(analysis) {
        let _ = writeln!(out, "{}", measured::summary(analysis));
        return;
    }
    if totals.kernel_count == 0 && totals.busy_ns.is_none() {
        out.push_str("no GPU work was recorded\n");
        return;
    }
    let busy = totals.busy_ns.map(|b| format!(", GPU busy {} ms", ms(b)));
    let launches: u64 = analysis.graphs.iter().map(|graph| graph.launches).sum();
    let graphs = match launches {
        0 => String::new(),
        _ => format!(", {} launches of whole graphs", count(launches)),
    };
    let _ = writeln!(
        out,
        "whole trace: {} kernels, {} ms of kernel time{graphs}{}",
        count(totals.kernel_count),
        ms(totals.kernel_ns),
        busy.unwrap_or_default()
    );
    let lines = [headline::headline(analysis), headline::per_run(analysis)];
    for line in lines.into_iter().flatten() {
        let _ = writeln!(out, "{}", plain(&line));
    }
}

fn ranks(analysis: &Analysis, options: TextOptions, out: &mut String) {
    for (title, mut table) in [
        ("Ranks", job::ranks(analysis)),
        ("Collectives across ranks", job::collectives(analysis)),
        ("Ranks that others wait for", job::stragglers(analysis)),
    ] {
        if !table.is_empty() {
            heading(title, options, out);
            let all = table.rows.len();
            table.rows.truncate(options.kernels.max(RANKS));
            out.push_str(&table.text());
            more(all, table.rows.len(), out);
        }
    }
    for gap in job::gaps(analysis) {
        let _ = writeln!(out, "{}", plain(&gap));
    }
}

fn stages(analysis: &Analysis, options: TextOptions, out: &mut String) {
    heading("Stages", options, out);
    if analysis.stages.is_empty() {
        return no_stages(analysis, out);
    }
    let mut columns = vec![
        "stage",
        "instances",
        "wall ms",
        "GPU busy ms",
        "busy %",
        "kernel ms",
        "kernels",
        "launches",
        "idle: launch ms",
        "sync ms",
        "copy ms",
        "other ms",
    ];
    if analysis.stages.iter().any(|s| s.mfu.is_some() || s.mbu.is_some()) {
        columns.extend(["MFU %", "MBU %"]);
    }
    out.push_str(&stages::table(analysis).pick(&columns).text());
    for stage in &analysis.stages {
        let verdict = verdict(stage);
        let _ = writeln!(out, "{}: {}: {}", plain(&stage.name), verdict.label, verdict.why);
        for line in stages::details(stage) {
            let _ = writeln!(out, "  {}", plain(&line));
        }
    }
    if let Some(line) = stages::outside(analysis) {
        let _ = writeln!(out, "{line}");
    }
    if analysis.stages.iter().all(|stage| stage.kind == StageKind::Whole) {
        no_stages(analysis, out);
    }
}

fn requests(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if let Some(requests) = &analysis.requests {
        heading("Requests", options, out);
        out.push_str(&requests_text(requests));
        for line in against_steps(analysis) {
            let _ = writeln!(out, "{}", plain(&line));
        }
    }
}

/// Says why no stage was found and lists the ranges that are there.
fn no_stages(analysis: &Analysis, out: &mut String) {
    let _ = writeln!(out, "{}", missing(analysis, &About::Stages));
    if !analysis.ranges.is_empty() {
        let ranges = provenance::ranges(analysis, RANGES).text();
        let _ = write!(out, "ranges in the input:\n{ranges}");
        more(analysis.ranges.len(), RANGES, out);
    }
}

fn findings(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if analysis.stages.is_empty() && analysis.findings.is_empty() {
        return;
    }
    heading("What to do first", options, out);
    if analysis.findings.is_empty() {
        let _ = writeln!(out, "{}", findings::none_found(analysis));
    }
    for (i, finding) in analysis.findings.iter().take(FINDINGS).enumerate() {
        let _ = writeln!(out, "{}. {}", i + 1, plain(&finding.title));
        let _ = writeln!(out, "   {}", plain(&findings::saving(finding)));
        let _ = writeln!(out, "   {}", plain(&finding.action));
    }
    more(analysis.findings.len(), FINDINGS, out);
}

/// Lists the kernels that ncu measured, with a verdict for each.
fn measured_kernels(analysis: &Analysis, options: TextOptions, out: &mut String) {
    heading("Kernels measured by ncu", options, out);
    if analysis.kernels.is_empty() {
        let _ = writeln!(out, "{}", missing(analysis, &About::Kernels));
        return;
    }
    out.push_str(&measured::table(analysis, options.kernels).text());
    more(analysis.kernels.len(), options.kernels, out);
    let _ = writeln!(out, "{}", measured::OF_LARGEST);
    for line in measured::verdicts(analysis, options.kernels) {
        let _ = writeln!(out, "{}", plain(&line));
    }
}

/// Lists the first results of ncu's own rules.
fn rules(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if analysis.ncu_rules.is_empty() || !measured::alone(analysis) {
        return;
    }
    heading("Rules of ncu", options, out);
    let columns = ["kernel", "launches", "rule", "kind", "estimated saving"];
    out.push_str(&measured::rules(analysis, options.kernels).pick(&columns).text());
    more(analysis.ncu_rules.len(), options.kernels, out);
}

fn kernels(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if measured::alone(analysis) {
        return measured_kernels(analysis, options, out);
    }
    heading("Kernels by time, whole trace", options, out);
    if analysis.kernels.is_empty() {
        let _ = writeln!(out, "{}", missing(analysis, &About::Kernels));
        return;
    }
    let (shown, rest) = analysis
        .kernels
        .split_at(analysis.kernels.len().min(options.kernels));
    let mut columns = vec!["kernel", "family", "total ms", "share %", "calls", "mean µs"];
    if analysis.devices.len() > 1 {
        columns.insert(1, "device");
    }
    let table = kernels::table(analysis, shown, analysis.totals.kernel_ns);
    out.push_str(&table.pick(&columns).text());
    if !rest.is_empty() {
        let total: i64 = rest.iter().map(|k| k.total_ns).sum();
        let _ = writeln!(out, "and {} more with {} ms in total", rest.len(), ms(total));
    }
}

/// Writes a table of the whole trace with its heading, or nothing for an empty one.
fn work(
    title: &str,
    table: &Table,
    columns: &[&str],
    one_device: bool,
    options: TextOptions,
    out: &mut String,
) {
    if table.is_empty() {
        return;
    }
    heading(title, options, out);
    let shown: Vec<&str> = columns
        .iter()
        .copied()
        .filter(|name| !(one_device && *name == "device"))
        .collect();
    let mut table = table.pick(&shown);
    let all = table.rows.len();
    table.rows.truncate(options.kernels);
    out.push_str(&table.text());
    more(all, table.rows.len(), out);
}

/// Lists the first layers of each stage.
fn by_layer(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if analysis.layers.is_empty() {
        return;
    }
    heading("Kernel time by layer", options, out);
    let mut table = layers::table(analysis).pick(&layers::TEXT);
    let all = table.rows.len();
    let mut seen: Vec<(String, usize)> = Vec::new();
    table.rows.retain(|row| {
        let stage = row.first().cloned().unwrap_or_default();
        if seen.last().is_none_or(|(last, _)| *last != stage) {
            seen.push((stage, 0));
        }
        let count = seen.last_mut().map_or(0, |(_, count)| {
            *count += 1;
            *count
        });
        count <= options.kernels
    });
    out.push_str(&table.text());
    more(all, table.rows.len(), out);
    if let Some(why) = layers::unnamed(analysis) {
        let _ = writeln!(out, "{}", plain(why));
    }
}

fn graphs(analysis: &Analysis, options: TextOptions, out: &mut String) {
    let columns = ["graph", "device", "launches", "total ms", "mean ms"];
    let one = analysis.devices.len() < 2;
    let table = gpu_work::graphs(analysis);
    work("Graphs recorded whole", &table, &columns, one, options, out);
}

fn copies(analysis: &Analysis, options: TextOptions, out: &mut String) {
    let columns = [
        "copy",
        "device",
        "host memory",
        "calls",
        "bytes",
        "total ms",
        "GB/s",
        "overlapped %",
        "of peak %",
        "link",
    ];
    let one = analysis.devices.len() < 2;
    let table = gpu_work::copies(analysis);
    work("Copies, whole trace", &table, &columns, one, options, out);
}

fn communication(analysis: &Analysis, options: TextOptions, out: &mut String) {
    let columns = [
        "collective",
        "group",
        "ranks",
        "device",
        "calls",
        "bytes",
        "total ms",
        "hidden ms",
        "exposed ms",
        "bus GB/s",
    ];
    let one = analysis.devices.len() < 2;
    let table = gpu_work::communication(analysis);
    work("Communication, whole trace", &table, &columns, one, options, out);
}

fn counters(analysis: &Analysis, options: TextOptions, out: &mut String) {
    // Kernels that were measured in one launch shape each are in their own table already.
    let by_shape = analysis.counters.len() > analysis.kernels.len();
    if analysis.counters.is_empty() || (measured::alone(analysis) && !by_shape) {
        return;
    }
    heading("Counters", options, out);
    let table = kernels::counters(analysis, options.kernels);
    let columns = [
        "kernel", "stage", "µs", "SM %", "DRAM %", "L2 %", "FLOP/B", "bound",
    ];
    out.push_str(&table.pick(&columns).text());
    more(analysis.counters.len(), options.kernels, out);
}

fn stage1_figures(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if let Some(figures) = &analysis.stage1 {
        heading("Stage 1", options, out);
        let _ = writeln!(out, "{}", plain(&stage1::source(analysis, figures)));
        out.push_str(&stage1::times(analysis, figures).text());
        out.push_str(&stage1::rates(figures).text());
    }
}

fn losses(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if analysis.losses.is_empty() {
        return;
    }
    heading("Losses", options, out);
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
