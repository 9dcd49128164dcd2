//! The data of the timeline.
//!
//! - `lanes`: assigns ranges, operators, calls and GPU operations to lanes
//! - `blocks`: merges neighbours in a lane with too many items
//! - `data`: the description and the packed columns that the page reads

mod blocks;
mod data;
mod lanes;

pub(super) use data::timeline;
