//! The timeline: its frame on the page, and its data.
//!
//! - `lanes`: assigns ranges, operators, calls and GPU operations to lanes
//! - `blocks`: merges neighbours in a lane with too many items
//! - `data`: builds the packed columns that the page reads, and their description
//!
//! A [`TimelineWindow`] has the items of a span of time one by one, in the lanes of the page, for a page that a server gives.

mod blocks;
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
