//! The timeline for the page: a description in JSON and one packed block of columns.

use super::blocks::{self, Block};
use super::lanes::{self, Group, Lane, Lanes, Owner};
use super::meta::{LaneMeta, Meta, NoTimeline, SectionMeta, StageMeta};
use crate::bundle::Bundle;
use crate::html::class;
use crate::html::markup::visible;
use crate::html::pack::Packer;
use crate::view::numbers::{count, time};
use crate::view::table::cut;
use roofgap_analyze::{IdlePart, NO_CALL, ShortNames, Span};
use roofgap_trace::{NameId, Ns, ShapeId, Trace};
use std::collections::BTreeMap;

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
    let mut builder = Builder::new(bundle, trace, first);
    let ranges = |row: u32| trace.ranges.rows.get(row as usize).map_or((first, first), |r| (r.start, r.end));
    builder.group(&kept(lanes::ranges(trace)), ranges, most_ranges, |b, row| {
        let range = trace.ranges.rows.get(row as usize);
        range.map_or(NO_NAME, |r| b.name(r.name, "range"))
    });
    let operators = |row: u32| span(&trace.cpu_ops.start, &trace.cpu_ops.end, row);
    builder.group(&kept(lanes::operators(trace)), operators, most_ranges, |b, row| {
        let name = trace.cpu_ops.name.get(row as usize);
        name.map_or(NO_NAME, |n| b.name(*n, "operator"))
    });
    let calls = |row: u32| span(&trace.calls.start, &trace.calls.end, row);
    builder.group(&kept(lanes::calls(trace)), calls, most, |b, row| {
        let (name, class) = (trace.calls.name.get(row as usize), trace.calls.class.get(row as usize));
        match (name, class.and_then(|c| class::of_call(*c))) {
            (Some(name), Some(class)) => b.name(*name, class),
            _ => NO_NAME,
        }
    });
    let ops = |row: u32| span(&trace.ops.start, &trace.ops.end, row);
    builder.group(&kept(lanes::streams(trace)), ops, most, |b, row| b.op_name(row));
    let gaps = |row: u32| parts.get(row as usize).map_or((first, first), |p| (p.start, p.end));
    builder.group(&kept(lanes::idle(trace, parts)), gaps, most_gaps, |b, row| {
        let part = parts.get(row as usize);
        part.map_or(NO_NAME, |p| b.idle_name(class::of_idle(p.cause)))
    });
    Ok(builder.finish(bundle, last))
}

/// Replaces characters that a page must not show.
fn shown(text: &str) -> String {
    text.chars().map(visible).collect()
}

fn span(start: &[Ns], end: &[Ns], row: u32) -> (Ns, Ns) {
    match (start.get(row as usize), end.get(row as usize)) {
        (Some(start), Some(end)) => (*start, *end),
        _ => (0, 0),
    }
}

