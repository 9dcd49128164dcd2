//! Single events of a rank: kernels, copies, CUDA calls and ranges. Times are nanoseconds on the clock of the capture; a value that was not
//! recorded is null.

use super::{Columns, TableFile, columns};
use crate::Bundle;
use parquet::data_type::ByteArray;
use roofgap_analyze::{NO_CALL, ShortNames, StageIndex, family};
use roofgap_trace::{CallClass, MemoryKind, NameId, OpKind, ProcessId, Range, RangeStyle, ThreadId, Trace};

/// The sources of the tables.
pub(super) struct Events<'a> {
    trace: &'a Trace,
    rank: u32,
    /// Rows of the operations that are kernels or graphs.
    kernels: Vec<u32>,
    /// Rows of the operations that are copies or sets.
    copies: Vec<u32>,
    index: &'a StageIndex,
    /// Text of every name, shared by all rows with that name.
    names: Vec<ByteArray>,
    /// Short name and family of every kernel.
    short: Vec<Option<(ByteArray, ByteArray)>>,
    stages: Vec<ByteArray>,
}

impl<'a> Events<'a> {
    pub(super) fn new(bundle: Bundle<'a>, trace: &'a Trace, rank: u32) -> Self {
        let is_copy = |row: &u32| matches!(trace.ops.kind[*row as usize], OpKind::Copy | OpKind::Set);
        let (copies, kernels): (Vec<u32>, Vec<u32>) = (0..trace.ops.len() as u32).partition(is_copy);
        let short_names = ShortNames::of(bundle.analysis);
        let mut short = vec![None; trace.names.len()];
        for &row in &kernels {
            let id = trace.ops.name[row as usize];
            if let Some(slot @ None) = short.get_mut(id.index()) {
                let name = trace.names.get(id);
                *slot = Some((short_names.get(name).as_str().into(), family(name).as_str().into()));
            }
        }
        Self {
            trace,
            rank,
            copies,
            kernels,
            index: bundle.stages,
            names: trace.names.iter().map(|(_, name)| name.into()).collect(),
            short,
            stages: bundle.analysis.stages.iter().map(|s| s.name.as_str().into()).collect(),
        }
    }

    /// Lists the tables.
    pub(super) fn tables(&self, key: &str) -> [TableFile<'_>; 4] {
        let (kernels, copies, ranges) = (&self.kernels, &self.copies, &self.trace.ranges.rows);
        [
            TableFile::new(
                "launches",
                key,
                kernels.len(),
                |r| kernels[r] as usize,
                |rows| self.launches(rows),
            ),
            TableFile::new("copies", key, copies.len(), |r| copies[r] as usize, |rows| self.copies(rows)),
            TableFile::new("calls", key, self.trace.calls.len(), |r| r, |rows| self.calls(rows)),
            TableFile::new("ranges", key, ranges.len(), |r| &ranges[r], |rows| self.ranges(rows)),
        ]
    }

    fn name(&self, id: NameId) -> ByteArray {
        self.names.get(id.index()).cloned().unwrap_or_else(|| "".into())
    }

    fn pid(&self, process: ProcessId) -> Option<i64> {
        self.trace.processes.get(process.index()).map(|p| i64::from(p.pid))
    }

    fn tid(&self, thread: ThreadId) -> Option<i64> {
        self.trace.threads.get(thread.index()).map(|t| i64::from(t.tid))
    }

    /// Returns the stage in which a call launched GPU work.
    fn stage_of_call(&self, call: usize) -> Option<ByteArray> {
        self.stages.get(self.index.stage_of_call(call)?).cloned()
    }

    fn call(&self, op: usize) -> usize {
        self.index.launches().call_of_op.get(op).copied().unwrap_or(NO_CALL) as usize
    }

    /// Returns the columns that all operations have.
    fn operations(&self, rows: Columns<usize>) -> Columns<usize> {
        let (ops, calls) = (&self.trace.ops, &self.trace.calls);
        columns!(rows, r;
            rank: self.rank,
            start_ns: ops.start[r],
            end_ns: ops.end[r],
            duration_ns: ops.duration(r),
            kind: ops.kind[r].as_str(),
            name: self.name(ops.name[r]),
            stage: self.stage_of_call(self.call(r)),
            device: Some(self.trace.devices.get(ops.device[r].index())?.number),
            stream: ops.stream[r],
            pid: self.pid(ops.process[r]),
            launch_tid: self.tid(*calls.thread.get(self.call(r))?),
            launch_start_ns: calls.start.get(self.call(r)).copied(),
            correlation: not_zero(ops.correlation[r]),
        )
    }

