//! The timeline: its frame on the page, and its data.
//!
//! - `lanes`: assigns ranges, operators, calls and GPU operations to lanes
//! - `data`: builds the packed columns that the page reads, and their description
//!
//! If a group of lanes has more items than a page can draw, neighbours are merged here; every item is drawn or counted in a block. A
//! [`TimelineWindow`] has the items of a span of time one by one, in the lanes of the page, for a page that a server gives.

mod data;
mod lanes;

pub use data::{NoTimeline, timeline};

use crate::Bundle;
use crate::render::html::absent;
use data::{LaneMeta, build, drawn};
use lanes::Group;
use maud::{Markup, html};
use roofgap_analyze::{IdleParts, NO_CALL, idle_parts};
use roofgap_base::text::base64;
use roofgap_trace::{Ns, Trace};
use serde::Serialize;
use std::cell::OnceCell;

/// Renders the frame, or the reason why there is no timeline.
pub fn frame(missing: Option<&str>) -> Markup {
    html! {
        @if let Some(sentence) = missing { (absent(sentence)) }
        div #timeline-view hidden[missing.is_some()] {
            noscript { p.absent { "The timeline needs scripts, which are disabled in this browser." } }
            div #timeline-tools.tools role="toolbar" aria-label="Timeline" {}
            div.frame {
                canvas #minimap aria-hidden="true" {}
                canvas #timeline-axis aria-hidden="true" {}
                div #plot tabindex="0" role="application" aria-describedby="timeline-help" {
                    canvas {}
                    div #tip role="presentation" hidden {}
                }
                div #cursor hidden { span {} }
            }
            div #timeline-span hidden {}
            p #timeline-item.item aria-live="polite" { "Nothing selected." }
            div #timeline-detail hidden {}
            ul #timeline-legend.legend {}
            p #timeline-help.hint {}
            ul #timeline-notes.hint {}
        }
    }
}

/// A window of the timeline, as the page reads it.
#[derive(Debug, Serialize)]
pub struct TimelineWindow {
    /// Name and version of this document.
    pub schema: &'static str,
    /// Start of the window since the first event, ns.
    pub from_ns: Ns,
    /// End of the window since the first event, ns.
    pub to_ns: Ns,
    /// Length of the whole timeline, ns.
    pub span_ns: Ns,
    /// Number of items, a merged block as one.
    pub items: usize,
    /// True if neighbours were merged to keep to the limit.
    pub merged: bool,
    /// Names of the items and the positions of their classes.
    names: Vec<(String, u32)>,
    /// Classes of the names.
    classes: Vec<&'static str>,
    /// Lanes, all those of the page in its order, also empty ones.
    lanes: Vec<LaneMeta>,
    /// Packed columns in base64.
    columns: String,
}

/// Builds a window of the timeline, in ns since the first event. A group of lanes with more than `limit` items is merged. Calls outside
/// of the window that launched something in it are part of it with the ranges around them, and so is what was launched in it and runs later.
///
/// # Errors
/// Fails if the bundle has no timeline.
pub fn timeline_window(
    bundle: Bundle<'_>,
    from_ns: Ns,
    to_ns: Ns,
    limit: usize,
) -> Result<TimelineWindow, NoTimeline> {
    let (trace, (first, last)) = drawn(bundle)?;
    let span_ns = last.saturating_sub(first);
    let (from_ns, to_ns) = (from_ns.clamp(0, span_ns), to_ns.clamp(0, span_ns));
    let parts = OnceCell::new();
    let drawn = parts.get_or_init(|| idle_parts(trace, bundle.stages));
    let calls = &bundle.stages.launches().call_of_op;
    let window = Window::new(trace, drawn, calls, (first + from_ns, first + to_ns));
    let within = (window.from, window.to);
    let built = build(bundle, &parts, [limit; 3], within, |group, row| window.has(group, row))?;
    Ok(TimelineWindow {
        schema: "roofgap.timeline/1",
        from_ns,
        to_ns,
        span_ns,
        items: built.meta.lanes.iter().map(|lane| lane.count).sum(),
        merged: built.meta.lanes.iter().any(|lane| lane.merged),
        names: built.meta.names,
        classes: built.meta.classes,
        lanes: built.meta.lanes,
        columns: base64(&built.columns),
    })
}

