//! The tools: for each a request, an answer with a schema, and a pure function between them.

pub mod compare;
pub mod explain;
pub mod findings;
pub mod kernels;
pub mod list;
pub mod request;
pub mod stage;
pub mod steps;
pub mod summary;
pub mod timeline;
