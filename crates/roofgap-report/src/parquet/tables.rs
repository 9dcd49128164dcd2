//! The content of the tables. Times are nanoseconds on the clock of the capture; a value that was not recorded is null.

use super::column::{Column, Values};
use parquet::data_type::ByteArray;
use roofgap_analyze::{Analysis, CounterRow, NO_CALL, ShortNames, StageIndex, family};
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
    short: Vec<Option<(ByteArray, ByteArray)>>,
    stages: Vec<ByteArray>,
}

impl<'a> Tables<'a> {
    pub fn new(analysis: &'a Analysis, index: &'a StageIndex, trace: &'a Trace) -> Self {
        let transfer = |kind: &OpKind| matches!(kind, OpKind::Copy | OpKind::Set);
        let pick = |copies: bool| {
            let kinds = trace.ops.kind.iter().enumerate();
            kinds.filter(|(_, k)| transfer(k) == copies).map(|(row, _)| row as u32).collect()
        };
        let kernels: Vec<u32> = pick(false);
        let short_names = ShortNames::of(analysis);
        let mut short = vec![None; trace.names.len()];
        for &row in &kernels {
            let Some(&id) = trace.ops.name.get(row as usize) else {
                continue;
            };
            if let Some(slot @ None) = short.get_mut(id.index()) {
                let name = trace.names.get(id);
                *slot = Some((text(&short_names.get(name)), text(family(name).as_str())));
            }
        }
        Self {
            analysis,
            trace,
            copies: pick(true),
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
    fn stage_of_call(&self, call: u32) -> Option<ByteArray> {
        self.stages.get(self.index.stage_of_call(call as usize)?).cloned()
    }

    fn call(&self, op: usize) -> u32 {
        self.index.launches().call_of_op.get(op).copied().unwrap_or(NO_CALL)
    }

    /// Returns the columns that all operations have.
    fn operations(&self, rows: &[u32]) -> Vec<Column> {
        let ops = &self.trace.ops;
        let long = |f: &dyn Fn(usize) -> i64| Values::Long(rows.iter().map(|r| f(*r as usize)).collect());
        let maybe = |f: &dyn Fn(usize) -> Option<i64>| {
            Values::MaybeLong(rows.iter().map(|r| f(*r as usize)).collect())
        };
        let kind = |k: OpKind| match k {
            OpKind::Kernel => "kernel",
            OpKind::Copy => "memcpy",
            OpKind::Set => "memset",
            OpKind::Graph => "graph",
        };
        let kinds = rows.iter().map(|r| text(kind(ops.kind[*r as usize])));
        let device = |r: usize| self.trace.devices.get(ops.device[r].index());
        let launch = |r: usize| self.trace.calls.start.get(self.call(r) as usize).copied();
        let thread = |r: usize| self.trace.calls.thread.get(self.call(r) as usize).copied();
        vec![
            Column::new("start_ns", long(&|r| ops.start[r])),
            Column::new("end_ns", long(&|r| ops.end[r])),
            Column::new("duration_ns", long(&|r| ops.duration(r))),
            Column::text("kind", kinds),
            Column::text("name", rows.iter().map(|r| self.name(ops.name[*r as usize]))),
            Column::new(
                "stage",
                Values::MaybeText(rows.iter().map(|r| self.stage_of_call(self.call(*r as usize))).collect()),
            ),
            Column::new("device", maybe(&|r| device(r).map(|d| i64::from(d.number)))),
            Column::new("stream", long(&|r| i64::from(ops.stream[r]))),
            Column::new("pid", maybe(&|r| self.pid(ops.process[r]))),
            Column::new("launch_tid", maybe(&|r| self.tid(thread(r)?))),
            Column::new("launch_start_ns", maybe(&launch)),
            Column::new("correlation", maybe(&|r| not_zero(ops.correlation[r]))),
        ]
    }

    /// Returns kernels, and whole graphs whose kernels were not recorded.
    pub fn kernels(&self, range: Range<usize>) -> Vec<Column> {
        let rows = self.kernels.get(range).unwrap_or(&[]);
        let ops = &self.trace.ops;
        let mut columns = self.operations(rows);
        let known = |r: &u32| self.short.get(ops.name[*r as usize].index()).cloned().flatten();
        let int = |f: &dyn Fn(usize) -> Option<u32>| {
            let value = |r: &u32| i32::try_from(f(*r as usize)?).ok();
            Values::MaybeInt(rows.iter().map(value).collect())
        };
        // The shape of an operation without a launch shape is zero.
        let shape = |r: usize| Some(ops.shape_of(r)).filter(|s| s.grid[0] > 0);
        let node = |r: &u32| {
            // Of a whole graph it is the id of the graph.
            let is_node = ops.kind[*r as usize] != OpKind::Graph;
            let node = ops.graph_node[*r as usize];
            i64::try_from(node).ok().filter(|n| *n != 0 && is_node)
        };
        let shared = |r: &u32| {
            let shape = shape(*r as usize)?;
            Some(i64::from(shape.static_shared) + i64::from(shape.dynamic_shared))
        };
        columns.extend([
            Column::maybe_text("short_name", rows.iter().map(|r| Some(known(r)?.0))),
            Column::maybe_text("family", rows.iter().map(|r| Some(known(r)?.1))),
            Column::new("grid_x", int(&|r| Some(shape(r)?.grid[0]))),
            Column::new("grid_y", int(&|r| Some(shape(r)?.grid[1]))),
            Column::new("grid_z", int(&|r| Some(shape(r)?.grid[2]))),
            Column::new("block_x", int(&|r| Some(shape(r)?.block[0]))),
            Column::new("block_y", int(&|r| Some(shape(r)?.block[1]))),
            Column::new("block_z", int(&|r| Some(shape(r)?.block[2]))),
            Column::new("registers", int(&|r| Some(shape(r)?.registers))),
            Column::maybe_long("shared_bytes", rows.iter().map(shared)),
            Column::maybe_long("graph_node", rows.iter().map(node)),
        ]);
        columns
    }

    /// Returns copies and memory sets.
    pub fn copies(&self, range: Range<usize>) -> Vec<Column> {
        let rows = self.copies.get(range).unwrap_or(&[]);
        let transfers = &self.trace.ops.transfers;
        let bytes = |r: &u32| i64::try_from(transfers.get(r)?.bytes).ok();
        let memory = |r: &u32, to: bool| {
            let (source, target) = transfers.get(r)?.memory;
            match if to { target } else { source } {
                MemoryKind::Unknown => None,
                MemoryKind::Pageable => Some(text("pageable")),
                MemoryKind::Pinned => Some(text("pinned")),
                MemoryKind::Device => Some(text("device")),
                MemoryKind::Managed => Some(text("managed")),
            }
        };
        let mut columns = self.operations(rows);
        columns.extend([
            Column::maybe_long("bytes", rows.iter().map(bytes)),
            Column::maybe_text("source_memory", rows.iter().map(|r| memory(r, false))),
            Column::maybe_text("target_memory", rows.iter().map(|r| memory(r, true))),
        ]);
        columns
    }

    /// Returns CUDA calls.
    pub fn calls(&self, rows: Range<usize>) -> Vec<Column> {
        let calls = &self.trace.calls;
        let class = |c: CallClass| match c {
            CallClass::Launch => "launch",
            CallClass::GraphLaunch => "graph_launch",
            CallClass::Copy => "copy",
            CallClass::Set => "set",
            CallClass::Sync => "sync",
            CallClass::Memory => "memory",
            CallClass::Other => "other",
        };
        let long = |f: &dyn Fn(usize) -> i64| Values::Long(rows.clone().map(f).collect());
        let maybe = |f: &dyn Fn(usize) -> Option<i64>| Values::MaybeLong(rows.clone().map(f).collect());
        let stages = rows.clone().map(|r| self.stage_of_call(r as u32));
        vec![
            Column::new("start_ns", long(&|r| calls.start[r])),
            Column::new("end_ns", long(&|r| calls.end[r])),
            Column::new("duration_ns", long(&|r| calls.end[r] - calls.start[r])),
            Column::text("name", rows.clone().map(|r| self.name(calls.name[r]))),
            Column::text("class", rows.clone().map(|r| text(class(calls.class[r])))),
            // Known for calls that launch GPU work.
            Column::maybe_text("stage", stages),
            Column::new("pid", maybe(&|r| self.pid(calls.process[r]))),
            Column::new("tid", maybe(&|r| self.tid(calls.thread[r]))),
            Column::new("correlation", maybe(&|r| not_zero(calls.correlation[r]))),
        ]
    }

    /// Returns the ranges of the program.
    pub fn ranges(&self, rows: Range<usize>) -> Vec<Column> {
        let rows = self.trace.ranges.rows.get(rows).unwrap_or(&[]);
        let style = |s: RangeStyle| match s {
            RangeStyle::PushPop => "push_pop",
            RangeStyle::StartEnd => "start_end",
        };
        vec![
            Column::long("start_ns", rows.iter().map(|r| r.start)),
            Column::long("end_ns", rows.iter().map(|r| r.end)),
            Column::long("duration_ns", rows.iter().map(|r| r.end - r.start)),
            Column::text("domain", rows.iter().map(|r| self.name(r.domain))),
            Column::text("name", rows.iter().map(|r| self.name(r.name))),
            Column::text("style", rows.iter().map(|r| text(style(r.style)))),
            Column::maybe_long("pid", rows.iter().map(|r| self.pid(r.process))),
            Column::maybe_long("tid", rows.iter().map(|r| self.tid(r.thread))),
            Column::flag("open", rows.iter().map(|r| r.open)),
        ]
    }

    /// Returns hardware counters, a row for each kernel, launch shape and stage.
    pub fn counters(&self, rows: Range<usize>) -> Vec<Column> {
        let rows = self.analysis.counters.get(rows).unwrap_or(&[]);
        let real = |f: fn(&CounterRow) -> Option<f64>| Values::MaybeReal(rows.iter().map(f).collect());
        let size = |n: Option<u64>| n.and_then(|n| i64::try_from(n).ok());
        let dimension = |f: fn(&CounterRow) -> u32| Values::Long(rows.iter().map(|r| f(r).into()).collect());
        vec![
            Column::maybe_text("stage", rows.iter().map(|r| r.stage.as_deref().map(text))),
            Column::text("kernel", rows.iter().map(|r| text(&r.kernel))),
            Column::new("grid_x", dimension(|r| r.grid[0])),
            Column::new("grid_y", dimension(|r| r.grid[1])),
            Column::new("grid_z", dimension(|r| r.grid[2])),
            Column::new("block_x", dimension(|r| r.block[0])),
            Column::new("block_y", dimension(|r| r.block[1])),
            Column::new("block_z", dimension(|r| r.block[2])),
            Column::maybe_long("samples", rows.iter().map(|r| size(Some(r.samples)))),
            Column::maybe_long("duration_ns", rows.iter().map(|r| r.duration_ns)),
            Column::new("timeline_ratio", real(|r| r.timeline_ratio)),
            Column::new("sm_pct", real(|r| r.sm_pct)),
            Column::new("memory_pct", real(|r| r.memory_pct)),
            Column::new("dram_pct", real(|r| r.dram_pct)),
            Column::new("l2_pct", real(|r| r.l2_pct)),
            Column::new("l1_pct", real(|r| r.l1_pct)),
            Column::new("occupancy_pct", real(|r| r.occupancy_pct)),
            Column::maybe_long("dram_bytes", rows.iter().map(|r| size(r.dram_bytes))),
            Column::maybe_long("flops", rows.iter().map(|r| size(r.flops))),
            Column::new("intensity", real(|r| r.intensity)),
            Column::new("achieved_flops_per_s", real(|r| r.achieved_flops_per_s)),
            Column::maybe_text("bound", rows.iter().map(|r| r.bound.as_deref().map(text))),
            Column::text("reason", rows.iter().map(|r| text(&r.reason))),
        ]
    }
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text)
}

fn not_zero(id: u32) -> Option<i64> {
    Some(i64::from(id)).filter(|id| *id != 0)
}
