//! The main numbers of a run for monitoring.
//!
//! - `gauge`: the numbers, their units and labels
//! - [`prometheus`]: the text format of Prometheus
//! - [`otlp`]: the JSON format of OpenTelemetry

mod gauge;
pub mod otlp;
pub mod prometheus;
