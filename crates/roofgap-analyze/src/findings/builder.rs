//! Builds findings.

use crate::result::{Finding, Stage};
use serde_json::Value;

/// Least bound of a finding, % of the stage's time.
pub const LEAST_PCT: f64 = 0.5;

/// A finding under construction.
pub struct FindingBuilder(Finding);

impl FindingBuilder {
    /// Begins a finding whose bound is a sum over the devices of the stage.
    pub fn summed(id: &str, stage: &Stage, sum_ns: i64) -> Self {
        Self::new(id, stage, stage.each_device(sum_ns))
    }

    /// Begins a finding about a stage. The bound is at most the time of the stage.
    pub fn new(id: &str, stage: &Stage, bound_ns: i64) -> Self {
        let bound_ns = bound_ns.clamp(0, stage.elapsed_ns().max(0));
        Self(Finding {
            id: id.to_owned(),
            stage: Some(stage.name.clone()),
            bound_ns,
            bound_pct: percent(bound_ns, stage.elapsed_ns()),
            ..Finding::default()
        })
    }

    /// Adds evidence. A null is left out.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.0.evidence.insert(key.to_owned(), value);
        }
        self
    }

    /// Adds a number rounded to two digits.
    pub fn with_number(self, key: &str, value: f64) -> Self {
        self.with(key, (value * 100.0).round() / 100.0)
    }

    /// Adds the finding to the list if its bound is large enough.
    pub fn finish(mut self, title: String, action: String, findings: &mut Vec<Finding>) {
        if self.0.bound_pct >= LEAST_PCT {
            self.0.title = title;
            self.0.action = action;
            findings.push(self.0);
        }
    }
}

/// Returns `part` in % of `whole`.
pub fn percent(part: i64, whole: i64) -> f64 {
    if whole > 0 { 100.0 * part as f64 / whole as f64 } else { 0.0 }
}
