//! A trace as lines, so that two can be compared whatever their ids.

use crate::{Ns, Trace};

/// What a trace holds, in the order in which it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub devices: Vec<String>,
    pub ops: Vec<String>,
    pub calls: Vec<String>,
    pub cpu_ops: Vec<String>,
    pub ranges: Vec<String>,
}

impl Snapshot {
    pub fn of(trace: &Trace) -> Self {
        let name = |id| trace.names.get(id);
        let pid = |id: crate::ProcessId| trace.processes[id.index()].pid;
        let thread = |id: crate::ThreadId| {
            let thread = trace.threads[id.index()];
            format!("{}/{}", pid(thread.process), thread.tid)
        };
        let ops = &trace.ops;
        let calls = &trace.calls;
        let cpu_ops = &trace.cpu_ops;
        Self {
            devices: trace
                .devices
                .iter()
                .map(|d| {
                    format!(
                        "{} {:?} {:?} {:?} {:?}",
                        d.number, d.name, d.compute_capability, d.sms, d.memory_bytes
                    )
                })
                .collect(),
            ops: (0..ops.len())
                .map(|i| {
                    let transfer = ops.transfers.get(&(i as u32)).copied().unwrap_or_default();
                    let shape = ops.shape_of(i);
                    op_line(
                        &format!("{:?}", ops.kind[i]),
                        (ops.start[i], ops.end[i]),
                        name(ops.name[i]),
                        (trace.devices[ops.device[i].index()].number, ops.stream[i]),
                        (ops.correlation[i], pid(ops.process[i])),
                        (shape.grid, shape.block, shape.registers, shape.dynamic_shared),
                        (transfer.bytes, ops.graph_node(i)),
                    )
                })
                .collect(),
            calls: (0..calls.len())
                .map(|i| {
                    assert_eq!(trace.threads[calls.thread[i].index()].process, calls.process[i]);
                    let line = thread_line(
                        (calls.start[i], calls.end[i]),
                        name(calls.name[i]),
                        &thread(calls.thread[i]),
                    );
                    format!("{line} {}", calls.correlation[i])
                })
                .collect(),
            cpu_ops: (0..cpu_ops.len())
                .map(|i| {
                    thread_line(
                        (cpu_ops.start[i], cpu_ops.end[i]),
                        name(cpu_ops.name[i]),
                        &thread(cpu_ops.thread[i]),
                    )
                })
                .collect(),
            ranges: trace
                .ranges
                .rows
                .iter()
                .map(|r| {
                    let line = thread_line((r.start, r.end), name(r.name), &thread(r.thread));
                    format!("{}@{line}", name(r.domain))
                })
                .collect(),
        }
    }
}

pub type Shape = ([u32; 3], [u32; 3], u32, u32);

pub fn op_line(
    kind: &str,
    time: (Ns, Ns),
    name: &str,
    place: (u32, u32),
    launch: (u32, u32),
    shape: Shape,
    other: (u64, u64),
) -> String {
    format!("{kind} {time:?} {name:?} {place:?} {launch:?} {shape:?} {other:?}")
}

pub fn thread_line(time: (Ns, Ns), name: &str, thread: &str) -> String {
    format!("{time:?} {name:?} {thread}")
}
