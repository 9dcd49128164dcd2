//! `timeline`: the GPU operations of a time window. `steps`: the steps of a stage, and the slowest of them.

use super::{InputRef, InputRequest, Page, State, find_stage};
use roofgap_analyze::{Analysis, IntervalSet, Stage, Steps, short_name};
use roofgap_base::error::Error;
use roofgap_report::main_stage;
use roofgap_runs::open::Opened;
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
    /// Length of the trace, ns.
    pub trace_ns: i64,
    /// Start of the window since the first event, ns.
    pub start_ns: i64,
    /// End of the window since the first event, ns.
    pub end_ns: i64,
    /// Busy time of each device in the window.
    pub devices: Vec<DeviceBusy>,
    /// Operations in the order of their start.
    pub operations: Vec<OperationRow>,
    /// Number of operations in the window.
    pub count: usize,
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
pub fn answer(state: &State, request: &TimelineRequest) -> Result<TimelineAnswer, Error> {
    let (input, opened) = state.open(&request.input)?;
    let trace = &opened.trace;
    let Some((first, last)) = trace.span().filter(|_| !trace.ops.is_empty()) else {
        return Err(Error::new("not measured: this input has no GPU operations with times"));
    };
    let length = last - first;
    let start_ns = request.start_ns.unwrap_or(0).clamp(0, length);
    let end_ns = request.end_ns.unwrap_or(length).clamp(0, length);
    if end_ns <= start_ns {
        let (start_ns, end_ns) = (request.start_ns.unwrap_or(0), request.end_ns.unwrap_or(length));
        return Err(Error::new(format!(
            "the window from {start_ns} ns to {end_ns} ns is empty; end_ns must be larger than start_ns"
        )));
    }
    let window = (first + start_ns, first + end_ns);
    let ops = &trace.ops;
    // In the order of start, so nothing after the window is looked at.
    let before_end = ops.start.partition_point(|&start| start < window.1);
    let rows: Vec<usize> = (0..before_end)
        .filter(|&row| ops.end[row] > window.0)
        .filter(|&row| request.device.is_none_or(|device| number(trace, row) == device))
        .collect();
    Ok(TimelineAnswer {
        input,
        trace_ns: length,
        start_ns,
        end_ns,
        devices: busy(trace, &rows, window),
        count: rows.len(),
        operations: request.page.select(&rows).iter().map(|&row| operation(&opened, row, first)).collect(),
    })
}

fn operation(opened: &Opened, row: usize, first: i64) -> OperationRow {
    let ops = &opened.trace.ops;
    let name = opened.trace.names.get(ops.name[row]);
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
        device: number(&opened.trace, row),
        stream: ops.stream[row],
        stage: opened.stages.stage_of_op(row).map(|stage| opened.stages.name(stage).to_owned()),
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

/// Slowest steps that an answer names.
const SLOWEST: usize = 5;

/// Request for steps.
#[derive(Deserialize, JsonSchema)]
pub struct StepsRequest {
    #[serde(flatten)]
    pub input: InputRequest,
    /// Stage; the first with steps by default, decode before others.
    pub stage: Option<String>,
    #[serde(flatten)]
    pub page: Page,
}

/// Steps of a stage.
#[derive(Serialize, JsonSchema)]
pub struct StepsAnswer {
    #[serde(flatten)]
    pub input: InputRef,
    /// Stage; null where no stage has steps.
    pub stage: Option<String>,
    /// Number of steps, percentiles of their times, and launches of a step; null where the stage has no steps. A step takes from its
    /// first GPU operation to that of the next.
    pub summary: Option<Steps>,
    /// Reason for missing steps.
    pub not_measured: Option<String>,
    /// Steps in order.
    pub steps: Vec<StepRow>,
    /// Slowest steps, slowest first.
    pub slowest: Vec<StepRow>,
}

/// A step.
#[derive(Clone, Copy, Serialize, JsonSchema)]
pub struct StepRow {
    /// Position among the steps of the stage, from 0.
    pub step: usize,
    /// Time, ns.
    pub time_ns: i64,
}

/// Lists the steps of a stage.
pub fn answer_steps(state: &State, request: &StepsRequest) -> Result<StepsAnswer, Error> {
    let (input, opened) = state.open(&request.input)?;
    let stage = match &request.stage {
        Some(name) => Some(find_stage(&opened.analysis, name)?.1),
        None => stage_with_steps(&opened.analysis),
    };
    let steps = stage.and_then(|stage| stage.steps.as_ref());
    let missing = match stage {
        Some(stage) if steps.is_none() => format!("no ranges mark the steps of {}", stage.name),
        _ => "no stage of this input has steps".to_owned(),
    };
    let each = steps.iter().flat_map(|steps| &steps.each_ns).enumerate();
    let rows: Vec<StepRow> = each.map(|(step, &time_ns)| StepRow { step, time_ns }).collect();
    let mut slowest = rows.clone();
    slowest.sort_by_key(|row| (std::cmp::Reverse(row.time_ns), row.step));
    slowest.truncate(SLOWEST);
    Ok(StepsAnswer {
        input,
        stage: stage.map(|stage| stage.name.clone()),
        summary: steps.cloned().map(|mut steps| {
            steps.each_ns.clear();
            steps.cpu.iter_mut().for_each(|cpu| cpu.each_ns.clear());
            steps
        }),
        not_measured: steps.is_none().then_some(missing),
        steps: request.page.select(&rows).to_vec(),
        slowest,
    })
}

/// Returns the main stage of the reports or, where it has no steps, the first that has.
fn stage_with_steps(analysis: &Analysis) -> Option<&Stage> {
    let has_steps = |stage: &&Stage| stage.steps.is_some();
    let main = main_stage(analysis).filter(has_steps);
    main.or_else(|| analysis.stages.iter().find(has_steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_is_that_of_the_summary() {
        let stage = |name: &str| {
            let mut stage = Stage::default();
            (stage.name, stage.steps) = (name.to_owned(), Some(Steps::default()));
            stage
        };
        let mut analysis = Analysis::default();
        analysis.stages = vec![stage("mixed"), stage("decode")];
        assert_eq!(
            stage_with_steps(&analysis).map(|stage| &stage.name),
            main_stage(&analysis).map(|stage| &stage.name)
        );
        analysis.stages[1].steps = None;
        assert_eq!(stage_with_steps(&analysis).unwrap().name, "mixed");
    }
}
