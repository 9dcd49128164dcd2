//! Figures of a Stage 1 runner, beside those of the profiled run.

use super::table::Table;
use super::{Block, Document, Form, Section};
use roofgap_analyze::{Analysis, Kernel, StageOrigin};
use roofgap_base::numbers::{percent, share};
use roofgap_trace::account::{Stage1Figures, Stage1Time};

/// Explains the columns of the operator table.
const OPERATOR_TIMES: &str = "The runner adds the self time and the total time of an operator.";

impl Document<'_> {
    /// Tabulates the figures of a Stage 1 runner, if one ran the model; a list has its operators alone.
    pub fn stage1(&self) -> Section {
        let section = Section::new("stage1", "Stage 1");
        let Some(figures) = &self.analysis.stage1 else {
            return section;
        };
        let operators = Table::of(&figures.operators[..figures.operators.len().min(self.most(30))])
            .text("Stage 1 operator", |o| &o.name)
            .number("calls", |o| o.calls)
            .ms("CPU self + total", |o| o.cpu_ns)
            .ms("GPU self + total", |o| o.gpu_ns)
            .build();
        let operators = Block::table(operators).filter(|_| !self.is_text());
        let meaning = operators.as_ref().map(|_| Block::note(OPERATOR_TIMES));
        let profiled = self.analysis.stages.iter().any(|stage| stage.from == StageOrigin::Timeline);
        let beside = if profiled { ", beside one instance of each stage in the timeline" } else { "" };
        let source = format!("Mean over the runs of the Stage 1 runner, from {}{beside}.", figures.path);
        let mut times = times(self.analysis, figures);
        if !profiled {
            times = times.pick(&["stage", "Stage 1 mean ms", "std ms"]);
        }
        let own = [Block::Note(source), Block::Table(times), Block::Table(rates(figures))];
        let own = own.into_iter().filter(|_| self.form != Form::List);
        section.with(own).with(meaning).with(operators)
    }
}

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
        let recorded = || analysis.stages.iter().filter(|stage| stage.from == StageOrigin::Timeline);
        let each = |ns: i64, instances: u64| Some(ns / instances.max(1).cast_signed());
        if let Some(stage) = recorded().find(|stage| stage.name == name) {
            let (whole, n) = (stage.kernel_ns.unwrap_or(0), stage.instances);
            let top = |top: &Kernel| format!("{} ({} %)", top.short_name, percent(top.total_ns, whole));
            return Self {
                top_kernel: stage.kernels.first().map(top),
                wall: each(stage.wall_ns, n),
                kernel: stage.kernel_ns.and_then(|ns| each(ns, n)),
                busy: stage.busy_ns.and_then(|ns| each(ns, n)),
            };
        }
        let note = recorded().find_map(|stage| stage.notes.iter().find(|note| note.name == name));
        note.map_or_else(Self::default, |note| Self {
            wall: each(note.wall_ns, note.instances),
            kernel: note.kernel_ns.and_then(|ns| each(ns, note.instances)),
            ..Self::default()
        })
    }
}

/// Tabulates Stage 1 times beside one instance of each stage.
fn times(analysis: &Analysis, figures: &Stage1Figures) -> Table {
    let rows: Vec<(&Stage1Time, Profiled)> =
        figures.times.iter().map(|time| (time, Profiled::of(analysis, &time.name))).collect();
    Table::of(&rows)
        .text("stage", |(time, _)| &time.name)
        .ms("Stage 1 mean", |(time, _)| time.mean_ns)
        .ms("std", |(time, _)| time.std_ns)
        .ms("profiled wall", |(_, profiled)| profiled.wall)
        .ms("kernel", |(_, profiled)| profiled.kernel)
        .ms("GPU busy", |(_, profiled)| profiled.busy)
        .text("top kernel", |(_, profiled)| profiled.top_kernel.as_ref())
        .build()
}

/// Tabulates tokens, throughput and MFU as the runner computed them.
fn rates(figures: &Stage1Figures) -> Table {
    let mut rows: Vec<(String, String, Option<String>)> = Vec::new();
    for (name, value) in [("generated tokens", figures.tokens), ("tokens/s", figures.tokens_per_s)] {
        rows.extend(
            value.map(|v| (name.to_owned(), format!("{:.2}", v.mean), Some(format!("{:.2}", v.std)))),
        );
    }
    rows.extend(figures.mfu.iter().map(|mfu| (format!("MFU of {}, %", mfu.name), share(mfu.pct), None)));
    let peak = figures.peak_tflops.filter(|_| !figures.mfu.is_empty());
    rows.extend(peak.map(|peak| ("peak assumed for MFU, TFLOP/s".to_owned(), format!("{peak:.1}"), None)));
    let table = Table::of(&rows).text("Stage 1 figure", |row| &row.0);
    table.number("mean", |row| &row.1).number("std", |row| row.2.as_ref()).build()
}
