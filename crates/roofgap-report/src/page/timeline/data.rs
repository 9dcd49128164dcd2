//! The timeline for the page: a description in JSON and one packed block of columns.

use super::blocks::{self, Block};
use super::lanes::{self, Group, Lane, Lanes, Owner};
use crate::bundle::Bundle;
use crate::page::class;
use roofgap_analyze::{IdlePart, NO_CALL, ShortNames, Span, Stage};
use roofgap_base::numbers::{count, time};
use roofgap_base::text::{base64, cut, without_controls};
use roofgap_trace::{NameId, Ns, OpKind, Trace};
use serde::Serialize;
use std::collections::BTreeMap;
use thiserror::Error;

/// The most GPU operations, and the most calls, drawn one by one: 250,000 kernels with their copies and waits.
const MOST: usize = 320_000;

/// The most parts of gaps drawn one by one.
const MOST_GAPS: usize = 320_000;

/// The most ranges, and the most operators of a framework, drawn one by one.
const MOST_RANGES: usize = 60_000;

/// The most distinct launch shapes whose grid and block the page can show.
const MOST_SHAPES: usize = 20_000;

/// Marks a block without a name.
const NO_NAME: u32 = u32::MAX;

/// A timeline for the page.
#[derive(Debug)]
pub struct Timeline {
    /// Description of the columns.
    pub meta: Meta,
    /// Packed columns in base64.
    pub columns: String,
    /// Position of each kernel name among the names of the page.
    pub kernel_names: BTreeMap<String, u32>,
}

/// Builds the timeline of a trace.
pub fn timeline(bundle: Bundle<'_>, parts: &[IdlePart]) -> Result<Timeline, NoTimeline> {
    build(bundle, parts, [MOST_RANGES, MOST, MOST_GAPS], |_, _| true)
}

/// Returns the trace of which a timeline can be drawn, and its span.
pub fn drawn(bundle: Bundle<'_>) -> Result<(&Trace, (Ns, Ns)), NoTimeline> {
    let trace = bundle.trace.ok_or(NoTimeline::NoCapture)?;
    if trace.ops.is_empty() && !trace.kernel_totals.is_empty() {
        return Err(NoTimeline::TotalsOnly);
    }
    let columns = [&trace.ops.start, &trace.calls.start, &trace.cpu_ops.start];
    let has_rows = columns.iter().any(|column| !column.is_empty()) || !trace.ranges.rows.is_empty();
    let span = trace.span().filter(|_| has_rows);
    Ok((trace, span.ok_or(NoTimeline::NoEvents)?))
}

/// Builds the timeline of the rows that `keep` takes from each group. The lanes are those of all rows. `most` has the largest
/// number of ranges and of operators, of calls and of GPU operations, and of parts of gaps.
pub fn build(
    bundle: Bundle<'_>,
    parts: &[IdlePart],
    most: [usize; 3],
    keep: impl Fn(Group, u32) -> bool,
) -> Result<Timeline, NoTimeline> {
    let [most_ranges, most, most_gaps] = most;
    let kept = |mut lanes: Lanes| {
        for lane in &mut lanes.lanes {
            lane.rows.retain(|row| keep(lanes.group, *row));
        }
        lanes
    };
    let (trace, (first, last)) = drawn(bundle)?;
    let mut builder = Builder::new(bundle, trace, parts, first);
    let calls = &trace.calls;
    builder.group(&kept(lanes::ranges(trace)), most_ranges, |b, row| {
        b.name(trace.ranges.rows[row].name, "range")
    });
    builder.group(&kept(lanes::operators(trace)), most_ranges, |b, row| {
        b.name(trace.cpu_ops.name[row], "operator")
    });
    builder.group(&kept(lanes::calls(trace)), most, |b, row| {
        class::of_call(calls.class[row]).map_or(NO_NAME, |class| b.name(calls.name[row], class))
    });
    builder.group(&kept(lanes::streams(trace)), most, Builder::op_name);
    builder.group(&kept(lanes::idle(trace, parts)), most_gaps, |b, row| {
        b.idle_name(class::of_idle(parts[row].cause))
    });
    Ok(builder.finish(bundle, last))
}

