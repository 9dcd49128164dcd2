//! Compares two analyses: what changed, what explains it, and which gates fail.
//!
//! - [`comparison`]: the result, field by field as in the JSON;
//! - [`gate`]: limits on a change, parsed from text and checked against a comparison;
//! - `basis`: what compares where the two did different work;
//! - `comparability`: the sides, and whether they can be compared at all;
//! - `noise`: how much a number may move by itself;
//! - `pairing`, `kernels`: which kernels correspond, and how each changed;
//! - `stage`: the change of a stage, and the parts that add up to it.

pub mod comparison;
pub mod gate;

mod basis;
mod comparability;
#[expect(clippy::module_inception, reason = "the function of the folder's name")]
mod compare;
mod kernels;
mod noise;
mod pairing;
mod stage;

pub use comparability::{Side, SideFacts};
pub use compare::{CompareOptions, compare};
pub use comparison::*;
pub use gate::{Gate, GateError, Limit, Metric};
pub use noise::Floors;

#[cfg(test)]
mod tests;
