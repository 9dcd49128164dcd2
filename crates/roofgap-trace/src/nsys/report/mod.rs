//! Reports as nsys writes them (`.nsys-rep`, before 2021.4 `.qdrep`), read without nsys.
//!
//! A report is read as the tables of an export, so that one code fills the trace from both. `container` takes the file apart,
//! `messages` knows the fields; `metrics` reads sampled hardware counters.

use self::container::{Container, Contents, ReportFault, Strings};
use self::messages::{Plan, Route, RowKind, TABLES, Unread, route};
use self::metrics::Metrics;
use crate::protobuf::{self, Fields, Malformed, Wire};
use crate::sqlite::{Tables, Value, on_threads};
use crate::{LossKind, ReadError, Trace};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};

mod container;
mod messages;
mod metrics;

#[cfg(test)]
mod tests;

/// A report, sorted into tables.
pub struct Report {
    path: PathBuf,
    version: Option<String>,
    strings: Strings,
    /// The environment of the program, as `NAME=value`.
    variables: Vec<Vec<u8>>,
    metrics: Metrics,
    /// Parts that threads read, in the order of the file.
    parts: Vec<Part>,
}

/// Messages of the tables, each behind its length.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
    count: usize,
}

impl Rows {
    fn push(&mut self, message: &[u8]) {
        let mut length = message.len();
        while length >= 0x80 {
            self.bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        self.bytes.push(length as u8);
        self.bytes.extend_from_slice(message);
        self.count += 1;
    }
}

/// The events of some blocks.
struct Part {
    /// By kind.
    tables: Vec<Rows>,
    generic: Rows,
    unread: BTreeMap<Unread, u64>,
    events: u64,
}

impl Part {
    fn new() -> Self {
        let tables = TABLES.iter().map(|_| Rows::default()).collect();
        Self { tables, generic: Rows::default(), unread: BTreeMap::new(), events: 0 }
    }

    fn push(&mut self, kind: RowKind, message: &[u8]) {
        self.tables[kind as usize].push(message);
    }

    fn read(blocks: &[container::Block<'_>]) -> Result<Self, ReportFault> {
        let mut part = Self::new();
        for block in blocks {
            let bytes = block.unpacked()?;
            for field in Fields::new(Fields::new(&bytes).delimited()?) {
                match field? {
                    (1, Wire::Bytes(event)) => part.add(event)?,
                    (2, Wire::Bytes(event)) => part.generic.push(event),
                    _ => {}
                }
            }
        }
        Ok(part)
    }

    fn add(&mut self, event: &[u8]) -> Result<(), Malformed> {
        self.events += 1;
        match route(event)? {
            (Route::Row(kind), message) => self.push(kind, message),
            (Route::Unread(kind), _) => *self.unread.entry(kind).or_default() += 1,
            (Route::Passed, _) => {}
        }
        Ok(())
    }
}

impl Report {
    /// Reads a report and sorts its events.
    ///
    /// # Errors
    /// Fails when the file is damaged or cut off ([`ReadError::Damaged`]), or has parts in a form that is not read
    /// ([`ReadError::UnknownReport`]).
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::read(path).map_err(|stop| stop.about(path))
    }

    fn read(path: &Path) -> Result<Self, ReportFault> {
        let container = Container::open(path)?;
        let contents = container.contents()?;
        let mut parts = events(&contents)?;
        let mut facts = Part::new();
        contents.threads.iter().for_each(|thread| facts.push(RowKind::ThreadName, thread));
        // Machines, their facts, and in these the GPUs, and their numbers in each process.
        inside(contents.machine, &[1, 2, 7], &mut |gpu| facts.push(RowKind::Gpu, gpu))?;
        inside(contents.machine, &[1, 2, 1], &mut |gpu| facts.push(RowKind::OldGpu, gpu))?;
        inside(contents.machine, &[1, 2, 9], &mut |device| facts.push(RowKind::CudaDevice, device))?;
        parts.push(facts);
        let mut variables = Vec::new();
        inside(&container.options, &[26, 30], &mut |variable| variables.push(variable))?;
        let variables = variables.into_iter().map(variable).collect::<Result<_, _>>()?;
        let version = protobuf::text(&container.about, 6)?;
        let metrics = Metrics::read(contents.header, &contents.strings)?;
        Ok(Self { path: path.to_path_buf(), version, strings: contents.strings, variables, metrics, parts })
    }

    /// Returns the version of nsys, such as `2023.4.4.54`.
    pub fn version(&self) -> Option<String> {
        self.version.as_deref().and_then(|text| text.split('-').next()).map(str::to_owned)
    }

    /// Counts the events that are not read.
    pub fn losses(&self, trace: &mut Trace) {
        for (kind, count) in self.parts.iter().flat_map(|part| &part.unread) {
            trace.losses.add_message(LossKind::EventUnknown, &kind.name(), *count);
        }
    }

    fn damaged(&self, stop: Malformed) -> ReadError {
        ReportFault::from(stop).about(&self.path)
    }

