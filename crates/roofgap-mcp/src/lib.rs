//! A Model Context Protocol server over runs and captures.
//!
//! [`run`] serves the tools on standard input and output until the client closes them. All tools are read-only and their answers are
//! bounded. A number has its unit and origin; one that was not measured is null with a reason.
//!
//! - [`roots`]: the folders that may be read, and the inputs in them;
//! - [`message`]: the lines of the protocol;
//! - `answer`: a number with unit and origin, the legend of a table, and the bounds of texts;
//! - `tools`: a request, an answer and a function for each tool; rows are types of the analysis;
//! - `server`: the protocol.

pub mod message;
pub mod roots;

mod answer;
mod server;
mod tools;

pub use roots::Roots;
pub use server::{McpProps, run};
