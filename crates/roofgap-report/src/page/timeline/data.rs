//! The timeline for the page: a description in JSON and one packed block of columns.

use super::lanes::{self, Curve, Group, Lane, Lanes, Owner};
use super::{Block, blocks, grains};
use crate::Bundle;
use crate::page::class;
use roofgap_analyze::{IdleCause, IdleParts, NO_CALL, ShortNames, Span, Stage, StageIndex, idle_parts};
use roofgap_base::numbers::{count, time};
use roofgap_base::text::{cut, without_controls};
use roofgap_trace::{CallClass, NameId, Ns, OpKind, StackId, Trace};
use serde::Serialize;
use std::cell::OnceCell;
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

/// Most functions of a stack that are shown.
const MOST_FRAMES: usize = 24;

/// Marks a block without a name.
const NO_NAME: u32 = u32::MAX;

/// A timeline for the page.
#[derive(Debug)]
pub struct Timeline {
    /// Description of the columns.
    pub meta: Meta,
    /// Start of the timeline, ns on the clock of the trace.
    first: Ns,
    /// Packed columns.
    pub columns: Vec<u8>,
    /// Position of each kernel name among the names of the page.
    pub kernel_names: BTreeMap<String, u32>,
}

/// Builds the timeline of a trace.
pub fn timeline(bundle: Bundle<'_>, parts: &OnceCell<IdleParts>) -> Result<Timeline, NoTimeline> {
    let mut timeline = build(bundle, parts, [MOST_RANGES, MOST, MOST_GAPS], (Ns::MIN, Ns::MAX), |_, _| true)?;
    let trace = bundle.trace.ok_or(NoTimeline::NoCapture)?;
    for (at, stage) in timeline.meta.stages.iter_mut().enumerate() {
        let spans =
            ops_of_longest(trace, bundle.stages, at).map(|op| (trace.ops.start[op], trace.ops.end[op]));
        let all = spans.reduce(|all, span| (all.0.min(span.0), all.1.max(span.1)));
        stage.gpu = all.map(|(start, end)| (start - timeline.first, end - start));
    }
    Ok(timeline)
}

/// Returns the GPU operations of the longest instance of a stage.
fn ops_of_longest(trace: &Trace, stages: &StageIndex, stage: usize) -> impl Iterator<Item = usize> {
    let spans = stages.spans(stage).instances.iter().enumerate();
    let longest = spans.max_by_key(|(_, span)| span.length()).map(|(at, _)| at);
    let is_in_longest = move |op: &usize| longest.is_some() && stages.instance_of(stage, *op) == longest;
    (0..trace.ops.len()).filter(is_in_longest)
}

/// Returns the trace of which a timeline can be drawn, and its span.
pub fn drawn(bundle: Bundle<'_>) -> Result<(&Trace, (Ns, Ns)), NoTimeline> {
    let trace = bundle.trace.ok_or(NoTimeline::NoCapture)?;
    if trace.ops.is_empty() && !trace.kernel_totals.is_empty() {
        return Err(NoTimeline::TotalsOnly);
    }
    let columns = [&trace.ops.start, &trace.calls.start, &trace.cpu_ops.start];
    let has_rows = columns.iter().any(|column| !column.is_empty()) || !trace.ranges.rows.is_empty();
    let span = bundle.stages.span().or_else(|| trace.span()).filter(|_| has_rows);
    Ok((trace, span.ok_or(NoTimeline::NoEvents)?))
}

