//! Tests of `roofgap mcp`: a client asks through the protocol.

pub mod client;
mod python_sdk;
mod questions;
mod tools;
