//! The analysis for a terminal: stages, findings, kernels, counters and losses.

use crate::view;
use crate::view::numbers::{count, counted, time};
use crate::view::provenance::{self, missing};
use crate::view::requests::{against_steps, requests_text};
use crate::view::screen::Screen;
use crate::view::table::{Table, plain};
use crate::view::{
    findings, gpu_work, headline, job, kernels, layers, measured, ranges, roof, stage1, stages, utilisation,
};
use roofgap_analyze::{About, Analysis, Kernel, Stage, StageKind, verdict};
use std::fmt::Write;

/// The most findings listed.
const FINDINGS: usize = 5;

/// The most ranges listed.
const RANGES: usize = 20;

/// Options for text output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Bold headings, and colours for verdicts and statuses.
    pub color: bool,
    /// The most kernels listed.
    pub kernels: usize,
    /// Columns of the terminal; `None` for lines of any length.
    pub width: Option<usize>,
    /// Leave out tables of the whole trace.
    pub stages_only: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { color: false, kernels: 12, width: None, stages_only: false }
    }
}

impl TextOptions {
    /// Returns the width and the colours.
    pub(crate) fn screen(self) -> Screen {
        Screen { color: self.color, width: self.width }
    }
}

/// Ranks that are listed even where fewer kernels are.
const RANKS: usize = 64;

