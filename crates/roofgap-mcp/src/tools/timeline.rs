//! `timeline`: the GPU operations of a time window.

use super::{InputRequest, Page, State};
use crate::answer::{Column, InputRef, Origin, Quantity, columns};
use crate::error::McpError;
use roofgap_analyze::{IntervalSet, short_name};
use roofgap_runs::open::Loaded;
use roofgap_trace::{OpKind, Trace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Request for a window of the timeline.
#[derive(Deserialize, JsonSchema)]
pub struct TimelineRequest {
    #[serde(flatten)]
    pub input: InputRequest,
    /// Start of the window, ns since the first event of the trace; 0 by default.
    pub start_ns: Option<i64>,
    /// End of the window, ns since the first event; the end of the trace by default.
    pub end_ns: Option<i64>,
    /// Device number; all devices by default.
    pub device: Option<u32>,
    #[serde(flatten)]
    pub page: Page,
}

/// GPU operations of a window.
#[derive(Serialize, JsonSchema)]
pub struct TimelineAnswer {
    #[serde(flatten)]
    pub input: InputRef,
    /// Length of the trace.
    pub trace_time: Quantity,
    /// Start of the window since the first event.
    pub start: Quantity,
    /// End of the window since the first event.
    pub end: Quantity,
    /// Busy time of each device in the window.
    pub devices: Vec<DeviceBusy>,
    /// Operations in the order of their start.
    pub operations: Vec<OperationRow>,
    /// Number of operations in the window.
    pub count: usize,
    /// Units and meaning of the rows.
    pub columns: Vec<Column>,
}

/// Busy time of a device.
#[derive(Serialize, JsonSchema)]
pub struct DeviceBusy {
    /// Device number.
    pub device: u32,
    /// Time in the window with at least one operation, ns.
    pub busy_ns: i64,
    /// Time in the window without any, ns.
    pub idle_ns: i64,
}

/// A GPU operation.
#[derive(Serialize, JsonSchema)]
pub struct OperationRow {
    /// `kernel`, `copy`, `set` or `graph`.
    pub kind: &'static str,
    /// Short name.
    pub name: String,
    /// Start since the first event, ns.
    pub start_ns: i64,
    /// Duration, ns.
    pub duration_ns: i64,
    /// Device number.
    pub device: u32,
    /// Stream, as the tool numbers it.
    pub stream: u32,
    /// Stage; null outside of every stage.
    pub stage: Option<String>,
}

/// Lists the operations of a window.
pub fn answer(state: &State, request: &TimelineRequest) -> Result<TimelineAnswer, McpError> {
    let (input, loaded) = state.load(&request.input)?;
    let trace = &loaded.trace;
    let Some((first, last)) = trace.span().filter(|_| !trace.ops.is_empty()) else {
        return Err(McpError::NoTimeline { why: "this input has no GPU operations with times".to_owned() });
    };
    let length = last - first;
    let start_ns = request.start_ns.unwrap_or(0).clamp(0, length);
    let end_ns = request.end_ns.unwrap_or(length).clamp(0, length);
    if end_ns <= start_ns {
        return Err(McpError::EmptyWindow {
            start_ns: request.start_ns.unwrap_or(0),
            end_ns: request.end_ns.unwrap_or(length),
        });
    }
    let window = (first + start_ns, first + end_ns);
    let ops = &trace.ops;
    // In the order of start, so nothing after the window is looked at.
    let before_end = ops.start.partition_point(|&start| start < window.1);
    let rows: Vec<usize> = (0..before_end)
        .filter(|&row| ops.end[row] > window.0)
        .filter(|&row| request.device.is_none_or(|device| number(trace, row) == device))
        .collect();
    let timeline = Origin { from: "timeline", why_not: "" };
    Ok(TimelineAnswer {
        input,
        trace_time: timeline.ns(length),
        start: timeline.ns(start_ns),
        end: timeline.ns(end_ns),
        devices: busy(trace, &rows, window),
        count: rows.len(),
        operations: request.page.of(&rows).iter().map(|&row| operation(&loaded, row, first)).collect(),
        columns: columns([
            ("start_ns", "ns", "since the first event of the trace, from the timeline"),
            ("duration_ns", "ns", "on the GPU, from the timeline"),
            ("busy_ns", "ns", "union of the operations of a device, cut to the window"),
            ("idle_ns", "ns", "the rest of the window"),
        ]),
    })
}

fn operation(loaded: &Loaded, row: usize, first: i64) -> OperationRow {
    let ops = &loaded.trace.ops;
    let name = loaded.trace.names.get(ops.name[row]);
    let (kind, name) = match ops.kind[row] {
        OpKind::Kernel => ("kernel", short_name(name).to_string()),
        OpKind::Copy => ("copy", name.to_owned()),
        OpKind::Set => ("set", name.to_owned()),
        OpKind::Graph => ("graph", name.to_owned()),
    };
    OperationRow {
        kind,
        name,
        start_ns: ops.start[row] - first,
        duration_ns: ops.duration(row),
        device: number(&loaded.trace, row),
        stream: ops.stream[row],
        stage: loaded.stages.stage_of_op(row).map(|stage| loaded.stages.name(stage).to_owned()),
    }
}

/// Returns the device number of an operation, as in the analysis.
fn number(trace: &Trace, row: usize) -> u32 {
    let device = trace.ops.device[row];
    trace.devices.get(device.index()).map_or(u32::from(device.0), |device| device.number)
}

/// Sums the busy time of each device with operations in the window.
fn busy(trace: &Trace, rows: &[usize], window: (i64, i64)) -> Vec<DeviceBusy> {
    let mut devices: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    for &row in rows {
        let (start, end) = (trace.ops.start[row].max(window.0), trace.ops.end[row].min(window.1));
        devices.entry(number(trace, row)).or_default().push((start, end));
    }
    let busy = |(device, times)| {
        let busy_ns = IntervalSet::of(times).length();
        DeviceBusy { device, busy_ns, idle_ns: window.1 - window.0 - busy_ns }
    };
    devices.into_iter().map(busy).collect()
}
