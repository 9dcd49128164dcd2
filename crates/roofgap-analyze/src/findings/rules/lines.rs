//! Code of the CPU that keeps the GPU idle, by its kind. Only captures with stacks tell.

use crate::findings::rule::{Cause, Find, Rule, View, percent};
use crate::host::advice;
use crate::result::{Confidence, Finding, HostFunction, HostKind, Stage};

/// Share of the stage's time from which on a kind of work is worth a finding, %.
const LEAST_PCT: f64 = 5.0;

/// Share of the idle time from which on a line is named, %, and from which on its kind comes first in an action.
const LEAST_LINE_PCT: f64 = 10.0;
const LEAST_KIND_PCT: f64 = 25.0;

/// Idle time of a stage in code of each kind that says what to do.
fn idle_by_kind(view: &View<'_>) -> Vec<Finding> {
    HostKind::ALL.iter().filter(|kind| is_telling(**kind)).filter_map(|kind| idle_in(view, *kind)).collect()
}

/// Tells whether a kind is more than the launches themselves, or code that nothing is known of: the rules about idle time name its line.
fn is_telling(kind: HostKind) -> bool {
    !matches!(kind, HostKind::Dispatch | HostKind::Python | HostKind::Native)
}

fn idle_in(view: &View<'_>, kind: HostKind) -> Option<Finding> {
    let stage = view.stage;
    let idle_ns = stage.host_idle?.idle_ns;
    let rows: Vec<&HostFunction> = stage.host.iter().filter(|row| row.kind == kind).collect();
    let ns: i64 = rows.iter().map(|row| row.self_ns).sum();
    // The rule about synchronisation counts its own part.
    let waits_ns = if kind == HostKind::HiddenSync { stage.causes()?.sync_ns.min(ns) } else { 0 };
    let first = rows.first()?;
    // So does the one about data loaders, and the one about time outside of GPU work.
    let is_launches = stage.causes()?.launch_ns - stage.data_loading_ns >= ns / 2;
    if !is_launches || percent(stage.each_device(ns - waits_ns), stage.elapsed_ns()) < LEAST_PCT {
        return None;
    }
    let exact = rows.iter().all(|row| row.samples.is_none());
    let title = format!(
        "{:.0} % of the idle time of {} is {}, {:.0} % of that in {}",
        percent(ns, idle_ns),
        stage.spoken(),
        kind.as_str().replace('_', " "),
        percent(first.self_ns, ns),
        spoken(first)
    );
    view.saves_on_devices(&[("idle time in such code", ns), ("waits for the device", -waits_ns)])
        .id(id_of(kind))
        .confidence(if exact { Confidence::Measured } else { Confidence::Bounded })
        .with("function", first.function.clone())
        .with("file", first.file.clone())
        .with("line", first.line)
        .with("samples", first.samples)
        .with("function_ns", first.self_ns)
        .finish(title, format!("Start with {}. {}", first.spoken(), advice(kind)))
}

fn id_of(kind: HostKind) -> String {
    IDLE_LINES.id.replace('*', &kind.as_str().replace('_', "-"))
}

/// Returns what to do about the kind of code that a finding is about.
pub fn fix(id: &str) -> Option<&'static str> {
    HostKind::ALL.iter().copied().find(|kind| id_of(*kind) == id).map(advice)
}

/// Returns a line and the function without a line that has most of its time.
fn spoken(row: &HostFunction) -> String {
    let mostly = row.mostly.as_ref().filter(|call| 2 * call.ns > row.self_ns);
    let mostly = mostly.map_or_else(String::new, |call| format!(", mostly in {}", call.function));
    format!("{}{mostly}", row.spoken())
}

/// Names the line with most of the idle time of a stage in a part of a sentence that follows others; empty where none stands out.
pub fn line(stage: &Stage) -> String {
    let whole = stage.host_idle.map_or(0, |idle| idle.idle_ns);
    first_line(stage, whole, "its idle time", |row| row.self_ns)
}

/// Names the line that waits for the device most, in the same way.
pub fn waiting_line(stage: &Stage) -> String {
    let whole = stage.host.iter().map(|row| row.device_wait_ns).sum();
    first_line(stage, whole, "the waiting", |row| row.device_wait_ns)
}

fn first_line(stage: &Stage, whole: i64, what: &str, ns: impl Fn(&HostFunction) -> i64) -> String {
    let first = stage.host.iter().max_by_key(|row| ns(row));
    let share = |row: &HostFunction| percent(ns(row), whole);
    let first = first.filter(|row| share(row) >= LEAST_LINE_PCT);
    first.map_or_else(String::new, |row| format!("; {:.0} % of {what} is in {}", share(row), spoken(row)))
}

/// Says what to do about the kind of code with most of the idle time, before other actions; empty where it is the launches themselves
/// or not known.
pub fn first_step(stage: &Stage) -> String {
    let whole = stage.host_idle.map_or(0, |idle| idle.idle_ns);
    let share = |kind: HostKind| {
        let rows = stage.host.iter().filter(|row| row.kind == kind);
        percent(rows.map(|row| row.self_ns).sum(), whole)
    };
    let most = HostKind::ALL.iter().copied().max_by(|a, b| share(*a).total_cmp(&share(*b)));
    let most = most.filter(|kind| is_telling(*kind) && share(*kind) >= LEAST_KIND_PCT);
    most.map_or_else(String::new, |kind| {
        format!("{:.0} % of it is {}. {} ", share(kind), kind.as_str().replace('_', " "), advice(kind))
    })
}

pub const IDLE_LINES: Rule = Rule {
    find: Find::Each(idle_by_kind),
    cause: Cause::Launches,
    id: "idle-*",
    remedy: "less CPU work while the GPU waits",
    meaning: "The launching thread runs code of one kind while the GPU waits.",
    computed: "Idle time of the stage in which its launching thread was in functions of this kind, by the stacks of the capture. The kind \
               follows from names of functions and files. The bound is that time.",
    fix: "Start with the line that the finding names. `roofgap explain idle-KIND` explains hidden-sync, tokenizer, scheduler, \
          garbage-collection, lock, sleep, logging, file-access, messages and descheduled.",
    disproof: "The GPU stays as idle without that work; or the profiler makes it slow, as PyTorch's stacks do with short functions.",
    ..Rule::BASE
};
