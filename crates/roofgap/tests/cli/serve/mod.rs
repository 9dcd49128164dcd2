//! Tests of `roofgap serve`: real clients against a running server with the embedded model.

mod access;
mod artifacts;
mod contract;
mod load;
mod openapi;
mod sessions;
mod support;
mod timeline;