struct Builder<'a> {
    trace: &'a Trace,
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
    fn new(bundle: Bundle<'a>, trace: &'a Trace, first: Ns) -> Self {
        Self {
            trace,
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
            let text = shown(self.trace.names.get(id)).chars().map(visible).collect();
            self.names.push((text, class));
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

    fn op_name(&mut self, row: u32) -> u32 {
        let ops = &self.trace.ops;
        let (Some(&id), Some(&kind)) = (ops.name.get(row as usize), ops.kind.get(row as usize)) else {
            return NO_NAME;
        };
        if kind != roofgap_trace::OpKind::Kernel {
            let class = class::of_op(kind, "");
            return self.intern(id, class, |text| cut(text, 120));
        }
        if let Some(&known) = self.kernels.get(id.index()).filter(|k| **k != NO_NAME) {
            return known;
        }
        let class = class::of_op(kind, self.trace.names.get(id));
        let short = self.short_names.get(self.trace.names.get(id));
        let at = self.intern(id, class, |_| cut(&short, 160));
        if let Some(slot) = self.kernels.get_mut(id.index()) {
            *slot = at;
        }
        at
    }

    fn group(
        &mut self,
        lanes: &Lanes,
        span: impl Fn(u32) -> (Ns, Ns),
        budget: usize,
        mut name: impl FnMut(&mut Self, u32) -> u32,
    ) {
        let rows: Vec<&[u32]> = lanes.lanes.iter().map(|l| l.rows.as_slice()).collect();
        let grain = blocks::grain(&rows, &span, budget);
        let mut drawn = 0;
        for lane in &lanes.lanes {
            let mut list: Vec<Block> = Vec::new();
            blocks::blocks(&lane.rows, &span, grain, |block, rows| {
                list.push(block);
                if lanes.group == Group::Calls {
                    let number = (drawn + list.len()) as u32;
                    for &row in rows {
                        if let Some(slot) = self.block_of_call.get_mut(row as usize) {
                            *slot = number;
                        }
                    }
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
        name: &mut impl FnMut(&mut Self, u32) -> u32,
    ) {
        let merged = list.iter().any(|b| b.count > 1);
        let offset = self.packer.offset();
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
            let at = if block.count > 1 { NO_NAME } else { name(self, block.row) };
            self.packer.unsigned(if at == NO_NAME { 0 } else { u64::from(at) + 1 });
        }
        if group == Group::Streams {
            let mut last = 0;
            for block in list {
                let call = self.call_of_op.get(block.row as usize).copied().unwrap_or(NO_CALL);
                let single = block.count == 1 && call != NO_CALL;
                let link = self.block_of_call.get(call as usize).filter(|_| single);
                let link = i64::from(link.copied().unwrap_or(0));
                self.packer.signed(link - last);
                last = link;
            }
            for block in list {
                let shape = self.trace.ops.shape.get(block.row as usize);
                let known = |shape: &&ShapeId| block.count == 1 && shape.index() < MOST_SHAPES;
                let shape = shape.filter(known).map_or(0, |shape| shape.0);
                self.packer.unsigned(u64::from(shape));
            }
        }
        if merged {
            for block in list {
                self.packer.unsigned(block.count);
            }
            for block in list {
                self.packer.unsigned(block.busy.max(0) as u64);
            }
        }
        let transfers = match group {
            Group::Streams => self.transfers(list),
            _ => 0,
        };
        let known = self.owners.iter().position(|owner| *owner == lane.owner);
        let section = known.unwrap_or_else(|| {
            self.owners.push(lane.owner);
            self.owners.len() - 1
        });
        self.lanes.push(LaneMeta {
            group,
            label: shown(&lane.label),
            section,
            count: list.len(),
            offset,
            merged,
            transfers,
        });
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
        let relative = |list: &[Span]| list.iter().map(|s| (s.start - self.first, s.length())).collect();
        let stages = bundle.analysis.stages.iter().enumerate();
        let stages = stages.map(|(at, stage)| StageMeta {
            name: shown(&stage.name),
            at: relative(&bundle.stages.spans(at).instances),
            steps: relative(&bundle.stages.spans(at).steps),
        });
        let stages = stages.collect();
        let named = self.kernels.iter().enumerate().filter(|(_, at)| **at != NO_NAME);
        let sections = self
            .owners
            .iter()
            .map(|owner| SectionMeta { kind: owner.kind(), label: shown(&owner.label(self.trace)) });
        let sections = sections.collect();
        let shapes = self.trace.ops.shapes.iter().take(MOST_SHAPES).map(|s| {
            let ([gx, gy, gz], [bx, by, bz]) = (s.grid, s.block);
            [gx, gy, gz, bx, by, bz, s.registers, s.static_shared, s.dynamic_shared]
        });
        let shapes = shapes.collect();
        let left = self.trace.ops.shapes.len().saturating_sub(MOST_SHAPES);
        if left > 0 {
            self.notes.push(format!("{} more launch shapes are not in this page.", count(left as u64)));
        }
        let kernel_names =
            named.map(|(id, at)| (self.trace.names.get(NameId(id as u32)).to_owned(), *at)).collect();
        Timeline {
            meta: Meta {
                span: last - self.first,
                names: self.names,
                classes: class::all().collect(),
                sections,
                lanes: self.lanes,
                stages,
                shapes,
                notes: self.notes,
            },
            columns: self.packer.base64(),
            kernel_names,
        }
    }
}