/// Builds the timeline of the rows that `keep` takes from each group. The lanes are those of all rows. `most` has the largest
/// number of ranges and of operators, of calls and of GPU operations, and of parts of gaps. Curves are those `within` two times. The
/// parts of gaps, which are many, are made when they are drawn, if they are not there.
pub fn build(
    bundle: Bundle<'_>,
    parts: &OnceCell<IdleParts>,
    most: [usize; 3],
    within: (Ns, Ns),
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
    let mut builder = Builder::new(bundle, trace, (first, last));
    let calls = &trace.calls;
    let (ranges, operators) = (&trace.ranges.rows, &trace.cpu_ops);
    let class = class::position("range");
    let none = IdleParts::default();
    let span = |row| Group::Ranges.span(trace, &none, row);
    builder.group(&kept(lanes::ranges(trace)), most_ranges, span, |b, row| b.name(ranges[row].name, class));
    let class = class::position("operator");
    let span = |row| Group::Operators.span(trace, &none, row);
    builder.group(&kept(lanes::operators(trace)), most_ranges, span, |b, row| {
        b.name(operators.name[row], class)
    });
    let classes = CallClass::ALL.map(|class| class::of_call(class).map(class::position));
    let span = |row| Group::Calls.span(trace, &none, row);
    builder.group(&kept(lanes::calls(trace)), most, span, |b, row| {
        classes[calls.class[row] as usize].map_or(NO_NAME, |class| b.name(calls.name[row], class))
    });
    let samples = &trace.stacks.samples;
    let span = |row| Group::Stacks.span(trace, &none, row);
    builder.group(&kept(lanes::stacks(trace)), most_ranges, span, |b, row| b.stack_name(samples[row].stack));
    let span = |row| Group::Streams.span(trace, &none, row);
    builder.group(&kept(lanes::streams(trace)), most, span, Builder::op_name);
    lanes::curves(trace).into_iter().for_each(|curve| builder.curve(&curve, most_ranges, within));
    builder.block_of_call = Vec::new();
    let causes = IdleCause::ALL.map(|cause| class::position(class::of_idle(cause)));
    let parts = parts.get_or_init(|| idle_parts(trace, bundle.stages));
    let span = |row| Group::Idle.span(trace, parts, row);
    builder.group(&kept(lanes::idle(trace, parts)), most_gaps, span, |b, row| {
        let cause = parts.of[row].1;
        b.idle_name(class::of_idle(cause), causes[cause as usize])
    });
    Ok(builder.finish(bundle))
}

struct Builder<'a> {
    trace: &'a Trace,
    first: Ns,
    last: Ns,
    packer: Packer,
    lanes: Vec<LaneMeta>,
    owners: Vec<Owner>,
    names: Vec<(String, u32)>,
    known: BTreeMap<(NameId, u32), u32>,
    /// Position of the functions of a stack.
    stacks: BTreeMap<StackId, u32>,
    /// Position of a kernel's name, by name id: a fast path, as every operation needs it.
    kernels: Vec<u32>,
    /// The class of any other name that was looked up last, and its position, by name id.
    recent: Vec<(u32, u32)>,
    /// Number of the block of a call plus one, by row of the calls.
    block_of_call: Vec<u32>,
    call_of_op: &'a [u32],
    short_names: ShortNames,
    notes: Vec<String>,
}

impl<'a> Builder<'a> {
    fn new(bundle: Bundle<'a>, trace: &'a Trace, (first, last): (Ns, Ns)) -> Self {
        Self {
            trace,
            first,
            last,
            packer: Packer::default(),
            lanes: Vec::new(),
            owners: Vec::new(),
            names: Vec::new(),
            known: BTreeMap::new(),
            stacks: BTreeMap::new(),
            kernels: vec![NO_NAME; trace.names.len()],
            recent: vec![(NO_NAME, NO_NAME); trace.names.len()],
            block_of_call: vec![0; trace.calls.len()],
            call_of_op: &bundle.stages.launches().call_of_op,
            short_names: ShortNames::of(bundle.analysis),
            notes: Vec::new(),
        }
    }

    /// Returns the position of a name in the page.
    fn name(&mut self, id: NameId, class: u32) -> u32 {
        if self.recent[id.index()].0 != class {
            self.recent[id.index()] = (class, self.intern(id, class, |text| cut(text, 120)));
        }
        self.recent[id.index()].1
    }

    fn intern(&mut self, id: NameId, class: u32, shown: impl Fn(&str) -> String) -> u32 {
        let next = self.names.len() as u32;
        let at = *self.known.entry((id, class)).or_insert(next);
        if at == next {
            self.names.push((without_controls(&shown(self.trace.names.get(id))), class));
        }
        at
    }

    /// Returns the position of the functions of a stack, the innermost first.
    fn stack_name(&mut self, stack: StackId) -> u32 {
        let next = self.names.len() as u32;
        let at = *self.stacks.entry(stack).or_insert(next);
        if at == next {
            let (names, stacks) = (&self.trace.names, &self.trace.stacks);
            let upwards = |stack: &StackId| Some(stacks.stacks().get(stack.index().checked_sub(1)?)?.0);
            let function = |stack: StackId| {
                let frame = stacks.frame(stacks.stacks().get(stack.index().checked_sub(1)?)?.1);
                let (function, file) = (names.get(frame.function), names.get(frame.file));
                let file = file.rsplit('/').next().filter(|_| frame.line > 0);
                Some(file.map_or(function.to_owned(), |file| format!("{function} ({file}:{})", frame.line)))
            };
            let functions: Vec<String> =
                std::iter::successors(Some(stack), upwards).take(MOST_FRAMES).map_while(function).collect();
            let text = without_controls(&cut(&functions.join(" ← "), 600));
            self.names.push((text, class::position("stack")));
        }
        at
    }

