//! Figures of a Stage 1 runner, beside those of the profiled run.

use super::numbers::{NONE, or_none, percent, share};
use super::table::Table;
use roofgap_analyze::{Analysis, Stage, StageOrigin};
use roofgap_trace::account::{Stage1Figures, Stage1Mfu, Stage1Operator, Stage1Time};

/// Explains the columns of the operator table.
pub const OPERATOR_TIMES: &str = "The runner adds the self time and the total time of an operator.";

/// Profiled times of one instance of a stage or of a part of one, ns, and the kernel that takes the most of it.
#[derive(Default)]
struct Profiled {
    wall: Option<i64>,
    kernel: Option<i64>,
    busy: Option<i64>,
    top_kernel: Option<String>,
}

impl Profiled {
    /// Finds the stage or the part of a stage in the timeline.
    fn of(analysis: &Analysis, name: &str) -> Self {
        let recorded = |stage: &&Stage| stage.from == StageOrigin::Timeline;
        let mut stages = analysis.stages.iter().filter(recorded);
        let each = |ns: i64, instances: u64| ns / i64::try_from(instances.max(1)).unwrap_or(i64::MAX);
        if let Some(stage) = stages.clone().find(|stage| stage.name == name) {
            let each = |ns: i64| each(ns, stage.instances);
            let whole = stage.kernel_ns.unwrap_or(0);
            let top = stage.kernels.first();
            return Profiled {
                top_kernel: top.map(|top| format!("{} ({} %)", top.short_name, percent(top.total_ns, whole))),
                wall: Some(each(stage.wall_ns)),
                kernel: stage.kernel_ns.map(each),
                busy: stage.busy_ns.map(each),
            };
        }
        let note = stages.find_map(|stage| stage.notes.iter().find(|note| note.name == name));
        note.map_or_else(Profiled::default, |note| Profiled {
            wall: Some(each(note.wall_ns, note.instances)),
            kernel: note.kernel_ns.map(|ns| each(ns, note.instances)),
            ..Profiled::default()
        })
    }
}

/// Says where the figures come from, and what stands beside them.
pub fn source(analysis: &Analysis, figures: &Stage1Figures) -> String {
    let beside =
        if is_profiled(analysis) { ", beside one instance of each stage in the timeline" } else { "" };
    format!("Mean over the runs of the Stage 1 runner, from {}{beside}.", figures.path)
}

fn is_profiled(analysis: &Analysis) -> bool {
    analysis.stages.iter().any(|stage| stage.from == StageOrigin::Timeline)
}

/// Builds the table of Stage 1 times, beside one instance of each stage where there is a timeline.
pub fn times(analysis: &Analysis, figures: &Stage1Figures) -> Table {
    let rows: Vec<(&Stage1Time, Profiled)> =
        figures.times.iter().map(|time| (time, Profiled::of(analysis, &time.name))).collect();
    let table = Table::of(&rows)
        .text("stage", |(time, _)| time.name.clone())
        .ms("Stage 1 mean", |(time, _)| time.mean_ns)
        .ms("std", |(time, _)| time.std_ns)
        .ms("profiled wall", |(_, profiled)| profiled.wall)
        .ms("kernel", |(_, profiled)| profiled.kernel)
        .ms("GPU busy", |(_, profiled)| profiled.busy)
        .text("top kernel", |(_, profiled)| or_none(profiled.top_kernel.clone(), |name| name))
        .build();
    if is_profiled(analysis) { table } else { table.pick(&["stage", "Stage 1 mean ms", "std ms"]) }
}

/// Builds the table of tokens, throughput and MFU as the runner computed them.
pub fn rates(figures: &Stage1Figures) -> Table {
    let mut table = Table::new(&["Stage 1 figure", "mean>", "std>"]);
    for (name, value) in [("generated tokens", figures.tokens), ("tokens/s", figures.tokens_per_s)] {
        let cells = value.map(|v| [name.to_owned(), format!("{:.2}", v.mean), format!("{:.2}", v.std)]);
        table.rows.extend(cells.map(Vec::from));
    }
    let mfu = |mfu: &Stage1Mfu| vec![format!("MFU of {}, %", mfu.name), share(mfu.pct), NONE.to_owned()];
    table.rows.extend(figures.mfu.iter().map(mfu));
    if let Some(peak) = figures.peak_tflops.filter(|_| !figures.mfu.is_empty()) {
        table.row(["peak assumed for MFU, TFLOP/s".to_owned(), format!("{peak:.1}"), NONE.to_owned()]);
    }
    table
}

/// Builds the table of operators of the runner.
pub fn operators(figures: &Stage1Figures, most: usize) -> Table {
    Table::of(&figures.operators[..figures.operators.len().min(most)])
        .text("Stage 1 operator", |o: &Stage1Operator| o.name.clone())
        .count("calls", |o| o.calls)
        .ms("CPU self + total", |o| o.cpu_ns)
        .ms("GPU self + total", |o| o.gpu_ns)
        .build()
}