    /// Returns kernels, and whole graphs whose kernels were not recorded.
    fn launches(&self, rows: Columns<usize>) -> Columns<usize> {
        let ops = &self.trace.ops;
        let known = |r: usize| self.short.get(ops.name[r].index()).cloned().flatten();
        // The shape of an operation without a launch shape is zero.
        let shape = |r: usize| Some(ops.shape_of(r)).filter(|s| s.grid[0] > 0);
        columns!(self.operations(rows), r;
            short_name: Some(known(r)?.0),
            family: Some(known(r)?.1),
            grid_x: Some(shape(r)?.grid[0]),
            grid_y: Some(shape(r)?.grid[1]),
            grid_z: Some(shape(r)?.grid[2]),
            block_x: Some(shape(r)?.block[0]),
            block_y: Some(shape(r)?.block[1]),
            block_z: Some(shape(r)?.block[2]),
            registers: Some(shape(r)?.registers),
            shared_bytes: {
                let shape = shape(r)?;
                Some(i64::from(shape.static_shared) + i64::from(shape.dynamic_shared))
            },
            graph_node: {
                // Of a whole graph it is the id of the graph.
                let node = Some(ops.graph_node(r)).filter(|_| ops.kind[r] != OpKind::Graph)?;
                i64::try_from(node).ok().filter(|node| *node != 0)
            },
        )
    }

    /// Returns copies and memory sets.
    fn copies(&self, rows: Columns<usize>) -> Columns<usize> {
        let transfer = |r: usize| self.trace.ops.transfers.get(&(r as u32));
        let memory = |kind: MemoryKind| match kind {
            MemoryKind::Unknown => None,
            MemoryKind::Pageable => Some("pageable"),
            MemoryKind::Pinned => Some("pinned"),
            MemoryKind::Device => Some("device"),
            MemoryKind::Managed => Some("managed"),
        };
        columns!(self.operations(rows), r;
            bytes: Some(transfer(r)?.bytes),
            source_memory: memory(transfer(r)?.memory.0),
            target_memory: memory(transfer(r)?.memory.1),
        )
    }

    /// Returns CUDA calls.
    fn calls(&self, rows: Columns<usize>) -> Columns<usize> {
        let calls = &self.trace.calls;
        let class = |r: usize| match calls.class[r] {
            CallClass::Launch => "launch",
            CallClass::GraphLaunch => "graph_launch",
            CallClass::Copy => "copy",
            CallClass::Set => "set",
            CallClass::Sync => "sync",
            CallClass::Memory => "memory",
            CallClass::Other => "other",
        };
        columns!(rows, r;
            rank: self.rank,
            start_ns: calls.start[r],
            end_ns: calls.end[r],
            duration_ns: calls.end[r] - calls.start[r],
            name: self.name(calls.name[r]),
            class: class(r),
            // Known for calls that launch GPU work.
            stage: self.stage_of_call(r),
            pid: self.pid(calls.process[r]),
            tid: self.tid(calls.thread[r]),
            correlation: not_zero(calls.correlation[r]),
        )
    }

    /// Returns the ranges of the program.
    fn ranges<'r>(&self, rows: Columns<&'r Range>) -> Columns<&'r Range> {
        let style = |style: RangeStyle| match style {
            RangeStyle::PushPop => "push_pop",
            RangeStyle::StartEnd => "start_end",
        };
        columns!(rows, r;
            rank: self.rank,
            start_ns: r.start,
            end_ns: r.end,
            duration_ns: r.end - r.start,
            domain: self.name(r.domain),
            name: self.name(r.name),
            style: style(r.style),
            pid: self.pid(r.process),
            tid: self.tid(r.thread),
            open,
        )
    }
}

fn not_zero(id: u32) -> Option<i64> {
    Some(i64::from(id)).filter(|id| *id != 0)
}
