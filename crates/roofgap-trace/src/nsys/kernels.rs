//! Kernels: the largest table of an export, read in parts and straight into columns.

use super::columns::{Distinct, append, replace};
use super::identity::Identity;
use super::strings::Strings;
use super::work::COMMON;
use crate::sqlite::{Database, Value};
use crate::{LaunchShape, LossKind, NameId, Ns, OpKind, ReadError, ShapeId, Trace};

const TABLE: &str = "CUPTI_ACTIVITY_KIND_KERNEL";

/// Rows collected by one part of the scan.
#[derive(Default)]
struct Part {
    start: Vec<Ns>,
    end: Vec<Ns>,
    name: Vec<NameId>,
    stream: Vec<u32>,
    correlation: Vec<u32>,
    graph_node: Vec<u64>,
    /// Positions among `origins`.
    origin: Vec<u32>,
    /// Positions among `shapes`.
    shape: Vec<u32>,
    /// Process and device as the export numbers them.
    origins: Distinct<(u64, u32)>,
    shapes: Distinct<LaunchShape>,
    malformed: u64,
    negative: u64,
    unnamed: u64,
}

/// Reads the kernels.
pub fn kernels(
    db: &Database,
    strings: &Strings,
    who: &mut Identity,
    trace: &mut Trace,
) -> Result<(), ReadError> {
    // Where the export does not have the full name, the best of what it has.
    let name = ["demangledName", "shortName", "mangledName"]
        .into_iter()
        .find(|name| db.has_column(TABLE, name))
        .unwrap_or("demangledName");
    let columns: Vec<&str> = COMMON
        .into_iter()
        .chain([
            name,
            "graphNodeId",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "registersPerThread",
            "staticSharedMemory",
            "dynamicSharedMemory",
        ])
        .collect();
    let unnamed = trace.names.intern("");
    let parts = db.scan(TABLE, &columns, Part::with_room, |part, row| part.add(row, strings, unnamed))?;
    for part in parts {
        part.append(who, trace);
    }
    Ok(())
}

impl Part {
    fn with_room(rows: usize) -> Self {
        Self {
            start: Vec::with_capacity(rows),
            end: Vec::with_capacity(rows),
            name: Vec::with_capacity(rows),
            stream: Vec::with_capacity(rows),
            correlation: Vec::with_capacity(rows),
            graph_node: Vec::with_capacity(rows),
            origin: Vec::with_capacity(rows),
            shape: Vec::with_capacity(rows),
            ..Self::default()
        }
    }

    fn add(&mut self, row: &[Value<'_>], strings: &Strings, unnamed: NameId) {
        let small = |i: usize| row[i].int().and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
        let (Some(start), Some(end)) = (row[0].int(), row[1].int()) else {
            self.malformed += 1;
            return;
        };
        if end < start {
            self.negative += 1;
            return;
        }
        let name = row[6].int().and_then(|id| strings.get(id));
        self.unnamed += u64::from(name.is_none());
        let shape = LaunchShape {
            grid: [small(8), small(9), small(10)],
            block: [small(11), small(12), small(13)],
            registers: small(14),
            static_shared: small(15),
            dynamic_shared: small(16),
        };
        self.start.push(start);
        self.end.push(end);
        self.name.push(name.unwrap_or(unnamed));
        self.stream.push(small(3));
        self.correlation.push(row[4].int().map_or(0, |v| v as u32));
        self.graph_node.push(row[7].int().unwrap_or(0) as u64);
        let process = row[5].int().map_or(0, |v| v as u64);
        self.origin.push(self.origins.number((process, small(2)), 0));
        // Launches of a kernel are alike more often than neighbours are.
        let near = name.unwrap_or(unnamed).index();
        self.shape.push(self.shapes.number(shape, near));
    }

    /// Appends the rows to the trace, with ids of its own in place of the export's.
    fn append(self, who: &mut Identity, trace: &mut Trace) {
        trace.losses.add(LossKind::EventMalformed, self.malformed);
        trace.losses.add(LossKind::OpNegative, self.negative);
        trace.losses.add(LossKind::NameMissing, self.unnamed);
        let origins: Vec<_> = self
            .origins
            .values()
            .iter()
            .map(|&(process, device)| (who.process(process, trace), who.device(process, device, trace)))
            .collect();
        let ops = &mut trace.ops;
        let shapes: Vec<ShapeId> =
            self.shapes.values().iter().map(|&shape| ops.intern_shape(shape)).collect();
        let (processes, devices): (Vec<_>, Vec<_>) = origins.into_iter().unzip();
        let rows = self.start.len();
        append(&mut ops.device, self.origin.iter().map(|&at| devices[at as usize]).collect());
        append(&mut ops.process, replace(self.origin, &processes));
        append(&mut ops.shape, replace(self.shape, &shapes));
        append(&mut ops.start, self.start);
        append(&mut ops.end, self.end);
        append(&mut ops.name, self.name);
        append(&mut ops.stream, self.stream);
        append(&mut ops.correlation, self.correlation);
        append(&mut ops.graph_node, self.graph_node);
        ops.kind.resize(ops.kind.len() + rows, OpKind::Kernel);
    }
}
