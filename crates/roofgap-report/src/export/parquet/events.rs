//! Single events of a rank: kernels, copies, CUDA calls and ranges. Times are nanoseconds on the clock of the capture; a value that was not
//! recorded is null.

use super::{Columns, Table, text};
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
                *slot = Some((text(&short_names.get(name)), text(family(name).as_str())));
            }
        }
        Self {
            trace,
            rank,
            copies,
            kernels,
            index: bundle.stages,
            names: trace.names.iter().map(|(_, name)| text(name)).collect(),
            short,
            stages: bundle.analysis.stages.iter().map(|s| text(&s.name)).collect(),
        }
    }

    /// Lists the tables.
    pub(super) fn tables(&self, key: &str) -> [Table<'_>; 4] {
        let trace = self.trace;
        [
            Table::new(
                "launches",
                key,
                self.kernels.len(),
                |r| self.kernels[r] as usize,
                |rows| self.launches(rows),
            ),
            Table::new(
                "copies",
                key,
                self.copies.len(),
                |r| self.copies[r] as usize,
                |rows| self.copies(rows),
            ),
            Table::new("calls", key, trace.calls.len(), |r| r, |rows| self.calls(rows)),
            Table::new(
                "ranges",
                key,
                trace.ranges.rows.len(),
                |r| &trace.ranges.rows[r],
                |rows| self.ranges(rows),
            ),
        ]
    }

    fn name(&self, id: NameId) -> ByteArray {
        self.names.get(id.index()).cloned().unwrap_or_else(|| text(""))
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
        rows.with("rank", |_| self.rank)
            .with("start_ns", |r| ops.start[r])
            .with("end_ns", |r| ops.end[r])
            .with("duration_ns", |r| ops.duration(r))
            .with("kind", |r| ops.kind[r].as_str())
            .with("name", |r| self.name(ops.name[r]))
            .with("stage", |r| self.stage_of_call(self.call(r)))
            .with("device", |r| Some(self.trace.devices.get(ops.device[r].index())?.number))
            .with("stream", |r| ops.stream[r])
            .with("pid", |r| self.pid(ops.process[r]))
            .with("launch_tid", |r| self.tid(*calls.thread.get(self.call(r))?))
            .with("launch_start_ns", |r| calls.start.get(self.call(r)).copied())
            .with("correlation", |r| not_zero(ops.correlation[r]))
    }

    /// Returns kernels, and whole graphs whose kernels were not recorded.
    fn launches(&self, rows: Columns<usize>) -> Columns<usize> {
        let ops = &self.trace.ops;
        let known = |r: usize| self.short.get(ops.name[r].index()).cloned().flatten();
        // The shape of an operation without a launch shape is zero.
        let shape = |r: usize| Some(ops.shape_of(r)).filter(|s| s.grid[0] > 0);
        self.operations(rows)
            .with("short_name", |r| Some(known(r)?.0))
            .with("family", |r| Some(known(r)?.1))
            .with("grid_x", |r| Some(shape(r)?.grid[0]))
            .with("grid_y", |r| Some(shape(r)?.grid[1]))
            .with("grid_z", |r| Some(shape(r)?.grid[2]))
            .with("block_x", |r| Some(shape(r)?.block[0]))
            .with("block_y", |r| Some(shape(r)?.block[1]))
            .with("block_z", |r| Some(shape(r)?.block[2]))
            .with("registers", |r| Some(shape(r)?.registers))
            .with("shared_bytes", |r| {
                let shape = shape(r)?;
                Some(i64::from(shape.static_shared) + i64::from(shape.dynamic_shared))
            })
            .with("graph_node", |r| {
                // Of a whole graph it is the id of the graph.
                let node = Some(ops.graph_node(r)).filter(|_| ops.kind[r] != OpKind::Graph)?;
                i64::try_from(node).ok().filter(|node| *node != 0)
            })
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
        self.operations(rows)
            .with("bytes", |r| Some(transfer(r)?.bytes))
            .with("source_memory", |r| memory(transfer(r)?.memory.0))
            .with("target_memory", |r| memory(transfer(r)?.memory.1))
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
        rows.with("rank", |_| self.rank)
            .with("start_ns", |r| calls.start[r])
            .with("end_ns", |r| calls.end[r])
            .with("duration_ns", |r| calls.end[r] - calls.start[r])
            .with("name", |r| self.name(calls.name[r]))
            .with("class", |r| class(r))
            // Known for calls that launch GPU work.
            .with("stage", |r| self.stage_of_call(r))
            .with("pid", |r| self.pid(calls.process[r]))
            .with("tid", |r| self.tid(calls.thread[r]))
            .with("correlation", |r| not_zero(calls.correlation[r]))
    }

    /// Returns the ranges of the program.
    fn ranges<'r>(&self, rows: Columns<&'r Range>) -> Columns<&'r Range> {
        let style = |style: RangeStyle| match style {
            RangeStyle::PushPop => "push_pop",
            RangeStyle::StartEnd => "start_end",
        };
        rows.with("rank", |_| self.rank)
            .with("start_ns", |r| r.start)
            .with("end_ns", |r| r.end)
            .with("duration_ns", |r| r.end - r.start)
            .with("domain", |r| self.name(r.domain))
            .with("name", |r| self.name(r.name))
            .with("style", |r| style(r.style))
            .with("pid", |r| self.pid(r.process))
            .with("tid", |r| self.tid(r.thread))
            .with("open", |r| r.open)
    }
}

fn not_zero(id: u32) -> Option<i64> {
    Some(i64::from(id)).filter(|id| *id != 0)
}
