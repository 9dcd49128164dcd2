//! What rules about the CPU, launches and waits share: the line with most of the idle time, and words for gaps.

use crate::findings::LaunchGap;
use crate::findings::rule::{View, percent};
use crate::host::advice;
use crate::result::{HostFunction, HostKind, Stage};
use crate::timeline::LAUNCH_LATENCY_NS;
use roofgap_trace::{NOT_RUNNING, OpKind};

/// Share of the idle time from which on a line is named, %, and from which on its kind comes first in an action.
const LEAST_LINE_PCT: f64 = 10.0;

const LEAST_KIND_PCT: f64 = 25.0;

/// Tells whether a kind is more than the launches themselves, or code that nothing is known of: the rules about idle time name its line.
pub fn is_telling(kind: HostKind) -> bool {
    !matches!(kind, HostKind::Dispatch | HostKind::Python | HostKind::Native)
}

/// Returns a line and the function without a line that has most of its time.
pub fn spoken(row: &HostFunction) -> String {
    if row.function == NOT_RUNNING {
        return "a thread that did not run".to_owned();
    }
    let mostly = row.mostly.as_ref().filter(|call| 2 * call.ns > row.self_ns);
    let mostly = mostly.map_or_else(String::new, |call| format!(", mostly in {}", call.function));
    format!("{}{mostly}", row.spoken())
}

/// Names the line with most of the idle time of a stage in a part of a sentence that follows others; empty where none stands out.
pub fn line(stage: &Stage) -> String {
    let whole = stage.host_idle.map_or(0, |idle| idle.idle_ns);
    part_of(first_line(stage, whole, |row| row.self_ns), "its idle time")
}

/// Says with which line to begin; what to do where none stands out.
pub fn start_with(stage: &Stage, otherwise: impl FnOnce() -> String) -> String {
    let whole = stage.host_idle.map_or(0, |idle| idle.idle_ns);
    let first = first_line(stage, whole, |row| row.self_ns).filter(|(row, _)| row.function != NOT_RUNNING);
    first.map_or_else(otherwise, |(row, _)| format!("Start with {}.", row.spoken()))
}

/// Names the line that waits for the device most, as `line` does.
pub fn waiting_line(stage: &Stage) -> String {
    let whole = stage.host.iter().map(|row| row.device_wait_ns).sum();
    part_of(first_line(stage, whole, |row| row.device_wait_ns), "the waiting")
}

/// Returns the line that has the most of a time, and its share in %; `None` where none stands out.
fn first_line(stage: &Stage, whole: i64, ns: impl Fn(&HostFunction) -> i64) -> Option<(&HostFunction, f64)> {
    // A name in brackets stands for code without symbols; a call into the driver is nobody's line.
    let is_call = |name: &str| name == "ioctl" || name.starts_with("cuda") || name.starts_with("cuMem");
    let named = stage.host.iter().filter(|row| !row.function.starts_with('[') && !is_call(&row.function));
    let first = named.max_by_key(|row| ns(row))?;
    Some((first, percent(ns(first), whole))).filter(|(_, share)| *share >= LEAST_LINE_PCT)
}

fn part_of(line: Option<(&HostFunction, f64)>, what: &str) -> String {
    line.map_or_else(String::new, |(row, share)| format!("; {share:.0} % of {what} is in {}", spoken(row)))
}

/// Says what to do about the kind of code with most of the idle time, before other actions; empty where it is the launches themselves
/// or not known.
pub fn first_step(stage: &Stage) -> String {
    let most = most_idle(stage).filter(|(_, share)| *share >= LEAST_KIND_PCT);
    most.map_or_else(String::new, |(kind, share)| {
        format!("{share:.0} % of it is {}. {} ", kind.as_str().replace('_', " "), advice(kind))
    })
}

/// Returns the kind of code with most of the idle time, and its share in %; `None` where it does not tell what to do.
pub fn most_idle(stage: &Stage) -> Option<(HostKind, f64)> {
    let whole = stage.host_idle?.idle_ns;
    let share = |kind: HostKind| {
        let rows = stage.host.iter().filter(|row| row.kind == kind);
        (kind, percent(rows.map(|row| row.self_ns).sum(), whole))
    };
    let most = HostKind::ALL.iter().copied().map(share).max_by(|a, b| a.1.total_cmp(&b.1));
    most.filter(|(kind, _)| is_telling(*kind))
}

/// Names the operation that ended a gap.
pub fn operation(view: &View<'_>, gap: &LaunchGap) -> String {
    match gap.kind {
        OpKind::Kernel => view.short_names.get(&gap.name),
        OpKind::Graph => "a CUDA graph".to_owned(),
        OpKind::Copy => "a copy".to_owned(),
        OpKind::Set => "a memory set".to_owned(),
    }
}

/// Tells whether idle time between launches and starts is what every launch takes.
pub fn is_dispatch(stage: &Stage, ns: i64) -> bool {
    stage.each_device(ns) / (stage.launch_count as i64).max(1) <= LAUNCH_LATENCY_NS
}
