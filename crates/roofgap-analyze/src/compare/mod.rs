//! Two analyses side by side: what changed, what explains it, and whether a gate breaks.
//!
//! - [`comparison`]: the result, field by field what the JSON holds;
//! - [`gate`]: limits on a change, read from text and held against a comparison;
//! - `noise`: how much a number may move by itself;
//! - `likeness`: whether the two sides are the same thing at all;
//! - `pairing`, `kernels`: which kernel of one side is which of the other, and how each changed;
//! - `sides`: what is compared, and the whole comparison;
//! - `stage`: one stage, and the parts that its change is the sum of.

pub mod comparison;
pub mod gate;

mod kernels;
mod likeness;
mod noise;
mod pairing;
mod sides;
mod stage;

pub use comparison::*;
pub use gate::{Gate, GateError, Limit, Metric};
pub use noise::Floors;
pub use sides::{CompareOptions, Side, SideFacts, compare};

#[cfg(test)]
mod tests;
