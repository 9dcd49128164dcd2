//! The tools: for each a request, an answer with a schema, and a pure function between them.

pub(crate) mod compare;
pub(crate) mod explain;
pub(crate) mod findings;
pub(crate) mod kernels;
pub(crate) mod list;
pub(crate) mod request;
pub(crate) mod stage;
pub(crate) mod steps;
pub(crate) mod summary;
pub(crate) mod timeline;