    /// Steps through the functions of all samples, the innermost first.
    fn call_chains(&self, columns: &[&str], mut row: impl FnMut(&[Value<'_>])) -> Result<(), Malformed> {
        let mut values = vec![Value::Null; columns.len()];
        let mut id = 0;
        for part in &self.parts {
            let mut samples = Fields::new(&part.tables[RowKind::Sample as usize].bytes);
            while !samples.is_empty() {
                let mut depth = 0;
                for field in Fields::new(samples.delimited()?) {
                    let (4, Wire::Bytes(function)) = field? else { continue };
                    for (value, name) in values.iter_mut().zip(columns) {
                        let cell = match *name {
                            "id" => Some(id),
                            "stackDepth" => Some(depth),
                            "symbol" => protobuf::number(function, 1)?,
                            "module" => protobuf::number(function, 2)?,
                            "unresolved" => protobuf::number(function, 6)?,
                            _ => None,
                        };
                        *value = cell.map_or(Value::Null, |number| Value::Int(number as i64));
                    }
                    row(&values);
                    depth += 1;
                }
                id += 1;
            }
        }
        Ok(())
    }
}

/// Reads a variable of the environment.
fn variable(message: &[u8]) -> Result<Vec<u8>, Malformed> {
    let (name, value) = (protobuf::bytes(message, 1)?, protobuf::bytes(message, 2)?);
    Ok([name.unwrap_or_default(), b"=", value.unwrap_or_default()].concat())
}

/// Calls a function for all messages at a path of field numbers.
fn inside<'a>(message: &'a [u8], path: &[u64], visit: &mut impl FnMut(&'a [u8])) -> Result<(), Malformed> {
    match path.split_first() {
        Some((first, rest)) => {
            let inner = protobuf::messages(message, *first)?;
            inner.into_iter().try_for_each(|inner| inside(inner, rest, visit))
        }
        None => {
            visit(message);
            Ok(())
        }
    }
}

/// Reads the events in parts, one a processor.
fn events(contents: &Contents<'_>) -> Result<Vec<Part>, ReportFault> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let each = contents.blocks.len().div_ceil(processors).max(1);
    let parts = on_threads(contents.blocks.chunks(each), Part::read)?;
    let events: u64 = parts.iter().map(|part| part.events).sum();
    let generic: u64 = parts.iter().map(|part| part.generic.count as u64).sum();
    if (events, generic) == (contents.events, contents.generic) {
        Ok(parts)
    } else {
        Err(ReportFault::Damaged("it does not have the number of events that its header says"))
    }
}

impl Tables for Report {
    fn has_column(&self, table: &str, column: &str) -> bool {
        Plan::new(table, &[column]).is_some_and(|plan| !plan.columns.is_empty())
    }

    fn each(
        &self,
        table: &str,
        columns: &[&str],
        mut row: impl FnMut(&[Value<'_>]),
    ) -> Result<(), ReadError> {
        match (table, Plan::new(table, columns)) {
            (_, Some(plan)) => {
                let mut first = 0;
                for rows in self.parts.iter().map(|part| &part.tables[plan.table]) {
                    plan.rows(&rows.bytes, first, &mut row).map_err(|stop| self.damaged(stop))?;
                    first += rows.count as u64;
                }
            }
            ("StringIds", _) => {
                for (id, text) in self.strings.iter().enumerate() {
                    row(&[Value::Int(id as i64), Value::Text(text)]);
                }
            }
            ("META_DATA_CAPTURE", _) => {
                for variable in &self.variables {
                    row(&[Value::Text(b"ENVIRONMENT_VARIABLE"), Value::Text(variable)]);
                }
            }
            ("SAMPLING_CALLCHAINS", _) => {
                self.call_chains(columns, row).map_err(|stop| self.damaged(stop))?;
            }
            ("TARGET_INFO_GPU_METRICS", _) => self.metrics.names(row),
            _ => {}
        }
        Ok(())
    }

    fn scan<S: Send>(
        &self,
        table: &str,
        columns: &[&str],
        new: impl Fn(usize) -> S + Sync,
        row: impl Fn(&mut S, &[Value<'_>]) + Sync,
    ) -> Result<Vec<S>, ReadError> {
        let plan = Plan::new(table, columns);
        let count = |part: &Part| plan.as_ref().map_or(0, |plan| part.tables[plan.table].count);
        let all: usize = self.parts.iter().map(count).sum();
        let states = on_threads(self.parts.iter().enumerate(), |(at, part)| {
            let mut state = new(if at == 0 { all } else { count(part) });
            let row = |values: &[Value<'_>]| row(&mut state, values);
            let done = match &plan {
                Some(plan) => plan.rows(&part.tables[plan.table].bytes, 0, row),
                _ if table == "GPU_METRICS" => self.metrics.values(&part.generic.bytes, row),
                _ => Ok(()),
            };
            done.map(|()| state)
        });
        states.map_err(|stop| self.damaged(stop))
    }
}
