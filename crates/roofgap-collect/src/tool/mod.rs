//! The profilers on this machine: where they are, which version, what they can do.
//!
//! - [`search`]: where to look
//! - [`version`]: versions out of what a tool says
//! - [`help`]: options out of what a tool lists
//! - [`importer`]: whether nsys can turn a recording into a report
//! - [`nsys`], [`ncu`]: the tools themselves

pub mod help;
pub mod importer;
pub mod ncu;
pub mod nsys;
pub mod search;
pub mod version;

pub use help::Help;
pub use importer::Import;
pub use ncu::Ncu;
pub use nsys::Nsys;
pub use search::{Candidate, Found, Place, Rejected, Search};
pub use version::Version;