/// The rows of a window.
struct Window<'a> {
    trace: &'a Trace,
    parts: &'a IdleParts,
    call_of_op: &'a [u32],
    from: Ns,
    to: Ns,
    /// Starts of the calls that launched something in the window, in order, each with the first end of those from there on.
    launches: Vec<(Ns, Ns)>,
    /// Calls that launched something in the window, by row.
    launched: Vec<bool>,
}

impl<'a> Window<'a> {
    fn new(trace: &'a Trace, parts: &'a IdleParts, call_of_op: &'a [u32], (from, to): (Ns, Ns)) -> Self {
        let mut window = Window {
            trace,
            parts,
            call_of_op,
            from,
            to,
            launches: Vec::new(),
            launched: vec![false; trace.calls.len()],
        };
        // In the order of start, so nothing after the window is looked at.
        let before_end = trace.ops.start.partition_point(|&start| start <= to);
        for row in 0..before_end {
            let call = window.call_of(row);
            if window.reaches((trace.ops.start[row], trace.ops.end[row])) && call < window.launched.len() {
                window.launched[call] = true;
            }
        }
        let calls = (0..trace.calls.len()).filter(|call| window.launched[*call]);
        let mut launches: Vec<(Ns, Ns)> =
            calls.map(|call| (trace.calls.start[call], trace.calls.end[call])).collect();
        launches.sort_unstable();
        let mut first_end = Ns::MAX;
        for (_, end) in launches.iter_mut().rev() {
            first_end = first_end.min(*end);
            *end = first_end;
        }
        window.launches = launches;
        window
    }

    fn has(&self, group: Group, row: u32) -> bool {
        let span = group.span(self.trace, self.parts, row);
        match group {
            Group::Ranges | Group::Operators => self.reaches(span) || self.has_launch(span),
            Group::Calls => self.launched[row as usize] || self.reaches(span),
            Group::Streams => {
                let call = self.call_of(row as usize);
                let launch = |call: usize| Group::Calls.span(self.trace, self.parts, call as u32);
                self.reaches(span) || call < self.launched.len() && self.reaches(launch(call))
            }
            Group::Idle | Group::Stacks | Group::Counters => self.reaches(span),
        }
    }

    /// Tells whether a span reaches into the window.
    fn reaches(&self, (start, end): (Ns, Ns)) -> bool {
        start <= self.to && end >= self.from
    }

    /// Tells whether a span encloses a call that launched something in the window.
    fn has_launch(&self, (start, end): (Ns, Ns)) -> bool {
        let later = self.launches.partition_point(|launch| launch.0 < start);
        self.launches.get(later).is_some_and(|launch| launch.1 <= end)
    }

    /// Returns the row of the call that launched an operation; beyond all rows where it is not known.
    fn call_of(&self, op: usize) -> usize {
        self.call_of_op.get(op).copied().unwrap_or(NO_CALL) as usize
    }
}

/// An item of a lane, or several merged items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Start, ns.
    pub start: Ns,
    /// End, ns.
    pub end: Ns,
    /// Occupied time between start and end, ns.
    pub busy: Ns,
    /// Number of items.
    pub count: u32,
    /// Row of the first item.
    pub row: u32,
}

impl Block {
    /// Returns the block of one item.
    fn of(row: u32, (start, end): (Ns, Ns)) -> Self {
        let end = end.max(start);
        Self { start, end, busy: end - start, count: 1, row }
    }

    /// Adds an item that does not start before the others.
    fn with(self, next: Self) -> Self {
        let busy = self.busy + (next.end - next.start.max(self.end)).max(0);
        Self { end: self.end.max(next.end), busy, count: self.count + 1, ..self }
    }
}