    /// Draws a curve: neighbouring samples as blocks that are filled by their share of the peak.
    fn curve(&mut self, curve: &Curve, most: usize, (from, to): (Ns, Ns)) {
        let points: Vec<(Ns, Ns, Ns)> =
            curve.points.iter().filter(|point| point.0 <= to && point.1 >= from).copied().collect();
        let many = points.len().div_ceil(most).max(1);
        let name = self.names.len() as u64 + 1;
        self.names.push((curve.lane.label.clone(), class::position("counter")));
        let mut columns = Columns { may_merge: true, ..Columns::default() };
        columns.begin(self.first);
        // Samples come in bursts, with pauses between them.
        let bursts = points.chunk_by(|a, b| b.0 - a.1 < a.1 - a.0);
        for near in bursts.flat_map(|burst| burst.chunks(many)) {
            let (start, end) = (near[0].0, near[near.len() - 1].1);
            let busy = near.iter().map(|point| point.2).sum();
            // The page fills what has several items by their time.
            columns.add(Block { start, end, busy, count: near.len().max(2) as u32, row: 0 });
            columns.names.unsigned(name);
        }
        self.lane(Group::Counters, &curve.lane, &columns);
    }

    /// Returns the position of the name of a cause, which is also its class.
    fn idle_name(&mut self, cause: &'static str, class: u32) -> u32 {
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
            return self.name(id, class::position(class::of_op(kind, "")));
        }
        if self.kernels[id.index()] == NO_NAME {
            let name = self.trace.names.get(id);
            let short = self.short_names.get(name);
            let class = class::position(class::of_op(kind, name));
            self.kernels[id.index()] = self.intern(id, class, |_| cut(&short, 160));
        }
        self.kernels[id.index()]
    }

    /// Draws the lanes of a group. `name` has the position of the name of a row.
    fn group(
        &mut self,
        lanes: &Lanes,
        budget: usize,
        span: impl Fn(u32) -> (Ns, Ns) + Copy,
        mut name: impl FnMut(&mut Self, usize) -> u32,
    ) {
        let rows: Vec<&[u32]> = lanes.lanes.iter().map(|l| l.rows.as_slice()).collect();
        let before = (self.names.len() as u32, self.packer.bytes.len(), self.lanes.len(), self.owners.len());
        for (grain, most) in grains(&rows, span, budget) {
            if let Some(drawn) = self.blocks(lanes, (grain, most), span, &mut name) {
                return self.note(lanes, grain, drawn);
            }
            // A coarser grain has other names.
            let (names, bytes, lanes, owners) = before;
            self.names.truncate(names as usize);
            self.packer.bytes.truncate(bytes);
            self.lanes.truncate(lanes);
            self.owners.truncate(owners);
            self.known.retain(|_, at| *at < names);
            self.stacks.retain(|_, at| *at < names);
            self.kernels.iter_mut().filter(|at| **at >= names).for_each(|at| *at = NO_NAME);
            self.recent
                .iter_mut()
                .filter(|(_, at)| *at >= names)
                .for_each(|known| *known = (NO_NAME, NO_NAME));
        }
    }

    /// Draws the blocks of the lanes of a group and returns their number; `None` if they are too many.
    fn blocks(
        &mut self,
        lanes: &Lanes,
        (grain, most): (Ns, usize),
        span: impl Fn(u32) -> (Ns, Ns) + Copy,
        name: &mut impl FnMut(&mut Self, usize) -> u32,
    ) -> Option<usize> {
        let mut drawn = 0;
        let mut columns = Columns { may_merge: grain > 0, ..Columns::default() };
        for lane in &lanes.lanes {
            columns.begin(self.first);
            let mut rest = &lane.rows[..];
            blocks(&lane.rows, span, grain, |block| {
                columns.add(block);
                // The position plus one; 0 for a block of several items.
                let at = if block.count > 1 { NO_NAME } else { name(self, block.row as usize) };
                columns.names.unsigned(if at == NO_NAME { 0 } else { u64::from(at) + 1 });
                match lanes.group {
                    Group::Calls => {
                        let number = (drawn + columns.count) as u32;
                        let block_rows = rest.split_off(..block.count as usize).unwrap_or_default();
                        block_rows.iter().for_each(|row| self.block_of_call[*row as usize] = number);
                    }
                    Group::Streams => self.link(block, &mut columns),
                    _ => {}
                }
                drawn + columns.count <= most
            });
            drawn += columns.count;
            if drawn > most {
                return None;
            }
            self.lane(lanes.group, lane, &columns);
        }
        Some(drawn)
    }

    /// Appends the columns of a lane: starts, lengths, names, links of operations to calls and their launch shapes, then counts and
    /// occupied time, then the sizes of copies and sets.
    fn lane(&mut self, group: Group, lane: &Lane, columns: &Columns) {
        let offset = self.packer.bytes.len();
        let Columns { starts, lengths, names, links, shapes, counts, busy, sizes, .. } = columns;
        for column in [starts, lengths, names, links, shapes] {
            self.packer.bytes.extend_from_slice(&column.bytes);
        }
        for column in [counts, busy].into_iter().filter(|_| columns.merged) {
            self.packer.bytes.extend_from_slice(&column.bytes);
        }
        self.packer.bytes.extend_from_slice(&sizes.bytes);
        let known = self.owners.iter().position(|owner| *owner == lane.owner);
        let section = known.unwrap_or_else(|| {
            self.owners.push(lane.owner);
            self.owners.len() - 1
        });
        self.lanes.push(LaneMeta {
            group,
            label: without_controls(&lane.label),
            section,
            count: columns.count,
            offset,
            merged: columns.merged,
            transfers: columns.transfers,
        });
    }

    /// Packs the call that launched an operation, its launch shape, and the position and size of a copy or set.
    fn link(&self, block: Block, columns: &mut Columns) {
        let alone = block.count == 1;
        let call = self.call_of_op.get(block.row as usize).copied().unwrap_or(NO_CALL);
        let link = self.block_of_call.get(call as usize).filter(|_| alone);
        let link = i64::from(link.copied().unwrap_or(0));
        columns.links.signed(link - columns.last_link);
        columns.last_link = link;
        let shape = self.trace.ops.shape[block.row as usize];
        let known = alone && shape.index() < MOST_SHAPES;
        columns.shapes.unsigned(if known { shape.0.into() } else { 0 });
        if let Some(transfer) = self.trace.ops.transfers.get(&block.row).filter(|_| alone) {
            let at = columns.count - 1;
            columns.sizes.unsigned((at - columns.last_transfer) as u64);
            columns.sizes.unsigned(transfer.bytes);
            columns.transfers += 1;
            columns.last_transfer = at;
        }
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

    fn finish(mut self, bundle: Bundle<'_>) -> Timeline {
        let trace = self.trace;
        let relative = |list: &[Span]| list.iter().map(|s| (s.start - self.first, s.length())).collect();
        let stage = |(at, stage): (usize, &Stage)| StageMeta {
            name: without_controls(&stage.name),
            at: relative(&bundle.stages.spans(at).instances),
            steps: relative(&bundle.stages.spans(at).steps),
            gpu: None,
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
            first: self.first,
            columns: self.packer.bytes,
            meta: Meta {
                span: self.last - self.first,
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
    /// Start and length of the GPU work of the longest instance, ns.
    pub gpu: Option<(Ns, Ns)>,
}

/// The columns of a lane, while its blocks are found.
#[derive(Debug, Default)]
struct Columns {
    count: usize,
    /// True if a block can have several items, and if one has.
    may_merge: bool,
    merged: bool,
    last_start: Ns,
    last_link: i64,
    last_transfer: usize,
    /// Number of copies and sets.
    transfers: usize,
    starts: Packer,
    lengths: Packer,
    names: Packer,
    links: Packer,
    shapes: Packer,
    counts: Packer,
    busy: Packer,
    sizes: Packer,
}

impl Columns {
    /// Empties the columns and keeps their room. Starts are told from `first` on.
    fn begin(&mut self, first: Ns) {
        let Self { starts, lengths, names, links, shapes, counts, busy, sizes, .. } = self;
        for column in [starts, lengths, names, links, shapes, counts, busy, sizes] {
            column.bytes.clear();
        }
        (self.count, self.merged, self.transfers) = (0, false, 0);
        (self.last_start, self.last_link, self.last_transfer) = (first, 0, 0);
    }

    /// Packs what every block has.
    fn add(&mut self, block: Block) {
        self.starts.unsigned((block.start - self.last_start).max(0) as u64);
        self.last_start = block.start;
        self.lengths.unsigned((block.end - block.start).max(0) as u64);
        if self.may_merge {
            self.counts.unsigned(block.count.into());
            self.busy.unsigned(block.busy.max(0) as u64);
            self.merged |= block.count > 1;
        }
        self.count += 1;
    }
}

/// Numbers as variable-length integers: seven bits per byte, the top bit set on all but the last byte of each.
#[derive(Debug, Default)]
struct Packer {
    bytes: Vec<u8>,
}

impl Packer {
    /// Appends an unsigned number.
    fn unsigned(&mut self, mut value: u64) {
        while value >= 1 << 14 {
            self.bytes.extend_from_slice(&[value as u8 | 0x80, (value >> 7) as u8 | 0x80]);
            value >>= 14;
        }
        if value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
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
