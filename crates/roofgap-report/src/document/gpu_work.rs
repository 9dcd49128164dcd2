//! GPU work other than kernels by name: copies, whole graphs and communication.

use super::table::{Cell, Table};
use super::{Document, Section, joined, maybe};
use roofgap_analyze::{Analysis, CopyKind, CopyRow, Stage};
use roofgap_base::numbers::{count, decimal, percent, size, time};

/// Explains the columns of the table of communication.
const COMMUNICATION: &str = "Exposed is time in which the device ran no kernel but communication; the rest is hidden behind \
     computation. Communication on the CPU is timed by its calls; one that returns before the end has no time. Bus bandwidth is that of \
     nccl-tests, and time spent waiting for a slower rank counts as communication. The peak is that of the GPU's link to others of its node in \
     one direction; reduction in the switch (NVLS) can exceed it. The network limits a group of several nodes unless NVLink spans them.";

/// Explains the columns of the table of copies.
const COPIES: &str = "Overlapped is time in which the device also ran a kernel. The peak is that of the GPU's link in one \
     direction; a copy within the device reads and writes every byte of it.";

/// Explains the table of graphs.
const GRAPHS: &str = "These graphs were recorded as one operation each, without their kernels.";

impl Document<'_> {
    /// Tabulates the GPU work of the whole trace that is not a kernel by name.
    pub(super) fn gpu_work(&self) -> Vec<Section> {
        let analysis = self.analysis;
        let tables = [
            ("graphs", "Graphs", GRAPHS, graphs(analysis)),
            ("copies", "Copies", COPIES, copies(analysis)),
            ("communication", "Communication", COMMUNICATION, communication(analysis)),
        ];
        let one_device = self.is_text() && analysis.devices.len() < 2;
        let section = |(id, title, meaning, table): (_, _, _, Table)| {
            let table = if one_device { table.without(&["device"]) } else { table };
            let table = if self.text().stages_only { Table::default() } else { table };
            self.tabled(id, title, meaning, table, self.text().kernels)
        };
        tables.map(section).into()
    }
}

fn graphs(analysis: &Analysis) -> Table {
    Table::of(&analysis.graphs)
        .text("graph", |row| row.graph.map(|id| id.to_string()))
        .text("device", |row| row.device)
        .number("launches", |row| row.launches)
        .ms("total", |row| row.total_ns)
        .ms("mean", |row| row.total_ns / (row.launches.max(1) as i64))
        .build()
}

fn copies(analysis: &Analysis) -> Table {
    Table::of(&analysis.copies)
        .text("copy", |row| row.kind.as_str())
        .text("device", |row| row.device)
        .text("host memory", |row| row.pinned.map(|pinned| if pinned { "pinned" } else { "pageable" }))
        .number("calls", |row| row.calls)
        .number("bytes", |row| row.bytes.map(size))
        .ms("total", |row| row.total_ns)
        .number("GB/s", |row| row.bandwidth_bytes_per_s.map(gbs))
        .number("overlapped %", |row| percent(row.overlapped_ns, row.total_ns))
        .number("of peak %", |row| row.peak_pct)
        .text("link", |row| link(row.link.as_ref(), row.peak_bytes_per_s))
        .build()
}

fn communication(analysis: &Analysis) -> Table {
    Table::of(&analysis.communication)
        .text("collective", |row| &row.collective)
        .text("group", |row| row.group.as_ref())
        .number("ranks", |row| row.group_size)
        .text("device", |row| if row.on == "cpu" { "CPU".to_owned() } else { row.device.cell() })
        .number("calls", |row| row.calls)
        .number("bytes", |row| row.bytes.map(size))
        .ms("total", |row| row.is_timed().then_some(row.total_ns))
        .ms("hidden", |row| row.is_timed().then(|| row.hidden_ns()))
        .ms("exposed", |row| row.is_timed().then_some(row.exposed_ns))
        .number("bus GB/s", |row| row.bus_bandwidth_bytes_per_s.map(gbs))
        .number("of peak %", |row| row.peak_pct)
        .text("link", |row| link(row.link.as_ref(), row.peak_bytes_per_s))
        .build()
}

/// Names a link and its peak, if both are known.
fn link(link: Option<&String>, peak: Option<f64>) -> Option<String> {
    Some(format!("{}, {} GB/s", link?, gbs(peak?)))
}

/// Describes the whole graphs of a stage.
pub fn graphs_of_stage(stage: &Stage) -> Option<String> {
    let total_ns: i64 = stage.graphs.iter().map(|row| row.total_ns).sum();
    let launches: u64 = stage.graphs.iter().map(|row| row.launches).sum();
    (launches > 0).then(|| {
        format!(
            "of its GPU work {} was recorded as {} of whole CUDA graphs",
            time(total_ns),
            self::launches(launches)
        )
    })
}

/// Formats a number of launches.
pub fn launches(n: u64) -> String {
    match n {
        1 => "1 launch".to_owned(),
        n => format!("{} launches", count(n)),
    }
}

/// Describes the copies of a stage, where they take at least 5 % of its busy time.
pub fn copies_of_stage(stage: &Stage) -> Option<String> {
    let total_ns: i64 = stage.copies.iter().map(|row| row.total_ns).sum();
    if total_ns == 0 || total_ns < stage.busy_ns? / 20 {
        return None;
    }
    let copy = |row: &CopyRow| {
        let memory = match row.pinned {
            Some(true) => " (pinned)",
            Some(false) => " (pageable)",
            None => "",
        };
        let kind = match row.kind {
            CopyKind::Unknown => "direction unknown",
            kind => kind.as_str(),
        };
        let on = row.device.filter(|_| stage.device_count > 1);
        let on = maybe(on, |number| format!(" on GPU {number}"));
        let rate = row.bandwidth_bytes_per_s.zip(row.bytes);
        let rate = maybe(rate, |(rate, bytes)| format!(", {} at {} GB/s", size(bytes), gbs(rate)));
        format!("{kind}{memory}{on} {}{rate}", time(row.total_ns))
    };
    Some(format!("copies: {}", joined(stage.copies.iter().take(3).map(copy), "; ")))
}

/// Formats bytes per second as GB/s, with more decimals for a small rate.
fn gbs(bytes_per_s: f64) -> String {
    match bytes_per_s / 1e9 {
        rate if rate >= 10.0 => decimal(rate, 1),
        rate if rate >= 0.1 => format!("{rate:.2}"),
        rate => format!("{rate:.4}"),
    }
}