struct Builder<'a> {
    trace: &'a Trace,
    parts: &'a [IdlePart],
    first: Ns,
    packer: Packer,
    lanes: Vec<LaneMeta>,
    owners: Vec<Owner>,
    names: Vec<(String, u32)>,
    known: BTreeMap<(NameId, u32), u32>,
    /// Position of a kernel's name, by name id: a fast path, as every operation needs it.
    kernels: Vec<u32>,
    /// Number of the block of a call plus one, by row of the calls.
    block_of_call: Vec<u32>,
    call_of_op: &'a [u32],
    short_names: ShortNames,
    notes: Vec<String>,
}

impl<'a> Builder<'a> {
    fn new(bundle: Bundle<'a>, trace: &'a Trace, parts: &'a [IdlePart], first: Ns) -> Self {
        Self {
            trace,
            parts,
            first,
            packer: Packer::default(),
            lanes: Vec::new(),
            owners: Vec::new(),
            names: Vec::new(),
            known: BTreeMap::new(),
            kernels: vec![NO_NAME; trace.names.len()],
            block_of_call: vec![0; trace.calls.len()],
            call_of_op: &bundle.stages.launches().call_of_op,
            short_names: ShortNames::of(bundle.analysis),
            notes: Vec::new(),
        }
    }

    /// Returns the position of a name in the page.
    fn name(&mut self, id: NameId, class: &'static str) -> u32 {
        self.intern(id, class::position(class), |text| cut(text, 120))
    }

    fn intern(&mut self, id: NameId, class: u32, shown: impl Fn(&str) -> String) -> u32 {
        let next = self.names.len() as u32;
        let at = *self.known.entry((id, class)).or_insert(next);
        if at == next {
            self.names.push((without_controls(&shown(self.trace.names.get(id))), class));
        }
        at
    }

    /// Returns the position of the name of a cause, which is also its class.
    fn idle_name(&mut self, cause: &'static str) -> u32 {
        let class = class::position(cause);
        let known = self.names.iter().rposition(|name| name.1 == class);
        let at = known.unwrap_or_else(|| {
            self.names.push((cause.replace('-', ": "), class));
            self.names.len() - 1
        });
        at as u32
    }

    fn op_name(&mut self, row: usize) -> u32 {
        let (id, kind) = (self.trace.ops.name[row], self.trace.ops.kind[row]);
        if kind != OpKind::Kernel {
            return self.intern(id, class::of_op(kind, ""), |text| cut(text, 120));
        }
        if self.kernels[id.index()] == NO_NAME {
            let name = self.trace.names.get(id);
            let short = self.short_names.get(name);
            self.kernels[id.index()] = self.intern(id, class::of_op(kind, name), |_| cut(&short, 160));
        }
        self.kernels[id.index()]
    }

    fn group(&mut self, lanes: &Lanes, budget: usize, mut name: impl FnMut(&mut Self, usize) -> u32) {
        let (trace, parts) = (self.trace, self.parts);
        let span = |row: u32| lanes.group.span(trace, parts, row);
        let rows: Vec<&[u32]> = lanes.lanes.iter().map(|l| l.rows.as_slice()).collect();
        let grain = blocks::grain(&rows, span, budget);
        let mut drawn = 0;
        for lane in &lanes.lanes {
            let mut list: Vec<Block> = Vec::new();
            blocks::blocks(&lane.rows, span, grain, |block, rows| {
                list.push(block);
                if lanes.group == Group::Calls {
                    let number = (drawn + list.len()) as u32;
                    rows.iter().for_each(|row| self.block_of_call[*row as usize] = number);
                }
            });
            drawn += list.len();
            self.lane(lanes.group, lane, &list, &mut name);
        }
        self.note(lanes, grain, drawn);
    }

