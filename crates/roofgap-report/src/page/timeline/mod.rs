//! The timeline: its frame on the page, and its data.
//!
//! - `lanes`: assigns ranges, operators, calls and GPU operations to lanes
//! - `blocks`: merges neighbours in a lane with too many items
//! - `data`: builds the packed columns that the page reads, and their description
//! - `window`: the items of a span of time one by one, for a page that a server gives

mod blocks;
mod data;
mod lanes;
mod window;

pub use data::{NoTimeline, timeline};
pub use window::{TimelineWindow, timeline_window};

use crate::render::html::absent;
use maud::{Markup, html};

/// Keys of the timeline and their effects.
const KEYS: [(&str, &str); 15] = [
    ("← →", "move"),
    ("+ −", "zoom in, zoom out"),
    ("0", "show the whole run"),
    ("1", "show the stages"),
    ("N P", "next and previous item of the lane"),
    ("↑ ↓", "lane above, lane below"),
    ("Enter", "from a launch to its kernel, and back"),
    ("F", "zoom to the selected item"),
    ("S", "totals of the selected item, or of what is in view"),
    ("Z", "zoom to the selected span"),
    ("/", "search"),
    ("Enter, Shift Enter", "in the search: next, previous"),
    ("Esc", "clear the selection and the search"),
    ("Shift drag", "select a span of time"),
    ("Ctrl wheel, pinch", "zoom"),
];

/// Renders the frame, or the reason why there is no timeline.
pub fn frame(missing: Option<&str>) -> Markup {
    html! {
        @if let Some(sentence) = missing { (absent(sentence)) }
        div #timeline-view hidden[missing.is_some()] {
            noscript { p.absent { "The timeline needs scripts, which are disabled in this browser." } }
            div.tools role="toolbar" aria-label="Timeline" {
                button #zoom-in type="button" title="Zoom in (+)" aria-label="Zoom in" { "+" }
                button #zoom-out type="button" title="Zoom out (-)" aria-label="Zoom out" { "−" }
                button #zoom-all type="button" title="Whole run (0)" { "All" }
                span #stage-jumps {}
                button #select-mode type="button" aria-pressed="false" title="Drag selects a span of time (Shift)" { "Select" }
                span.find {
                    input #timeline-search type="search" placeholder="Search names" aria-label="Search the timeline" autocomplete="off" spellcheck="false";
                    button #search-previous type="button" title="Previous (Shift Enter)" aria-label="Previous" { "‹" }
                    button #search-next type="button" title="Next (Enter)" aria-label="Next" { "›" }
                    output #timeline-found aria-live="polite" {}
                }
                button #clear-mark type="button" hidden { "Show every kernel" }
                button #show-keys type="button" title="Keys (?)" aria-label="Keys" { "?" }
            }
            div.frame {
                canvas #timeline-axis aria-hidden="true" {}
                div #plot tabindex="0" role="application" aria-label="Timeline: arrow keys move, plus and minus zoom, N and P go to the next and the previous item, question mark lists all keys" aria-describedby="timeline-help" {
                    canvas {}
                    div #tip role="presentation" hidden {}
                }
            }
            div #timeline-span hidden {}
            p #timeline-item.item aria-live="polite" { "Nothing selected." }
            div #timeline-detail hidden {}
            ul #timeline-legend.legend {}
            p #timeline-help.hint {
                "Drag to move; hold Shift or press Select and drag to add up a span. Click the timeline, then turn the wheel to zoom, or \
                 press ? for all keys. Where many items share a column of pixels, the height of the column is the share of time \
                 that is occupied. The idle lane is the time in which the GPU ran nothing at all; the launch of the next \
                 operation decides on the cause, and the parts of a gap are drawn in the order wait, copy, launch. Of the CUDA calls only \
                 those that launch, copy, set or wait are drawn."
            }
            ul #timeline-notes.hint {}
            dialog #timeline-keys aria-label="Keys of the timeline" {
                h3 { "Keys of the timeline" }
                table { tbody { @for (keys, effect) in KEYS { tr { th scope="row" { (keys) } td { (effect) } } } } }
                form method="dialog" { button { "Close" } }
            }
        }
    }
}
