//! The timeline as data: what is drawn in which lane, merged where there is too much of it, packed.

mod blocks;
mod data;
mod lanes;

pub(super) use data::timeline;
