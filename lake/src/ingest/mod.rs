//! Adds runs and captures to a lake.
//!
//! - [`add`](mod@add): many inputs at once, each atomically and at most once;
//! - `find`: inputs in folders;
//! - `key`: the key of an input;
//! - `facts`: origin of a run: date, host, commit, driver;
//! - `rows`: the rows of a run;
//! - `kernels`: kernels by stage, name and launch shape, and single events.

pub mod add;

mod facts;
mod find;
mod kernels;
mod key;
mod rows;
