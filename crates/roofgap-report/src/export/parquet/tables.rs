//! The content of the tables. Times are nanoseconds on the clock of the capture; a value that was not recorded is null.

use super::{Column, Columns};
use parquet::data_type::ByteArray;
use roofgap_analyze::{Analysis, NO_CALL, ShortNames, StageIndex, family};
use roofgap_trace::{CallClass, MemoryKind, NameId, OpKind, ProcessId, RangeStyle, ThreadId, Trace};
use std::ops::Range;

/// The sources of all tables.
pub struct Tables<'a> {
    analysis: &'a Analysis,
    trace: &'a Trace,
    /// Rows of the operations that are kernels or graphs.
    pub kernels: Vec<u32>,
    /// Rows of the operations that are copies or sets.
    pub copies: Vec<u32>,
    index: &'a StageIndex,
    /// Text of every name, shared by all rows with that name.
    names: Vec<ByteArray>,
    /// Short name and family of every kernel.
    short: Vec<Option<(ByteArray, ByteArray)>>,
    stages: Vec<ByteArray>,
}

impl<'a> Tables<'a> {
    pub fn new(analysis: &'a Analysis, index: &'a StageIndex, trace: &'a Trace) -> Self {
        let is_copy = |row: &u32| matches!(trace.ops.kind[*row as usize], OpKind::Copy | OpKind::Set);
        let (copies, kernels): (Vec<u32>, Vec<u32>) = (0..trace.ops.len() as u32).partition(is_copy);
        let short_names = ShortNames::of(analysis);
        let mut short = vec![None; trace.names.len()];
        for &row in &kernels {
            let id = trace.ops.name[row as usize];
            if let Some(slot @ None) = short.get_mut(id.index()) {
                let name = trace.names.get(id);
                *slot = Some((text(&short_names.get(name)), text(family(name).as_str())));
            }
        }
        Self {
            analysis,
            trace,
            copies,
            kernels,
            index,
            names: trace.names.iter().map(|(_, name)| text(name)).collect(),
            short,
            stages: analysis.stages.iter().map(|s| text(&s.name)).collect(),
        }
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
    fn operations(&self, rows: &[u32]) -> Columns<usize> {
        let (ops, calls) = (&self.trace.ops, &self.trace.calls);
        let kind = |r: usize| match ops.kind[r] {
            OpKind::Kernel => "kernel",
            OpKind::Copy => "memcpy",
            OpKind::Set => "memset",
            OpKind::Graph => "graph",
        };
        Columns::of(rows.iter().map(|row| *row as usize))
            .with("start_ns", |r| ops.start[r])
            .with("end_ns", |r| ops.end[r])
            .with("duration_ns", |r| ops.duration(r))
            .with("kind", |r| text(kind(r)))
            .with("name", |r| self.name(ops.name[r]))
            .with("stage", |r| self.stage_of_call(self.call(r)))
            .with("device", |r| Some(i64::from(self.trace.devices.get(ops.device[r].index())?.number)))
            .with("stream", |r| i64::from(ops.stream[r]))
            .with("pid", |r| self.pid(ops.process[r]))
            .with("launch_tid", |r| self.tid(*calls.thread.get(self.call(r))?))
            .with("launch_start_ns", |r| calls.start.get(self.call(r)).copied())
            .with("correlation", |r| not_zero(ops.correlation[r]))
    }

    /// Returns kernels, and whole graphs whose kernels were not recorded.
    pub fn kernels(&self, range: Range<usize>) -> Vec<Column> {
        let ops = &self.trace.ops;
        let known = |r: usize| self.short.get(ops.name[r].index()).cloned().flatten();
        // The shape of an operation without a launch shape is zero.
        let shape = |r: usize| Some(ops.shape_of(r)).filter(|s| s.grid[0] > 0);
        let int = |value: u32| i32::try_from(value).ok();
        let columns = self
            .operations(self.kernels.get(range).unwrap_or(&[]))
            .with("short_name", |r| Some(known(r)?.0))
            .with("family", |r| Some(known(r)?.1))
            .with("grid_x", |r| int(shape(r)?.grid[0]))
            .with("grid_y", |r| int(shape(r)?.grid[1]))
            .with("grid_z", |r| int(shape(r)?.grid[2]))
            .with("block_x", |r| int(shape(r)?.block[0]))
            .with("block_y", |r| int(shape(r)?.block[1]))
            .with("block_z", |r| int(shape(r)?.block[2]))
            .with("registers", |r| int(shape(r)?.registers))
            .with("shared_bytes", |r| {
                let shape = shape(r)?;
                Some(i64::from(shape.static_shared) + i64::from(shape.dynamic_shared))
            })
            .with("graph_node", |r| {
                // Of a whole graph it is the id of the graph.
                let node = Some(ops.graph_node(r)).filter(|_| ops.kind[r] != OpKind::Graph)?;
                i64::try_from(node).ok().filter(|node| *node != 0)
            });
        columns.columns
    }

    /// Returns copies and memory sets.
    pub fn copies(&self, range: Range<usize>) -> Vec<Column> {
        let transfer = |r: usize| self.trace.ops.transfers.get(&(r as u32));
        let memory = |kind: MemoryKind| match kind {
            MemoryKind::Unknown => None,
            MemoryKind::Pageable => Some(text("pageable")),
            MemoryKind::Pinned => Some(text("pinned")),
            MemoryKind::Device => Some(text("device")),
            MemoryKind::Managed => Some(text("managed")),
        };
        let columns = self
            .operations(self.copies.get(range).unwrap_or(&[]))
            .with("bytes", |r| i64::try_from(transfer(r)?.bytes).ok())
            .with("source_memory", |r| memory(transfer(r)?.memory.0))
            .with("target_memory", |r| memory(transfer(r)?.memory.1));
        columns.columns
    }

    /// Returns CUDA calls.
    pub fn calls(&self, rows: Range<usize>) -> Vec<Column> {
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
        let columns = Columns::of(rows)
            .with("start_ns", |r| calls.start[r])
            .with("end_ns", |r| calls.end[r])
            .with("duration_ns", |r| calls.end[r] - calls.start[r])
            .with("name", |r| self.name(calls.name[r]))
            .with("class", |r| text(class(r)))
            // Known for calls that launch GPU work.
            .with("stage", |r| self.stage_of_call(r))
            .with("pid", |r| self.pid(calls.process[r]))
            .with("tid", |r| self.tid(calls.thread[r]))
            .with("correlation", |r| not_zero(calls.correlation[r]));
        columns.columns
    }

    /// Returns the ranges of the program.
    pub fn ranges(&self, rows: Range<usize>) -> Vec<Column> {
        let style = |style: RangeStyle| match style {
            RangeStyle::PushPop => "push_pop",
            RangeStyle::StartEnd => "start_end",
        };
        let columns = Columns::of(self.trace.ranges.rows.get(rows).unwrap_or(&[]).iter())
            .with("start_ns", |r| r.start)
            .with("end_ns", |r| r.end)
            .with("duration_ns", |r| r.end - r.start)
            .with("domain", |r| self.name(r.domain))
            .with("name", |r| self.name(r.name))
            .with("style", |r| text(style(r.style)))
            .with("pid", |r| self.pid(r.process))
            .with("tid", |r| self.tid(r.thread))
            .with("open", |r| r.open);
        columns.columns
    }

    /// Returns hardware counters, a row for each kernel, launch shape and stage.
    pub fn counters(&self, rows: Range<usize>) -> Vec<Column> {
        let long = |n: u64| i64::try_from(n).ok();
        let columns = Columns::of(self.analysis.counters.get(rows).unwrap_or(&[]).iter())
            .with("stage", |r| r.stage.as_deref().map(text))
            .with("kernel", |r| text(&r.kernel))
            .with("grid_x", |r| i64::from(r.grid[0]))
            .with("grid_y", |r| i64::from(r.grid[1]))
            .with("grid_z", |r| i64::from(r.grid[2]))
            .with("block_x", |r| i64::from(r.block[0]))
            .with("block_y", |r| i64::from(r.block[1]))
            .with("block_z", |r| i64::from(r.block[2]))
            .with("samples", |r| long(r.samples))
            .with("duration_ns", |r| r.duration_ns)
            .with("timeline_ratio", |r| r.timeline_ratio)
            .with("sm_pct", |r| r.sm_pct)
            .with("memory_pct", |r| r.memory_pct)
            .with("dram_pct", |r| r.dram_pct)
            .with("l2_pct", |r| r.l2_pct)
            .with("l1_pct", |r| r.l1_pct)
            .with("occupancy_pct", |r| r.occupancy_pct)
            .with("dram_bytes", |r| r.dram_bytes.and_then(long))
            .with("flops", |r| r.flops.and_then(long))
            .with("intensity", |r| r.intensity)
            .with("achieved_flops_per_s", |r| r.achieved_flops_per_s)
            .with("bound", |r| r.bound.as_deref().map(text))
            .with("reason", |r| text(&r.reason));
        columns.columns
    }
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text)
}

fn not_zero(id: u32) -> Option<i64> {
    Some(i64::from(id)).filter(|id| *id != 0)
}
