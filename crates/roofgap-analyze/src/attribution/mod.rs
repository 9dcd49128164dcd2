//! What belongs to what: GPU operations to the calls that launched them, calls to the ranges and operators around them.

mod contexts;
mod nesting;
mod tables;

pub use contexts::Contexts;
pub use nesting::{CallKind, CallNode, Scope, around_calls, call_tree, operation_tree};
pub use tables::{add_operator, operator_table, range_table, sorted_operators};

use roofgap_trace::{CallClass, LossKind, Losses, OpKind, Process, ProcessId, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// Stands for "no launch record".
pub const NO_CALL: u32 = u32::MAX;

/// For each GPU operation the row of its launch call.
#[derive(Debug, Default)]
pub struct Launches {
    /// Row in `Trace::calls` for each row in `Trace::ops`, or [`NO_CALL`].
    pub call_of_op: Vec<u32>,
}

impl Launches {
    /// Joins operations with calls. Correlation ids repeat across processes, so the process is part of the key; where two
    /// calls share a key the earliest has it.
    pub fn join(trace: &Trace, losses: &mut Losses) -> Self {
        let tables = CallTable::build(trace, losses);
        let ops = &trace.ops;
        let call = |(process, &correlation): (&ProcessId, &u32)| match correlation {
            0 => NO_CALL,
            id => tables.get(process.index()).map_or(NO_CALL, |table| table.find(id)),
        };
        let call_of_op: Vec<u32> = ops.process.iter().zip(&ops.correlation).map(call).collect();
        let unmatched = (0..ops.len()).filter(|op| call_of_op[*op] == NO_CALL && !is_migration(trace, *op));
        losses.add(LossKind::OpNoLaunch, unmatched.count() as u64);
        let counts = count_launches(trace, &tables, &call_of_op);
        losses.add(LossKind::LaunchNoKernel, counts.iter().map(LaunchCount::missing).sum());
        Self { call_of_op }
    }
}

/// Tells whether an operation moves pages of managed memory. The driver does that by itself; no call asks for it.
pub fn is_migration(trace: &Trace, op: usize) -> bool {
    let name = trace.ops.name.get(op).filter(|_| trace.ops.kind.get(op) == Some(&OpKind::Copy));
    name.is_some_and(|name| trace.names.get(*name).starts_with("[CUDA memcpy Unified"))
}

/// Returns the calls that launched something, thread by thread in the order of their start, as rows of `Trace::calls`.
pub fn launching_calls(trace: &Trace, call_of_op: &[u32]) -> Vec<Vec<u32>> {
    let launched = calls_with_work(trace, call_of_op);
    let rows = (0u32..).zip(trace.calls.thread.iter().copied());
    rows_by_thread(trace, rows.filter(|(row, _)| launched[*row as usize]))
}

/// Groups rows by thread, in their order.
pub fn rows_by_thread(trace: &Trace, rows: impl Iterator<Item = (u32, ThreadId)>) -> Vec<Vec<u32>> {
    let mut threads = vec![Vec::new(); trace.threads.len()];
    for (row, thread) in rows {
        if let Some(list) = threads.get_mut(thread.index()) {
            list.push(row);
        }
    }
    threads
}

/// Marks the calls that launched something.
pub fn calls_with_work(trace: &Trace, call_of_op: &[u32]) -> Vec<bool> {
    let mut launched = vec![false; trace.calls.len()];
    for &call in call_of_op {
        if let Some(flag) = launched.get_mut(call as usize) {
            *flag = true;
        }
    }
    launched
}

/// Launches of one process against the GPU work that was recorded of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaunchCount {
    /// Process id.
    pub pid: u32,
    /// Launches of single kernels, outside of graph capture; 0 where those inside cannot be told from them.
    pub kernels: u64,
    /// Number of those whose kernel is not in the trace.
    pub kernels_missing: u64,
    /// Launches of graphs.
    pub graphs: u64,
    /// Number of those without any operation in the trace.
    pub graphs_missing: u64,
}

impl LaunchCount {
    /// Returns the number of launches without their work.
    pub fn missing(&self) -> u64 {
        self.kernels_missing + self.graphs_missing
    }

