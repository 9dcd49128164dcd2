//! From a GPU operation to the call that launched it: process and correlation id.

use roofgap_trace::{CallClass, LossKind, Losses, Trace};

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
        let tables = Table::build(trace, losses);
        let ops = &trace.ops;
        let mut unmatched = 0;
        let call_of_op: Vec<u32> = ops
            .process
            .iter()
            .zip(&ops.correlation)
            .map(|(process, &correlation)| {
                let call = match correlation {
                    0 => NO_CALL,
                    id => tables.get(process.index()).map_or(NO_CALL, |t| t.find(id)),
                };
                unmatched += u64::from(call == NO_CALL);
                call
            })
            .collect();
        losses.add(LossKind::OpNoLaunch, unmatched);
        losses.add(
            LossKind::LaunchNoKernel,
            launches_without_kernel(trace, &tables, &call_of_op),
        );
        Self { call_of_op }
    }
}

/// A process has records of graph captures.
const CAPTURES: u8 = 1;
/// A process launches graphs.
const LAUNCHES_GRAPHS: u8 = 2;

/// Counts the kernel launches whose kernel is not in the trace. While a process captures a graph its launches run nothing.
fn launches_without_kernel(trace: &Trace, tables: &[Table], call_of_op: &[u32]) -> u64 {
    let calls = &trace.calls;
    let mut has_work = vec![false; calls.len()];
    for call in call_of_op {
        if let Some(has_work) = has_work.get_mut(*call as usize) {
            *has_work = true;
        }
    }
    let captures: Vec<i32> = trace
        .names
        .iter()
        .map(|(_, name)| {
            i32::from(name.contains("StreamBeginCapture")) - i32::from(name.contains("StreamEndCapture"))
        })
        .collect();
    let graph_launches: Vec<bool> = trace
        .names
        .iter()
        .map(|(_, name)| name.contains("GraphLaunch"))
        .collect();
    // A process that launches graphs has captured them. Without records of the capture, its launches cannot be told from others.
    let mut unclear = vec![0u8; trace.processes.len()];
    for (name, process) in calls.name.iter().zip(&calls.process) {
        if let Some(seen) = unclear.get_mut(process.index()) {
            *seen |= match captures.get(name.index()) {
                Some(1) => CAPTURES,
                _ if graph_launches.get(name.index()) == Some(&true) => LAUNCHES_GRAPHS,
                _ => 0,
            };
        }
    }
    let mut open = vec![0i32; trace.processes.len()];
    let mut missing = 0;
    for row in 0..calls.len() {
        let process = calls.process[row].index();
        let Some(open) = open.get_mut(process) else {
            continue;
        };
        *open = (*open + captures.get(calls.name[row].index()).copied().unwrap_or(0)).max(0);
        let correlation = calls.correlation[row];
        let unclear = unclear.get(process) == Some(&LAUNCHES_GRAPHS);
        if calls.class[row] != CallClass::Launch || *open > 0 || correlation == 0 || unclear {
            continue;
        }
        // Of two calls with one id, the earliest has the kernel.
        let first = tables
            .get(process)
            .map_or(NO_CALL, |table| table.find(correlation));
        missing += u64::from(has_work.get(first as usize) == Some(&false));
    }
    missing
}

/// Calls of one process by correlation id: an array where the ids lie close together, as they do in practice, else a sorted
/// list.
enum Table {
    Dense { first: u32, rows: Vec<u32> },
    Sorted(Vec<(u32, u32)>),
}

impl Table {
    fn build(trace: &Trace, losses: &mut Losses) -> Vec<Self> {
        let calls = &trace.calls;
        let processes = trace.processes.len();
        let mut spans = vec![(u32::MAX, 0u32, 0usize); processes];
        for (process, &id) in calls.process.iter().zip(&calls.correlation) {
            if let Some(span) = spans.get_mut(process.index())
                && id != 0
            {
                *span = (span.0.min(id), span.1.max(id), span.2 + 1);
            }
        }
        let mut tables: Vec<Self> = spans
            .iter()
            .map(|&(first, last, count)| {
                let width = if count == 0 {
                    0
                } else {
                    (last - first) as usize + 1
                };
                if width <= 8 * count + 4096 {
                    Self::Dense {
                        first,
                        rows: vec![NO_CALL; width],
                    }
                } else {
                    Self::Sorted(Vec::with_capacity(count))
                }
            })
            .collect();
        let mut duplicates = 0;
        for (row, (process, &id)) in calls.process.iter().zip(&calls.correlation).enumerate() {
            if id == 0 {
                continue;
            }
            match tables.get_mut(process.index()) {
                Some(Self::Dense { first, rows }) => match rows.get_mut((id - *first) as usize) {
                    // Calls are in the order of their start: the first to come is the earliest.
                    Some(slot) if *slot == NO_CALL => *slot = row as u32,
                    _ => duplicates += 1,
                },
                Some(Self::Sorted(list)) => list.push((id, row as u32)),
                None => {}
            }
        }
        for table in &mut tables {
            if let Self::Sorted(list) = table {
                list.sort_unstable();
                let before = list.len();
                list.dedup_by_key(|entry| entry.0);
                duplicates += (before - list.len()) as u64;
            }
        }
        losses.add(LossKind::CallDuplicate, duplicates);
        tables
    }

    fn find(&self, id: u32) -> u32 {
        match self {
            Self::Dense { first, rows } => id
                .checked_sub(*first)
                .and_then(|at| rows.get(at as usize))
                .copied()
                .unwrap_or(NO_CALL),
            Self::Sorted(list) => list
                .binary_search_by_key(&id, |entry| entry.0)
                .ok()
                .and_then(|at| list.get(at))
                .map_or(NO_CALL, |entry| entry.1),
        }
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
        let calls = [
            (0, 1),
            (0, 1),
            (0, 2),
            (1, 3),
            (0, 4),
            (2, 5),
            (0, 6),
            (3, 7),
            (0, 0),
        ];
        for (at, (name, correlation)) in calls.into_iter().enumerate() {
            let start = 10 * at as i64;
            trace.calls.push(Call {
                start,
                end: start + 5,
                name: trace.names.intern(names[name]),
                class: CallClass::of(names[name]),
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
        trace.calls.name[3] = graph;
        trace.calls.name[5] = graph;
        let mut losses = Losses::default();
        Launches::join(&trace, &mut losses);
        assert_eq!(losses.count(LossKind::LaunchNoKernel), 0);
    }
}
