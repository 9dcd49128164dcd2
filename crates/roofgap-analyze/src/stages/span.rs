//! Spans of time on the CPU.

use roofgap_trace::{Ns, Trace};

/// A span of time on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Start, ns on the clock of the trace.
    pub start: Ns,
    /// End, ns on the clock of the trace.
    pub end: Ns,
    /// Row in `Trace::ranges` of the range that marks it; `None` for a span found by other means.
    pub range: Option<u32>,
}

impl Span {
    /// Returns the length, ns.
    pub fn length(&self) -> Ns {
        self.end - self.start
    }
}

/// Returns the spans of ranges, given by their rows in `Trace::ranges`.
pub fn spans(trace: &Trace, rows: &[u32]) -> Vec<Span> {
    let span = |&row: &u32| {
        let range = trace.ranges.rows.get(row as usize)?;
        Some(Span { start: range.start, end: range.end, range: Some(row) })
    };
    rows.iter().filter_map(span).collect()
}