    /// Packs the columns of a lane: starts, lengths, names, links of operations to calls and their launch shapes, then counts and
    /// occupied time, then the sizes of copies and sets.
    fn lane(
        &mut self,
        group: Group,
        lane: &Lane,
        list: &[Block],
        name: &mut impl FnMut(&mut Self, usize) -> u32,
    ) {
        let merged = list.iter().any(|b| b.count > 1);
        let offset = self.packer.bytes.len();
        let mut last = self.first;
        for block in list {
            self.packer.unsigned((block.start - last).max(0) as u64);
            last = block.start;
        }
        for block in list {
            self.packer.unsigned((block.end - block.start).max(0) as u64);
        }
        for block in list {
            // The position plus one; 0 for a block of several items.
            let at = if block.count > 1 { NO_NAME } else { name(self, block.row as usize) };
            self.packer.unsigned(if at == NO_NAME { 0 } else { u64::from(at) + 1 });
        }
        if group == Group::Streams {
            self.links(list);
        }
        if merged {
            list.iter().for_each(|block| self.packer.unsigned(block.count));
            list.iter().for_each(|block| self.packer.unsigned(block.busy.max(0) as u64));
        }
        let transfers = if group == Group::Streams { self.transfers(list) } else { 0 };
        let known = self.owners.iter().position(|owner| *owner == lane.owner);
        let section = known.unwrap_or_else(|| {
            self.owners.push(lane.owner);
            self.owners.len() - 1
        });
        self.lanes.push(LaneMeta {
            group,
            label: without_controls(&lane.label),
            section,
            count: list.len(),
            offset,
            merged,
            transfers,
        });
    }

    /// Packs the calls that launched operations, and the launch shapes of these.
    fn links(&mut self, list: &[Block]) {
        let mut last = 0;
        for block in list {
            let call = self.call_of_op.get(block.row as usize).copied().unwrap_or(NO_CALL);
            let link = self.block_of_call.get(call as usize).filter(|_| block.count == 1);
            let link = i64::from(link.copied().unwrap_or(0));
            self.packer.signed(link - last);
            last = link;
        }
        for block in list {
            let shape = self.trace.ops.shape[block.row as usize];
            let known = block.count == 1 && shape.index() < MOST_SHAPES;
            self.packer.unsigned(if known { shape.0.into() } else { 0 });
        }
    }

    /// Packs the positions and sizes of copies and sets, and returns their number.
    fn transfers(&mut self, list: &[Block]) -> usize {
        let (mut count, mut last) = (0, 0);
        for (at, block) in list.iter().enumerate().filter(|(_, block)| block.count == 1) {
            if let Some(transfer) = self.trace.ops.transfers.get(&block.row) {
                self.packer.unsigned((at - last) as u64);
                self.packer.unsigned(transfer.bytes);
                (count, last) = (count + 1, at);
            }
        }
        count
    }

    fn note(&mut self, lanes: &Lanes, grain: Ns, drawn: usize) {
        let items = lanes.group.items();
        if grain > 0 {
            let all: usize = lanes.lanes.iter().map(|l| l.rows.len()).sum();
            self.notes.push(format!(
                "{} {items} are drawn as {} blocks: neighbours shorter than {} and less than that apart are merged into \
                 one block that shows their number.",
                count(all as u64),
                count(drawn as u64),
                time(grain)
            ));
        }
        if lanes.left_out_rows > 0 {
            self.notes.push(format!(
                "{} more lanes with {} {items} are not drawn; every number of this page includes them.",
                count(lanes.left_out_lanes as u64),
                count(lanes.left_out_rows as u64)
            ));
        }
    }

