//! Reports in Markdown.

mod kernels;
mod operators;
mod report;
mod sections;
mod summary;

pub use kernels::kernels;
pub use operators::operators;
pub use report::report;
pub use summary::stakeholder_summary;
