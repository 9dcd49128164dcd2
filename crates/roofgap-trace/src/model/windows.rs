//! The times in which GPU work was recorded, where that is not the whole time of a process.

use super::{Ns, ProcessId};

/// Recorded windows of a process. GPU work that was launched outside of them is not in the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedWindows {
    /// The process.
    pub process: ProcessId,
    /// Start and end of each window, ns, in order and apart.
    pub windows: Vec<(Ns, Ns)>,
    /// First and last time of the recording, ns.
    pub span: (Ns, Ns),
}

impl RecordedWindows {
    /// Makes windows of edges, each with true where recording began. A window that is open at the end lasts until `last`.
    pub fn from_edges(process: ProcessId, edges: &[(bool, Ns)], last: Ns) -> Self {
        let mut windows: Vec<(Ns, Ns)> = Vec::new();
        let mut open = None;
        for &(on, at) in edges {
            match (on, open) {
                (true, None) => open = Some(at),
                (false, Some(start)) => {
                    windows.push((start, at.max(start)));
                    open = None;
                }
                _ => {}
            }
        }
        if let Some(start) = open {
            windows.push((start, last.max(start)));
        }
        windows.sort_unstable();
        let first = edges.iter().map(|edge| edge.1).min().unwrap_or(last);
        let end = edges.iter().map(|edge| edge.1).max().unwrap_or(last);
        Self { process, windows, span: (first, end.max(last)) }
    }

    /// Returns the position of the window that holds a time span as a whole.
    pub fn window_of(&self, start: Ns, end: Ns) -> Option<usize> {
        let at = self.windows.partition_point(|window| window.0 <= start).checked_sub(1)?;
        self.windows.get(at).filter(|window| end <= window.1).map(|_| at)
    }

    /// Returns the recorded time, ns.
    pub fn recorded_ns(&self) -> Ns {
        let lengths = self.windows.iter().map(|window| window.1.saturating_sub(window.0));
        lengths.fold(0, Ns::saturating_add)
    }

    /// Returns the time of the recording with the gaps, ns.
    pub fn all_ns(&self) -> Ns {
        self.span.1.saturating_sub(self.span.0)
    }

    /// Returns the number of times that were not recorded.
    pub fn gaps(&self) -> u64 {
        let mut covered = self.span.0;
        let mut gaps = 0;
        for &(start, end) in &self.windows {
            gaps += u64::from(start > covered);
            covered = covered.max(end);
        }
        gaps + u64::from(covered < self.span.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(edges: &[(bool, Ns)], last: Ns) -> RecordedWindows {
        RecordedWindows::from_edges(ProcessId(0), edges, last)
    }

    #[test]
    fn edges_become_windows() {
        let found = windows(&[(false, 0), (true, 10), (true, 12), (false, 20), (false, 21), (true, 30)], 50);
        assert_eq!(found.windows, [(10, 20), (30, 50)]);
        assert_eq!((found.recorded_ns(), found.all_ns(), found.gaps()), (30, 50, 2));
        assert_eq!(found.window_of(10, 20), Some(0));
        assert_eq!(found.window_of(31, 40), Some(1));
        assert_eq!(found.window_of(19, 21), None);
        assert_eq!(found.window_of(5, 7), None);
        let never = windows(&[(false, 3)], 50);
        assert!(never.windows.is_empty());
        assert_eq!((never.recorded_ns(), never.gaps()), (0, 1));
        let cut = windows(&[(true, 1), (false, 40)], 50);
        assert_eq!((cut.windows.as_slice(), cut.gaps()), (&[(1, 40)][..], 1));
        let whole = windows(&[(true, 1)], 50);
        assert_eq!((whole.windows.as_slice(), whole.gaps()), (&[(1, 50)][..], 0));
    }
}
