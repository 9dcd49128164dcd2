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

pub use data::{NoTimeline, ops_of_longest, timeline};
pub use window::{TimelineWindow, timeline_window};

use crate::render::html::absent;
use maud::{Markup, html};

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
