//! Questions about a lake.
//!
//! - [`engine`]: the query engine over the tables;
//! - `visible`: hides the files that do not count from the engine;
//! - [`saved`]: saved queries and their parameters;
//! - [`answer`]: rows in the formats of the command;
//! - [`chart`]: rows as a chart in the terminal.

pub mod answer;
pub mod chart;
pub mod engine;
pub mod saved;

mod visible;
