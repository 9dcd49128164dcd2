//! Readers of every input format, the one event model they fill, and what was lost on the way.
//!
//! [`read`] takes the paths a user named, tells each format by its content, and returns one [`Trace`]
//! (a timeline, if any of the inputs was one) and the counter sets that came with it.

pub mod account;
pub mod gzip;
pub mod input;
pub mod kineto;
pub mod model;
pub mod native;
pub mod ncu;
pub mod nsys;
pub mod sqlite;
pub mod summary_csv;

mod decimal;
mod error;

pub use error::ReadError;
pub use input::{Format, Input, read, read_each, sniff};
pub use model::*;