/// The longest merged block, in grains, so that gaps of that size stay visible.
const LONGEST: Ns = 8;

/// Merges the rows of a lane, sorted by start, into blocks until `emit` returns `false`: neighbours shorter than `grain` and less than that
/// apart become one. A grain of 0 merges nothing.
pub fn blocks(rows: &[u32], span: impl Fn(u32) -> (Ns, Ns), grain: Ns, mut emit: impl FnMut(Block) -> bool) {
    let mut open: Option<Block> = None;
    for &row in rows {
        let next = Block::of(row, span(row));
        if let Some(block) = &mut open
            && next.busy < grain
            && block.busy < grain * LONGEST
            && next.start - block.end < grain
            && next.end - block.start <= grain * LONGEST
            && (block.count > 1 || block.end - block.start < grain)
        {
            *block = block.with(next);
            continue;
        }
        if let Some(block) = open.replace(next)
            && !emit(block)
        {
            return;
        }
    }
    if let Some(block) = open {
        emit(block);
    }
}

/// Neighbouring rows of a sample, and the number of such parts of which one is in it.
const SAMPLE: usize = 256;
const SAMPLE_OF: usize = 8;

/// Rows of which a sample is taken. It has at least 16 parts, so that one lane alone does not decide.
const SAMPLED: usize = SAMPLE * SAMPLE_OF * 16;

/// Returns the grains at which all lanes together may have at most `budget` blocks, and the number of blocks that are accepted: the
/// first one, found by a sample of the rows, is approximately the smallest, those after it are coarser.
pub fn grains(
    lanes: &[&[u32]],
    span: impl Fn(u32) -> (Ns, Ns),
    budget: usize,
) -> impl Iterator<Item = (Ns, usize)> {
    let first = first_grain(lanes, span, budget);
    let coarser = |(grain, step): &(Ns, Ns)| Some((grain + step, step * 2));
    let grains = std::iter::successors(Some((first, first / 16 + 1)), coarser);
    grains.map(move |(grain, _)| (grain, if grain < COARSEST { budget } else { usize::MAX }))
}

/// Finds a grain by a sample of the rows.
fn first_grain(lanes: &[&[u32]], span: impl Fn(u32) -> (Ns, Ns), budget: usize) -> Ns {
    let rows = |lanes: &[&[u32]]| lanes.iter().map(|l| l.len()).sum::<usize>();
    if rows(lanes) <= budget {
        return 0;
    }
    let sample: Vec<&[u32]> = if rows(lanes) < SAMPLED {
        lanes.to_vec()
    } else {
        let parts = lanes.iter().flat_map(|rows| rows.chunks(SAMPLE));
        parts.step_by(SAMPLE_OF).collect()
    };
    let share = budget * rows(&sample) / rows(lanes);
    sampled_grain(&sample, span, share.max(1))
}

/// The coarsest grain, ns: 13 days.
const COARSEST: Ns = 1 << 50;

