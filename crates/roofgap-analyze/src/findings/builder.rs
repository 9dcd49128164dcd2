//! Builds findings and formats the numbers in their sentences.

use crate::result::{Finding, Stage};
use serde_json::Value;

/// Least bound of a finding, % of the stage's time.
pub(super) const LEAST_PCT: f64 = 0.5;

/// A finding under construction.
pub(super) struct FindingBuilder(Finding);

impl FindingBuilder {
    /// Begins a finding whose bound is a sum over the devices of the stage.
    pub(super) fn summed(id: &str, stage: &Stage, sum_ns: i64) -> Self {
        Self::new(id, stage, stage.each_device(sum_ns))
    }

    /// Begins a finding about a stage. The bound is at most the time of the stage.
    pub(super) fn new(id: &str, stage: &Stage, bound_ns: i64) -> Self {
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
    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.0.evidence.insert(key.to_owned(), value);
        }
        self
    }

    /// Adds a number rounded to two digits.
    pub(super) fn with_number(self, key: &str, value: f64) -> Self {
        self.with(key, (value * 100.0).round() / 100.0)
    }

    /// Adds the finding to the list if its bound is large enough.
    pub(super) fn finish(mut self, title: String, action: String, findings: &mut Vec<Finding>) {
        if self.0.bound_pct >= LEAST_PCT {
            self.0.title = title;
            self.0.action = action;
            findings.push(self.0);
        }
    }
}

/// Returns `part` in % of `whole`.
pub(super) fn percent(part: i64, whole: i64) -> f64 {
    if whole > 0 {
        100.0 * part as f64 / whole as f64
    } else {
        0.0
    }
}

/// Formats nanoseconds as milliseconds.
pub(super) fn ms(ns: i64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// Formats nanoseconds as microseconds.
pub(super) fn us(ns: f64) -> String {
    format!("{:.1} µs", ns / 1e3)
}

/// Formats bytes in a fitting unit, in powers of 1000 as disks and size limits are stated.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1_000, "kB"),
    ];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// Formats a count with commas between thousands.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of times.
pub(super) fn times(count: u64) -> String {
    if count == 1 {
        "once".to_owned()
    } else {
        format!("{} times", self::count(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let sizes = [0, 999, 1_000, 2_000_000_000].map(size);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 kB", "2.0 GB"]);
    }

    #[test]
    fn numbers_in_sentences() {
        assert_eq!(
            [count(7), count(1_234_567), times(1), times(7_656)],
            ["7", "1,234,567", "once", "7,656 times"]
        );
        assert_eq!(
            (ms(220_788_016), us(2_478.25)),
            ("220.788 ms".into(), "2.5 µs".into())
        );
    }
}