/// Renders an analysis as text.
pub fn render(analysis: &Analysis, options: TextOptions) -> String {
    let mut out = String::new();
    let sections: [fn(&Analysis, TextOptions, &mut String); 15] = [
        head,
        ranks,
        stages,
        requests,
        serving,
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
    let _ = writeln!(out, "\n{}", options.screen().bold(text));
}

/// Writes a sentence, wrapped at words. A sentence that starts with spaces is indented by them.
fn say(text: &str, options: TextOptions, out: &mut String) {
    let _ = writeln!(out, "{}", options.screen().wrapped(&plain(text), 2));
}

/// States how many rows were left out.
fn more(all: usize, shown: usize, out: &mut String) {
    if all > shown && shown == 0 {
        let _ = writeln!(out, "{}, none listed", count(all as u64));
    } else if all > shown {
        let _ = writeln!(out, "and {} more", count((all - shown) as u64));
    }
}

fn head(analysis: &Analysis, options: TextOptions, out: &mut String) {
    for source in &analysis.sources {
        let version = source.tool_version.as_deref();
        let version = version.map(|v| format!(", version {v}")).unwrap_or_default();
        say(&format!("{}: {}{version}", source.path, source.format), options, out);
    }
    for device in &analysis.devices {
        say(&format!("GPU {}: {}", device.id, provenance::device(device)), options, out);
    }
    if let Some(workload) = &analysis.workload {
        say(&format!("model: {}", provenance::model(workload)), options, out);
    }
    if let Some(rank) = job::ranks_line(analysis) {
        say(&format!("rank: {rank}"), options, out);
    }
    if let Some(engine) = &analysis.engine {
        say(&format!("engine: {}", provenance::engine(engine)), options, out);
    }
    let totals = &analysis.totals;
    if measured::alone(analysis) {
        say(&measured::summary(analysis), options, out);
        return;
    }
    if totals.kernel_count == 0 && totals.busy_ns.is_none() {
        out.push_str("no GPU work was recorded\n");
        return;
    }
    let busy = totals.busy_ns.map(|b| format!(", GPU busy {}", time(b)));
    let launches: u64 = analysis.graphs.iter().map(|graph| graph.launches).sum();
    let graphs = match launches {
        0 => String::new(),
        _ => format!(", {} launches of whole graphs", count(launches)),
    };
    let totals = format!(
        "whole trace: {}, {} of kernel time{graphs}{}",
        counted(totals.kernel_count, "kernel"),
        time(totals.kernel_ns),
        busy.unwrap_or_default()
    );
    say(&totals, options, out);
    let lines = [headline::headline(analysis), headline::per_run(analysis)];
    for line in lines.into_iter().flatten() {
        say(&line, options, out);
    }
}

fn ranks(analysis: &Analysis, options: TextOptions, out: &mut String) {
    for (title, mut table) in [
        ("Ranks", job::ranks(analysis)),
        ("Collectives across ranks", job::collectives(analysis)),
        ("Ranks that others wait for", job::stragglers(analysis)),
        ("Balance of experts", job::experts(analysis)),
        ("Transfers between ranks", job::transfers(analysis)),
        ("Utilisation of ranks", job::utilisation(analysis)),
    ] {
        if !table.is_empty() {
            heading(title, options, out);
            let all = table.rows.len();
            table.rows.truncate(options.kernels.max(RANKS));
            out.push_str(&table.text(options.screen()));
            more(all, table.rows.len(), out);
        }
    }
    for gap in job::gaps(analysis) {
        say(&gap, options, out);
    }
}

fn stages(analysis: &Analysis, options: TextOptions, out: &mut String) {
    heading("Stages", options, out);
    if analysis.stages.is_empty() {
        return no_stages(analysis, options, out);
    }
    let mut columns = vec![
        "stage",
        "instances",
        "wall ms",
        "time ms",
        "CPU wall ms",
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
    columns.extend(stages::REST);
    if analysis.stages.iter().any(|s| s.mfu.is_some() || s.mbu.is_some()) {
        columns.extend(["MFU %", "MBU %"]);
    }
    let columns = roof::columns(&columns, &roof::of_stages(&analysis.stages));
    out.push_str(&stages::table(analysis).pick(&columns).text(options.screen()));
    if let Some(note) = stages::columns_note(&analysis.stages) {
        say(&note, options, out);
    }
    for stage in &analysis.stages {
        let verdict = verdict(stage);
        let screen = options.screen();
        let label = screen.word(verdict.label.as_str());
        let line = format!("{}: {label}: {}", plain(&stage.name), verdict.why);
        let _ = writeln!(out, "{}", screen.wrapped(&line, 2));
        for line in stages::details(stage) {
            say(&format!("  {line}"), options, out);
        }
    }
    // Without a model no stage has them, and the table has no columns for them.
    if analysis.workload.as_ref().is_some_and(|workload| workload.model.is_some()) {
        for line in utilisation::missing(analysis) {
            say(&format!("no MFU or MBU of {line}"), options, out);
        }
    }
    // Stages that are not shown are not outside.
    if let Some(line) = stages::outside(analysis).filter(|_| !options.stages_only) {
        say(&line, options, out);
    }
    if analysis.stages.iter().all(|stage| stage.kind == StageKind::Whole) {
        no_stages(analysis, options, out);
    }
}

fn requests(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if let Some(requests) = &analysis.requests {
        heading("Requests", options, out);
        out.push_str(&requests_text(requests, options.screen()));
        for line in against_steps(analysis) {
            say(&line, options, out);
        }
    }
}

fn serving(analysis: &Analysis, options: TextOptions, out: &mut String) {
    let Some(serving) = view::serving::of(analysis) else {
        return;
    };
    heading("Steps of the engine", options, out);
    for line in view::serving::sentences(analysis) {
        say(&line, options, out);
    }
    out.push_str(&view::serving::over_time(serving).text(options.screen()));
    for table in serving.latency.iter().flat_map(view::serving::latency) {
        if !table.is_empty() {
            let _ = write!(out, "\n{}", table.text(options.screen()));
        }
    }
}

/// Says why no stage was found and lists the ranges that are there.
fn no_stages(analysis: &Analysis, options: TextOptions, out: &mut String) {
    say(&missing(analysis, &About::Stages), options, out);
    let rows = ranges::rows(analysis);
    if !rows.is_empty() {
        let table = ranges::table(&rows, RANGES).text(options.screen());
        let _ = write!(out, "ranges in the input:\n{table}");
        more(rows.len(), RANGES, out);
    }
}

fn findings(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if analysis.stages.is_empty() && analysis.findings.is_empty() {
        return;
    }
    heading("What to do first", options, out);
    if analysis.findings.is_empty() {
        say(&findings::none_found(analysis), options, out);
    }
    for (i, finding) in analysis.findings.iter().take(FINDINGS).enumerate() {
        let screen = options.screen();
        let title = screen.wrapped(&format!("{}. {}", i + 1, plain(&finding.title)), 3);
        let _ = writeln!(out, "{title}");
        let lines = [findings::saving_with_id(analysis, finding), finding.action.clone()];
        for line in lines.into_iter().chain(findings::to_try(finding, "RUN")) {
            let _ = writeln!(out, "{}", screen.wrapped(&format!("   {}", plain(&line)), 0));
        }
    }
    more(analysis.findings.len(), FINDINGS, out);
    if let Some(first) = analysis.findings.first() {
        let hint = format!("`roofgap explain {}` says how it was computed and how to fix it", first.id);
        say(&hint, options, out);
    }
}

/// Lists the kernels that ncu measured, with a verdict for each.
fn measured_kernels(analysis: &Analysis, options: TextOptions, out: &mut String) {
    heading("Kernels measured by ncu", options, out);
    if analysis.kernels.is_empty() {
        say(&missing(analysis, &About::Kernels), options, out);
        return;
    }
    out.push_str(&measured::table(analysis, options.kernels).text(options.screen()));
    more(analysis.kernels.len(), options.kernels, out);
    say(measured::OF_LARGEST, options, out);
    roof_note(analysis, options, out);
    for line in measured::verdicts(analysis, options.kernels) {
        say(&line, options, out);
    }
}

/// Lists the first results of ncu's own rules.
fn rules(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if analysis.ncu_rules.is_empty() || !measured::alone(analysis) {
        return;
    }
    heading("Rules of ncu", options, out);
    let columns = ["kernel", "launches", "rule", "kind", "estimated saving"];
    out.push_str(&measured::rules(analysis, options.kernels).pick(&columns).text(options.screen()));
    more(analysis.ncu_rules.len(), options.kernels, out);
}

fn kernels(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if measured::alone(analysis) {
        return measured_kernels(analysis, options, out);
    }
    if !options.stages_only {
        heading("Kernels by time, whole trace", options, out);
        if analysis.kernels.is_empty() {
            say(&missing(analysis, &About::Kernels), options, out);
            return;
        }
        kernel_table(analysis, &analysis.kernels, analysis.totals.kernel_ns, options.kernels, options, out);
    }
    // The tables of stages are shorter where the whole trace has one, too.
    let most = if options.stages_only { options.kernels } else { options.kernels.div_ceil(2) };
    let own =
        |stage: &&Stage| !stage.kernels.is_empty() && (options.stages_only || stage.kind != StageKind::Whole);
    for stage in analysis.stages.iter().filter(own) {
        heading(&format!("Kernels of {}", plain(&stage.name)), options, out);
        let whole = stage.kernel_ns.unwrap_or(0);
        kernel_table(analysis, &stage.kernels, whole, most, options, out);
    }
    roof_note(analysis, options, out);
}

/// Writes the first kernels of a table; a share is of `whole_ns`.
fn kernel_table(
    analysis: &Analysis,
    kernels: &[Kernel],
    whole_ns: i64,
    most: usize,
    options: TextOptions,
    out: &mut String,
) {
    let (shown, rest) = kernels.split_at(kernels.len().min(most));
    let sum = |kernels: &[Kernel]| kernels.iter().map(|kernel| kernel.total_ns).sum::<i64>();
    if shown.is_empty() {
        let all = count(kernels.len() as u64);
        say(&format!("{all} kernels with {} in total, none listed", time(sum(kernels))), options, out);
        return;
    }
    let mut columns = vec!["kernel", "family", "total ms", "share %", "calls", "mean µs"];
    if kernels::on_several_devices(analysis) {
        columns.insert(1, "device");
    }
    let columns = roof::columns(&columns, &roof::of_kernels(kernels));
    let table = kernels::table(analysis, shown, whole_ns);
    out.push_str(&table.pick(&columns).text(options.screen()));
    if !rest.is_empty() {
        let rest_count = count(rest.len() as u64);
        let _ = writeln!(out, "and {rest_count} more with {} in total", time(sum(rest)));
    }
}

/// Explains the distance to the roof where a table has it, or why none has.
fn roof_note(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if let Some(note) = roof::note(analysis) {
        say(&note, options, out);
    } else if let Some(why) = provenance::no_roof(analysis) {
        say(why, options, out);
    }
}

/// Writes a table of the whole trace with its heading; nothing for an empty one, or where only stages are shown.
fn work(
    title: &str,
    table: &Table,
    columns: &[&str],
    one_device: bool,
    options: TextOptions,
    out: &mut String,
) {
    if table.is_empty() || options.stages_only {
        return;
    }
    heading(title, options, out);
    let shown: Vec<&str> =
        columns.iter().copied().filter(|name| !(one_device && *name == "device")).collect();
    let mut table = table.pick(&shown);
    let all = table.rows.len();
    table.rows.truncate(options.kernels);
    out.push_str(&table.text(options.screen()));
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
    out.push_str(&table.text(options.screen()));
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
        "of peak %",
        "link",
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
    let columns = ["kernel", "stage", "µs", "SM %", "DRAM %", "L2 %", "FLOP/B", "bound"];
    out.push_str(&table.pick(&columns).text(options.screen()));
    more(analysis.counters.len(), options.kernels, out);
}

fn stage1_figures(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if let Some(figures) = &analysis.stage1 {
        heading("Stage 1", options, out);
        say(&stage1::source(analysis, figures), options, out);
        out.push_str(&stage1::times(analysis, figures).text(options.screen()));
        out.push_str(&stage1::rates(figures).text(options.screen()));
    }
}

fn losses(analysis: &Analysis, options: TextOptions, out: &mut String) {
    if analysis.losses.is_empty() {
        return;
    }
    heading("Losses", options, out);
    for loss in &analysis.losses {
        let line = format!("{} ({}): {}: {}", loss.id, loss.severity, count(loss.count), loss.meaning);
        say(&line, options, out);
        for text in provenance::messages(loss) {
            let _ = writeln!(out, "{}", options.screen().wrapped(&format!("  {text}"), 2));
        }
    }
}