    fn finish(mut self, bundle: Bundle<'_>, last: Ns) -> Timeline {
        let trace = self.trace;
        let relative = |list: &[Span]| list.iter().map(|s| (s.start - self.first, s.length())).collect();
        let stage = |(at, stage): (usize, &Stage)| StageMeta {
            name: without_controls(&stage.name),
            at: relative(&bundle.stages.spans(at).instances),
            steps: relative(&bundle.stages.spans(at).steps),
        };
        let section =
            |owner: &Owner| SectionMeta { kind: owner.kind(), label: without_controls(&owner.label(trace)) };
        let shapes = trace.ops.shapes.iter().take(MOST_SHAPES).map(|s| {
            let ([gx, gy, gz], [bx, by, bz]) = (s.grid, s.block);
            [gx, gy, gz, bx, by, bz, s.registers, s.static_shared, s.dynamic_shared]
        });
        let left = trace.ops.shapes.len().saturating_sub(MOST_SHAPES);
        if left > 0 {
            self.notes.push(format!("{} more launch shapes are not in this page.", count(left as u64)));
        }
        let named = self.kernels.iter().enumerate().filter(|(_, at)| **at != NO_NAME);
        Timeline {
            kernel_names: named
                .map(|(id, at)| (trace.names.get(NameId(id as u32)).to_owned(), *at))
                .collect(),
            columns: base64(&self.packer.bytes),
            meta: Meta {
                span: last - self.first,
                stages: bundle.analysis.stages.iter().enumerate().map(stage).collect(),
                sections: self.owners.iter().map(section).collect(),
                shapes: shapes.collect(),
                names: self.names,
                classes: class::all().collect(),
                lanes: self.lanes,
                notes: self.notes,
            },
        }
    }
}

/// The reason why inputs have no timeline.
#[derive(Debug, Error)]
pub enum NoTimeline {
    /// Only the analysis was kept.
    #[error("the capture was not kept")]
    NoCapture,
    /// A table of totals.
    #[error("a summary table holds totals, not single operations")]
    TotalsOnly,
    /// Nothing with a time.
    #[error("nothing in the inputs has a time")]
    NoEvents,
}

/// The description of the columns.
#[derive(Debug, Serialize)]
pub struct Meta {
    /// Length of the timeline, ns.
    pub span: Ns,
    /// Names and the positions of their classes.
    pub names: Vec<(String, u32)>,
    pub classes: Vec<&'static str>,
    /// GPUs and threads that own lanes.
    pub sections: Vec<SectionMeta>,
    pub lanes: Vec<LaneMeta>,
    pub stages: Vec<StageMeta>,
    /// Launch shapes: grid, block, registers of a thread, static and dynamic shared memory of a block in bytes.
    pub shapes: Vec<[u32; 9]>,
    /// Sentences on items that are merged or not drawn.
    pub notes: Vec<String>,
}

/// A GPU or a thread.
#[derive(Debug, Serialize)]
pub struct SectionMeta {
    /// `gpu` or `thread`.
    pub kind: &'static str,
    pub label: String,
}

/// A lane of the timeline.
#[derive(Debug, Serialize)]
pub struct LaneMeta {
    pub group: Group,
    pub label: String,
    /// Position of the GPU or thread.
    pub section: usize,
    pub count: usize,
    pub offset: usize,
    /// Columns for the number of items and the occupied time of a block follow.
    pub merged: bool,
    /// Number of pairs of position and bytes at the end: copies and sets.
    pub transfers: usize,
}

/// The spans of a stage.
#[derive(Debug, Serialize)]
pub struct StageMeta {
    pub name: String,
    /// Starts and lengths of the instances, ns.
    pub at: Vec<(Ns, Ns)>,
    /// Starts and lengths of the steps, ns.
    pub steps: Vec<(Ns, Ns)>,
}

/// Numbers as variable-length integers: seven bits per byte, the top bit set on all but the last byte of each.
#[derive(Debug, Default)]
struct Packer {
    bytes: Vec<u8>,
}

impl Packer {
    /// Appends an unsigned number.
    fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Appends a signed number in zigzag encoding.
    fn signed(&mut self, value: i64) {
        self.unsigned(((value << 1) ^ (value >> 63)) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_their_bytes() {
        let mut packer = Packer::default();
        packer.unsigned(0);
        packer.unsigned(127);
        packer.unsigned(300);
        packer.signed(-1);
        packer.signed(1);
        assert_eq!(packer.bytes, [0, 127, 0xac, 2, 1, 2]);
    }
}
