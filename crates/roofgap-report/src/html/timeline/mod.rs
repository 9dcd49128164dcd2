//! The data of the timeline.
//!
//! - `lanes`: assigns ranges, operators, calls and GPU operations to lanes
//! - `blocks`: merges neighbours in a lane with too many items
//! - `data`: builds the packed columns that the page reads; `meta`: their description

mod blocks;
mod data;
mod lanes;
mod meta;

pub(super) use data::timeline;
