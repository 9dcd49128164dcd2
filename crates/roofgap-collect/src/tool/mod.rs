//! The profilers on this machine: location, version and supported options.
//!
//! - `search`: candidates on the `PATH` and in install folders
//! - `query`: running a tool with `--version`, `--help` and the like
//! - `version`, `help`: parsing the answers
//! - `importer`: the program that nsys needs to write a report
//! - `nsys`, `ncu`: the tools themselves

mod help;
mod importer;
mod ncu;
mod nsys;
mod query;
mod search;
mod version;

pub use help::Help;
pub use importer::ImporterState;
pub use ncu::Ncu;
pub use nsys::Nsys;
pub use query::ToolError;
pub(crate) use search::expand;
pub use search::{Candidate, RejectedCandidate, Search, SearchResult, ToolLocation};
pub use version::Version;
