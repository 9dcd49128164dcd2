//! The OpenAPI document.

/// Description of the operations (OpenAPI 3.1).
pub const OPENAPI: &str = include_str!("openapi.json");
