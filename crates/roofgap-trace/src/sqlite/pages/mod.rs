//! Rows straight from the pages of the file, for tables that are stored the usual way.
//!
//! `file` reads pages, `tree` finds the leaves of a table, `record` takes a row apart, `layout` spares it the work for rows
//! that are like earlier ones, `scan` goes through the
//! leaves, in parts that run at the same time. What is stored in another way is left to SQLite's own engine; what
//! is not sound is an error.

mod file;
mod layout;
mod record;
mod scan;
mod tree;

pub use file::PageFile;
pub use record::Plan;
pub use scan::{each, scan};
