//! Tests of `roofgap serve`: real clients against a running server with the embedded model.

mod access;
mod artifacts;
mod load;
mod openapi;
mod support;
mod timeline;
