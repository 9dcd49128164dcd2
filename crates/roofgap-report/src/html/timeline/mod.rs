//! The data of the timeline.
//!
//! - `lanes`: assigns ranges, operators, calls and GPU operations to lanes
//! - `blocks`: merges neighbours in a lane with too many items
//! - `data`: builds the packed columns that the page reads; `meta`: their description
//! - `window`: the items of a span of time one by one, for a page that a server gives

mod blocks;
mod data;
mod lanes;
mod meta;
mod window;

pub use data::timeline;
pub use meta::NoTimeline;
pub use window::{TimelineWindow, timeline_window};
