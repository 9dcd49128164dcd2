//! Single events as Parquet tables, one folder per run and rank, so that many runs form one data set.
//!
//! `DIR/run=<id>/rank=<n>/{kernels,copies,calls,ranges,counters}.parquet`: DuckDB, Polars, Spark and pandas read `run` and `rank`
//! as columns. A table without rows is written with its columns.
//!
//! The content of the tables. Times are nanoseconds on the clock of the capture; a value that was not recorded is null.

use crate::Bundle;
use crate::export::{ExportError, write_whole};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use roofgap_analyze::{Analysis, NO_CALL, ShortNames, StageIndex, family};
use roofgap_trace::{CallClass, MemoryKind, NameId, OpKind, ProcessId, RangeStyle, ThreadId, Trace};
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows per row group, so that memory does not grow with the table.
const GROUP: usize = 250_000;

/// The part of a data set that one export writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Run name: letters, digits, dots, dashes and underscores.
    pub run: String,
    /// Rank within the run.
    pub rank: u32,
}

/// Returns the columns for some rows of a table.
type MakeColumns<'a> = Box<dyn Fn(Range<usize>) -> Vec<Column> + 'a>;

/// Writes all tables of a run and rank under `dir`. Returns the files in order.
pub fn save(bundle: Bundle<'_>, dir: &Path, partition: &Partition) -> Result<Vec<PathBuf>, ExportError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let run = partition.run.as_str();
    if run.is_empty() || run.chars().all(|c| c == '.') || !run.chars().all(allowed) {
        return Err(ExportError::RunName { name: run.to_owned() });
    }
    let folder = dir.join(format!("run={run}")).join(format!("rank={}", partition.rank));
    fs::create_dir_all(&folder).map_err(|e| ExportError::write(&folder, e))?;
    let empty = roofgap_trace::Trace::default();
    let trace = bundle.trace.unwrap_or(&empty);
    let tables = Tables::new(bundle.analysis, bundle.stages, trace);
    let list: [(&str, usize, MakeColumns<'_>); 5] = [
        ("kernels", tables.kernels.len(), Box::new(|r| tables.kernels(r))),
        ("copies", tables.copies.len(), Box::new(|r| tables.copies(r))),
        ("calls", trace.calls.len(), Box::new(|r| tables.calls(r))),
        ("ranges", trace.ranges.rows.len(), Box::new(|r| tables.ranges(r))),
        ("counters", bundle.analysis.counters.len(), Box::new(|r| tables.counters(r))),
    ];
    let mut files = Vec::new();
    for (name, rows, columns) in list {
        let path = folder.join(format!("{name}.parquet"));
        write_whole(&path, |out| {
            write_table(out, rows, &columns).map_err(|e| match e {
                ParquetError::External(source) => io::Error::other(source),
                other => io::Error::other(other),
            })
        })?;
        files.push(path);
    }
    Ok(files)
}

/// Writes a table of `rows` rows.
fn write_table(out: impl Write + Send, rows: usize, columns: &MakeColumns<'_>) -> ParquetResult<()> {
    let fields = columns(0..0).iter().map(|c| c.declaration().map(Arc::new)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("roofgap ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    for first in (0..rows).step_by(GROUP) {
        let mut group = file.next_row_group()?;
        for column in columns(first..rows.min(first + GROUP)) {
            let Some(mut writer) = group.next_column()? else {
                return Err(ParquetError::General(format!("column {} is not in the schema", column.name)));
            };
            (column.write)(&mut writer)?;
            writer.close()?;
        }
        group.close()?;
    }
    file.close().map(|_| ())
}

/// A value in the type in which it is stored.
trait Value: 'static {
    type Stored: DataType;
    const OPTIONAL: bool = false;

    /// Returns the stored value; `None` for one that was not recorded.
    fn stored(self) -> Option<<Self::Stored as DataType>::T>;
}

macro_rules! stored_as {
    ($($value:ty => $stored:ty),*) => {$(
        impl Value for $value {
            type Stored = $stored;

            fn stored(self) -> Option<$value> {
                Some(self)
            }
        }
    )*};
}

stored_as!(i64 => Int64Type, i32 => Int32Type, f64 => DoubleType, bool => BoolType, ByteArray => ByteArrayType);

impl<V: Value> Value for Option<V> {
    type Stored = V::Stored;
    const OPTIONAL: bool = true;

    fn stored(self) -> Option<<V::Stored as DataType>::T> {
        self.and_then(V::stored)
    }
}

/// Writes the values of a column.
type WriteValues = Box<dyn FnOnce(&mut SerializedColumnWriter<'_>) -> ParquetResult<()>>;

/// A column of some rows.
struct Column {
    name: &'static str,
    physical: Physical,
    optional: bool,
    write: WriteValues,
}

impl Column {
    fn new<V: Value>(name: &'static str, values: impl Iterator<Item = V>) -> Self {
        let stored: Vec<_> = values.map(V::stored).collect();
        let write: WriteValues = Box::new(move |writer| {
            let levels: Vec<i16> = stored.iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<_> = stored.into_iter().flatten().collect();
            let levels = V::OPTIONAL.then_some(levels.as_slice());
            writer.typed::<V::Stored>().write_batch(&values, levels, None).map(|_| ())
        });
        Self { name, physical: V::Stored::get_physical_type(), optional: V::OPTIONAL, write }
    }

    /// Declares the column in the schema of a file.
    fn declaration(&self) -> ParquetResult<Type> {
        let repetition = if self.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let text = self.physical == Physical::BYTE_ARRAY;
        Type::primitive_type_builder(self.name, self.physical)
            .with_repetition(repetition)
            .with_logical_type(text.then_some(LogicalType::String))
            .build()
    }
}

/// Builds the columns of some rows.
struct Columns<R> {
    rows: Vec<R>,
    columns: Vec<Column>,
}

impl<R: Copy> Columns<R> {
    fn of(rows: impl Iterator<Item = R>) -> Self {
        Self { rows: rows.collect(), columns: Vec::new() }
    }

    /// Adds a column.
    fn with<V: Value>(mut self, name: &'static str, value: impl Fn(R) -> V) -> Self {
        self.columns.push(Column::new(name, self.rows.iter().map(|row| value(*row))));
        self
    }
}

/// The sources of all tables.
struct Tables<'a> {
    analysis: &'a Analysis,
    trace: &'a Trace,
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

impl<'a> Tables<'a> {
    fn new(analysis: &'a Analysis, index: &'a StageIndex, trace: &'a Trace) -> Self {
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
        Columns::of(rows.iter().map(|row| *row as usize))
            .with("start_ns", |r| ops.start[r])
            .with("end_ns", |r| ops.end[r])
            .with("duration_ns", |r| ops.duration(r))
            .with("kind", |r| text(ops.kind[r].as_str()))
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
    fn kernels(&self, range: Range<usize>) -> Vec<Column> {
        let ops = &self.trace.ops;
        let known = |r: usize| self.short.get(ops.name[r].index()).cloned().flatten();
        // The shape of an operation without a launch shape is zero.
        let shape = |r: usize| Some(ops.shape_of(r)).filter(|s| s.grid[0] > 0);
        let int = |value: u32| i32::try_from(value).ok();
        self.operations(self.kernels.get(range).unwrap_or(&[]))
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
            })
            .columns
    }

    /// Returns copies and memory sets.
    fn copies(&self, range: Range<usize>) -> Vec<Column> {
        let transfer = |r: usize| self.trace.ops.transfers.get(&(r as u32));
        let memory = |kind: MemoryKind| match kind {
            MemoryKind::Unknown => None,
            MemoryKind::Pageable => Some(text("pageable")),
            MemoryKind::Pinned => Some(text("pinned")),
            MemoryKind::Device => Some(text("device")),
            MemoryKind::Managed => Some(text("managed")),
        };
        self.operations(self.copies.get(range).unwrap_or(&[]))
            .with("bytes", |r| i64::try_from(transfer(r)?.bytes).ok())
            .with("source_memory", |r| memory(transfer(r)?.memory.0))
            .with("target_memory", |r| memory(transfer(r)?.memory.1))
            .columns
    }

    /// Returns CUDA calls.
    fn calls(&self, rows: Range<usize>) -> Vec<Column> {
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
        Columns::of(rows)
            .with("start_ns", |r| calls.start[r])
            .with("end_ns", |r| calls.end[r])
            .with("duration_ns", |r| calls.end[r] - calls.start[r])
            .with("name", |r| self.name(calls.name[r]))
            .with("class", |r| text(class(r)))
            // Known for calls that launch GPU work.
            .with("stage", |r| self.stage_of_call(r))
            .with("pid", |r| self.pid(calls.process[r]))
            .with("tid", |r| self.tid(calls.thread[r]))
            .with("correlation", |r| not_zero(calls.correlation[r]))
            .columns
    }

    /// Returns the ranges of the program.
    fn ranges(&self, rows: Range<usize>) -> Vec<Column> {
        let style = |style: RangeStyle| match style {
            RangeStyle::PushPop => "push_pop",
            RangeStyle::StartEnd => "start_end",
        };
        Columns::of(self.trace.ranges.rows.get(rows).unwrap_or(&[]).iter())
            .with("start_ns", |r| r.start)
            .with("end_ns", |r| r.end)
            .with("duration_ns", |r| r.end - r.start)
            .with("domain", |r| self.name(r.domain))
            .with("name", |r| self.name(r.name))
            .with("style", |r| text(style(r.style)))
            .with("pid", |r| self.pid(r.process))
            .with("tid", |r| self.tid(r.thread))
            .with("open", |r| r.open)
            .columns
    }

    /// Returns hardware counters, a row for each kernel, launch shape and stage.
    fn counters(&self, rows: Range<usize>) -> Vec<Column> {
        let long = |n: u64| i64::try_from(n).ok();
        Columns::of(self.analysis.counters.get(rows).unwrap_or(&[]).iter())
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
            .with("reason", |r| text(&r.reason))
            .columns
    }
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text)
}

fn not_zero(id: u32) -> Option<i64> {
    Some(i64::from(id)).filter(|id| *id != 0)
}
