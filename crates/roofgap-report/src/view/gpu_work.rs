//! GPU work other than kernels by name: copies, whole graphs and communication.

use super::numbers::{NONE, count, decimal, or_none, percent, size, time};
use super::table::Table;
use roofgap_analyze::{Analysis, CommunicationRow, CopyKind, CopyRow, GraphRow, Stage};

/// Explains the columns of the table of communication.
pub const COMMUNICATION: &str = "Exposed is time in which the device ran no kernel but communication; the rest is hidden behind \
     computation. Communication on the CPU is timed by its calls; one that returns before the end has no time. Bus bandwidth is that of \
     nccl-tests, and time spent waiting for a slower rank counts as communication. The peak is that of the GPU's link to others of its node in \
     one direction; reduction in the switch (NVLS) can exceed it. The network limits a group of several nodes unless NVLink spans them.";

/// Explains the columns of the table of copies.
pub const COPIES: &str = "Overlapped is time in which the device also ran a kernel. The peak is that of the GPU's link in one \
     direction; a copy within the device reads and writes every byte of it.";

/// Explains the table of graphs.
pub const GRAPHS: &str = "These graphs were recorded as one operation each, without their kernels.";

/// Builds the table of copies; empty without copies.
pub fn copies(analysis: &Analysis) -> Table {
    Table::of(&analysis.copies)
        .text("copy", |row: &CopyRow| row.kind.to_string())
        .text("device", |row| device(row.device))
        .text("host memory", |row| {
            or_none(row.pinned, |pinned| if pinned { "pinned" } else { "pageable" }.into())
        })
        .count("calls", |row| row.calls)
        .number("bytes", |row| or_none(row.bytes, size))
        .ms("total", |row| row.total_ns)
        .number("GB/s", |row| or_none(row.bandwidth_bytes_per_s, gbs))
        .number("overlapped %", |row| percent(row.overlapped_ns, row.total_ns))
        .decimal("of peak %", |row| row.peak_pct)
        .text("link", |row| {
            let peak = row.link.as_ref().zip(row.peak_bytes_per_s);
            or_none(peak, |(link, peak)| format!("{link}, {} GB/s", gbs(peak)))
        })
        .build()
}

/// Builds the table of whole graphs; empty without any.
pub fn graphs(analysis: &Analysis) -> Table {
    Table::of(&analysis.graphs)
        .text("graph", |row: &GraphRow| or_none(row.graph, |id| id.to_string()))
        .text("device", |row| device(row.device))
        .count("launches", |row| row.launches)
        .ms("total", |row| row.total_ns)
        .ms("mean", mean)
        .build()
}

/// Builds the table of communication; empty without any.
pub fn communication(analysis: &Analysis) -> Table {
    let timed = |row: &CommunicationRow, ns: i64| row.is_timed().then_some(ns);
    Table::of(&analysis.communication)
        .text("collective", |row: &CommunicationRow| row.collective.clone())
        .text("group", |row| row.group.clone().unwrap_or_else(|| NONE.into()))
        .number("ranks", |row| or_none(row.group_size, |size| size.to_string()))
        .text("device", |row| match row.on.as_str() {
            "cpu" => "CPU".to_owned(),
            _ => device(row.device),
        })
        .count("calls", |row| row.calls)
        .number("bytes", |row| or_none(row.bytes, size))
        .ms("total", |row| timed(row, row.total_ns))
        .ms("hidden", |row| timed(row, row.hidden_ns()))
        .ms("exposed", |row| timed(row, row.exposed_ns))
        .number("bus GB/s", |row| or_none(row.bus_bandwidth_bytes_per_s, gbs))
        .decimal("of peak %", |row| row.peak_pct)
        .text("link", |row| {
            let peak = row.link.as_ref().zip(row.peak_bytes_per_s);
            or_none(peak, |(link, peak)| format!("{link}, {} GB/s", gbs(peak)))
        })
        .build()
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
        let on = on.map_or_else(String::new, |number| format!(" on GPU {number}"));
        let rate = row.bandwidth_bytes_per_s.zip(row.bytes);
        let rate = rate.map(|(rate, bytes)| format!(", {} at {} GB/s", size(bytes), gbs(rate)));
        format!("{kind}{memory}{on} {}{}", time(row.total_ns), rate.unwrap_or_default())
    };
    let list: Vec<String> = stage.copies.iter().take(3).map(copy).collect();
    Some(format!("copies: {}", list.join("; ")))
}

fn device(number: Option<u32>) -> String {
    or_none(number, |number| number.to_string())
}

fn mean(row: &GraphRow) -> i64 {
    row.total_ns / (row.launches.max(1) as i64)
}

/// Formats bytes per second as GB/s, with more decimals for a small rate.
fn gbs(bytes_per_s: f64) -> String {
    match bytes_per_s / 1e9 {
        rate if rate >= 10.0 => decimal(rate, 1),
        rate if rate >= 0.1 => format!("{rate:.2}"),
        rate => format!("{rate:.4}"),
    }
}