    /// Returns the share of launches whose work was recorded, 0 to 1; `None` without launches.
    pub fn recorded_share(&self) -> Option<f64> {
        let all = self.kernels + self.graphs;
        (all > 0).then(|| 1.0 - self.missing() as f64 / all as f64)
    }
}

/// Counts the launches of each process and the recorded work of them.
pub fn launch_counts(trace: &Trace) -> Vec<LaunchCount> {
    let losses = &mut Losses::default();
    count_launches(trace, &CallTable::build(trace, losses), &Launches::join(trace, losses).call_of_op)
}

/// A process has records of graph captures.
const CAPTURES: u8 = 1;
/// A process launches graphs.
const LAUNCHES_GRAPHS: u8 = 2;

/// Counts launches and those without work, by process. While a process captures a graph its launches run nothing.
fn count_launches(trace: &Trace, tables: &[CallTable], call_of_op: &[u32]) -> Vec<LaunchCount> {
    let calls = &trace.calls;
    let has_work = calls_with_work(trace, call_of_op);
    let change = |name: &str| {
        i32::from(name.contains("StreamBeginCapture")) - i32::from(name.contains("StreamEndCapture"))
    };
    let captures: Vec<i32> = trace.names.iter().map(|(_, name)| change(name)).collect();
    // A process that launches graphs has captured them. Without records of the capture, its launches cannot be told from others.
    let mut unclear = vec![0u8; trace.processes.len()];
    let graphs = calls.class.contains(&CallClass::GraphLaunch);
    let columns = calls.name.iter().zip(&calls.process).zip(&calls.class);
    for ((name, process), class) in columns.filter(|_| graphs) {
        if let Some(seen) = unclear.get_mut(process.index()) {
            *seen |= match captures.get(name.index()) {
                Some(1) => CAPTURES,
                _ if *class == CallClass::GraphLaunch => LAUNCHES_GRAPHS,
                _ => 0,
            };
        }
    }
    let mut open = vec![0i32; trace.processes.len()];
    let with_pid = |process: &Process| LaunchCount { pid: process.pid, ..LaunchCount::default() };
    let mut counts: Vec<LaunchCount> = trace.processes.iter().map(with_pid).collect();
    let has_captures = captures.iter().any(|change| *change != 0);
    let columns =
        calls.process.iter().zip(&calls.class).zip(&calls.correlation).zip(&calls.name).zip(&has_work);
    for (row, ((((process, class), &correlation), name), &has_work)) in columns.enumerate() {
        let is_graph = match class {
            CallClass::GraphLaunch => Some(true),
            CallClass::Launch => Some(false),
            _ if has_captures => None,
            _ => continue,
        };
        let process = process.index();
        let (Some(open), Some(count)) = (open.get_mut(process), counts.get_mut(process)) else {
            continue;
        };
        if has_captures {
            *open = (*open + captures.get(name.index()).copied().unwrap_or(0)).max(0);
        }
        let Some(is_graph) = is_graph else { continue };
        let unclear = !is_graph && unclear.get(process) == Some(&LAUNCHES_GRAPHS);
        if *open > 0 || correlation == 0 || unclear {
            continue;
        }
        // Of two calls with one id, the earliest has the kernel and is the launch.
        let is_first = |table: &CallTable| table.find(correlation) as usize == row;
        if !has_work && !tables.get(process).is_some_and(is_first) {
            continue;
        }
        let missing = u64::from(!has_work);
        if is_graph {
            count.graphs += 1;
            count.graphs_missing += missing;
        } else {
            count.kernels += 1;
            count.kernels_missing += missing;
        }
    }
    // A tool that joins no graph launch with its work says nothing about a single one.
    for count in counts.iter_mut().filter(|count| count.graphs == count.graphs_missing) {
        (count.graphs, count.graphs_missing) = (0, 0);
    }
    counts
}

/// Calls of one process by correlation id: an array where the ids lie close together, as they do in practice, else a map.
enum CallTable {
    Dense { first: u32, rows: Vec<u32> },
    Sparse(FxHashMap<u32, u32>),
}

