//! Reports in Markdown.
//!
//! - `lists`: `kernels.md` and `operators.md`
//! - `report`: `report.md`
//! - `summary`: `stakeholder_summary.md`
//! - `sections`: sections that several reports share

mod lists;
mod report;
mod sections;
mod summary;

pub use lists::{kernels, operators};
pub use report::report;
pub use summary::stakeholder_summary;