/// Finds approximately the smallest grain at which `lanes` have at most `budget` blocks. A coarser grain hardly ever gives more.
fn sampled_grain(lanes: &[&[u32]], span: impl Fn(u32) -> (Ns, Ns), budget: usize) -> Ns {
    let fits = |grain: Ns| {
        let mut count = 0;
        lanes.iter().all(|rows| {
            blocks(rows, &span, grain, |_| {
                count += 1;
                count <= budget
            });
            count <= budget
        })
    };
    let mut enough: Ns = 1;
    while enough < COARSEST && !fits(enough) {
        enough *= 2;
    }
    // Refine between that power of two and the one below.
    let mut short = enough / 2;
    for _ in 0..4 {
        let middle = (short + enough) / 2;
        if middle > short && fits(middle) {
            enough = middle;
        } else {
            short = middle;
        }
    }
    enough
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the blocks of all lanes at the first grain at which they fit.
    fn merged(lanes: &[&[u32]], span: impl Fn(u32) -> (Ns, Ns), budget: usize) -> (Ns, Vec<Block>) {
        let at = |grain| {
            let mut merged = Vec::new();
            lanes.iter().for_each(|rows| {
                blocks(rows, &span, grain, |block| {
                    merged.push(block);
                    true
                })
            });
            merged
        };
        let tried = grains(lanes, &span, budget).map(|(grain, most)| (grain, most, at(grain)));
        let (grain, _, merged) = tried.into_iter().find(|(_, most, merged)| merged.len() <= *most).unwrap();
        (grain, merged)
    }

    fn collect(spans: &[(Ns, Ns)], grain: Ns) -> Vec<(Ns, Ns, Ns, u32)> {
        let rows: Vec<u32> = (0..spans.len() as u32).collect();
        let mut out = Vec::new();
        blocks(
            &rows,
            |r| spans[r as usize],
            grain,
            |b| {
                out.push((b.start, b.end, b.busy, b.count));
                true
            },
        );
        out
    }

    #[test]
    fn neighbours_are_merged_and_long_ones_stand_alone() {
        let spans = [(0, 2), (3, 5), (6, 50), (51, 52), (53, 54), (90, 91)];
        assert_eq!(collect(&spans, 0).len(), 6);
        assert_eq!(collect(&spans, 4), [(0, 5, 4, 2), (6, 50, 44, 1), (51, 54, 2, 2), (90, 91, 1, 1)]);
    }

    #[test]
    fn a_block_does_not_swallow_the_lane() {
        let spans: Vec<(Ns, Ns)> = (0..1000).map(|i| (i * 3, i * 3 + 1)).collect();
        let merged = collect(&spans, 4);
        assert!(merged.len() > 80, "{}", merged.len());
        assert_eq!(merged.iter().map(|b| b.3).sum::<u32>(), 1000);
        assert_eq!(merged.iter().map(|b| b.2).sum::<Ns>(), 1000);
    }

    #[test]
    fn the_grain_keeps_to_the_budget() {
        let spans: Vec<(Ns, Ns)> = (0..1000).map(|i| (i * 3, i * 3 + 1)).collect();
        let rows: Vec<u32> = (0..1000).collect();
        let span = |r: u32| spans[r as usize];
        assert_eq!(merged(&[&rows], span, 1000).0, 0);
        let (blocks, drawn) = merged(&[&rows], span, 100);
        assert!(blocks > 0 && drawn.len() <= 100);
        // A finer one would not do.
        assert!(collect(&spans, blocks / 2).len() > 100);
    }

    #[test]
    fn a_short_lane_does_not_decide_for_a_long_one() {
        let mut spans: Vec<(Ns, Ns)> = (0..3).map(|i| (i * 10_000, i * 10_000 + 1)).collect();
        spans.extend((0..200).map(|i| (i * 100, i * 100 + 1)));
        let rows: Vec<u32> = (0..203).collect();
        let lanes = [&rows[..3], &rows[3..]];
        let span = |row: u32| spans[row as usize];
        let (blocks, drawn) = merged(&lanes, span, 100);
        assert!(drawn.len() <= 100);
        let counts: Vec<u32> = drawn.iter().map(|block| block.count).collect();
        assert_eq!((&counts[..3], counts[3..].iter().sum::<u32>()), (&[1; 3][..], 200));
        assert!(blocks < 1_000, "{blocks}");
    }

    #[test]
    fn the_grain_keeps_to_the_budget_where_the_sample_differs_from_the_rest() {
        // Rows of the sample are close together, all others far apart.
        let mut at = 0;
        let spans: Vec<(Ns, Ns)> = (0..40_000)
            .map(|row| {
                at += if (row / SAMPLE).is_multiple_of(SAMPLE_OF) { 2 } else { 5_000 };
                (at, at + 1)
            })
            .collect();
        let rows: Vec<u32> = (0..spans.len() as u32).collect();
        let span = |row: u32| spans[row as usize];
        let (blocks, drawn) = merged(&[&rows], span, 4_000);
        assert!(drawn.len() <= 4_000, "{blocks}");
    }
}