impl CallTable {
    fn build(trace: &Trace, losses: &mut Losses) -> Vec<Self> {
        let calls = &trace.calls;
        let mut spans = vec![(u32::MAX, 0u32, 0usize); trace.processes.len()];
        for (process, &id) in calls.process.iter().zip(&calls.correlation) {
            if let Some(span) = spans.get_mut(process.index())
                && id != 0
            {
                *span = (span.0.min(id), span.1.max(id), span.2 + 1);
            }
        }
        let table = |&(first, last, count): &(u32, u32, usize)| {
            let width = if count == 0 { 0 } else { (last - first) as usize + 1 };
            match width <= 8 * count + 4096 {
                true => Self::Dense { first, rows: vec![NO_CALL; width] },
                false => Self::Sparse(FxHashMap::default()),
            }
        };
        let mut tables: Vec<Self> = spans.iter().map(table).collect();
        let mut duplicates = 0;
        for (row, (process, &id)) in (0u32..).zip(calls.process.iter().zip(&calls.correlation)) {
            let slot = match tables.get_mut(process.index()).filter(|_| id != 0) {
                Some(Self::Dense { first, rows }) => rows.get_mut((id - *first) as usize),
                Some(Self::Sparse(map)) => Some(map.entry(id).or_insert(NO_CALL)),
                None => continue,
            };
            match slot {
                // Calls are in the order of their start: the first to come is the earliest.
                Some(slot) if *slot == NO_CALL => *slot = row,
                _ => duplicates += 1,
            }
        }
        losses.add(LossKind::CallDuplicate, duplicates);
        tables
    }

    fn find(&self, id: u32) -> u32 {
        let row = match self {
            Self::Dense { first, rows } => id.checked_sub(*first).and_then(|at| rows.get(at as usize)),
            Self::Sparse(map) => map.get(&id),
        };
        row.copied().unwrap_or(NO_CALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_trace::{Call, DeviceId, GpuOp, OpKind, ShapeId};

    #[test]
    fn launches_without_a_kernel_are_a_loss_outside_graph_capture() {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "python");
        let thread = trace.add_thread(process, 1, "");
        let names = [
            "cudaLaunchKernel_v7000",
            "cudaStreamBeginCapture_v10000",
            "cudaStreamEndCapture_v10000",
            "cudaMalloc",
        ];
        // A launch with its kernel, the same launch as the driver sees it, one without; a launch while a graph is captured.
        let calls = [(0, 1), (0, 1), (0, 2), (1, 3), (0, 4), (2, 5), (0, 6), (3, 7), (0, 0)];
        for (at, (name, correlation)) in calls.into_iter().enumerate() {
            let start = 10 * at as i64;
            trace.calls.push(Call {
                start,
                end: start + 5,
                name: trace.names.intern(names[name]),
                class: CallClass::from_name(names[name]),
                process,
                thread,
                correlation,
            });
        }
        let name = trace.names.intern("k");
        trace.ops.push(GpuOp {
            kind: OpKind::Kernel,
            start: 100,
            end: 200,
            name,
            device: DeviceId(0),
            stream: 7,
            process,
            correlation: 1,
            shape: ShapeId(0),
            bytes: 0,
            graph_node: 0,
            memory: Default::default(),
        });
        let mut losses = Losses::default();
        Launches::join(&trace, &mut losses);
        assert_eq!(losses.count(LossKind::LaunchNoKernel), 2, "correlations 2 and 6");
        // Without records of the capture, launches inside and outside of it look alike.
        let graph = trace.names.intern("cudaGraphLaunch");
        for row in [3, 5] {
            trace.calls.name[row] = graph;
            trace.calls.class[row] = CallClass::GraphLaunch;
        }
        let mut losses = Losses::default();
        Launches::join(&trace, &mut losses);
        assert_eq!(losses.count(LossKind::LaunchNoKernel), 0);
        // One of two graph launches has no operation.
        assert_eq!(launch_counts(&trace)[0].graphs, 0, "no graph launch is joined with its work");
        trace.ops.correlation[0] = 3;
        let counts = launch_counts(&trace)[0];
        assert_eq!((counts.kernels, counts.graphs, counts.graphs_missing), (0, 2, 1));
        assert_eq!(counts.recorded_share(), Some(0.5));
    }
}
