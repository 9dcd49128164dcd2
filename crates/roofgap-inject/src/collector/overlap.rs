//! Decides between CUPTI's two kinds of kernel records, from the records themselves.
//!
//! The concurrent kind costs the kernels of a CUDA graph several percent of their time. The serial kind costs them nothing, but runs
//! one kernel at a time. A recording therefore begins with the concurrent kind. When most kernels belong to graphs and
//! overlap for less than 1 % of their time, the serial kind takes over, until a graph or stream appears that was not among them.
//! Kernels without a graph gain nothing from the serial kind.

use std::collections::HashSet;

/// Number of kernels on which the first decision rests.
const SAMPLE: u64 = 8_192;

/// The sample doubles with each return to the concurrent kind, at most this often.
const DOUBLINGS: u32 = 6;

/// Number of streams and graphs to remember; with more, the concurrent kind stays.
const KNOWN: usize = 1 << 16;

/// Number of earlier kernels with which a kernel is compared.
const RECENT: usize = 4;

/// Evidence from kernel records.
#[derive(Default)]
pub(crate) struct Evidence {
    /// True if the serial kind was decided on.
    serial: bool,
    /// Stream and graph of kernels that overlapped little.
    known: HashSet<(u32, u32)>,
    /// The same of the current sample.
    sampled: HashSet<(u32, u32)>,
    /// Stream and graph of the last kernel, which are already counted.
    last: Option<(u32, u32)>,
    /// True once a kernel of an unknown stream or graph was recorded with the serial kind.
    stranger: bool,
    recent: [(u64, u64); RECENT],
    kernels: u64,
    of_graphs: u64,
    busy_ns: u64,
    overlap_ns: u64,
    returns: u32,
}

impl Evidence {
    /// Adds a kernel. `serial`: the kind of its record.
    pub(crate) fn add(&mut self, source: (u32, u32), (start, end): (u64, u64), serial: bool) {
        if serial {
            if self.last != Some(source) {
                self.last = Some(source);
                self.stranger |= !self.known.contains(&source);
            }
            return;
        }
        // Records of earlier launches, which come after the decision.
        if self.serial {
            return;
        }
        if self.last != Some(source) {
            self.last = Some(source);
            self.sampled.insert(source);
        }
        let common = |other: &(u64, u64)| end.min(other.1).saturating_sub(start.max(other.0));
        self.overlap_ns += self.recent.iter().map(common).max().unwrap_or(0);
        self.recent.rotate_right(1);
        self.recent[0] = (start, end);
        self.busy_ns += end.saturating_sub(start);
        self.kernels += 1;
        self.of_graphs += u64::from(source.1 != 0);
    }

    /// Returns true for the serial kind and false for the concurrent one, if the kind is to change.
    pub(crate) fn decide(&mut self) -> Option<bool> {
        if self.serial {
            if !self.stranger {
                return None;
            }
            self.returns += 1;
            self.restart();
            self.serial = false;
            return Some(false);
        }
        if self.kernels < SAMPLE << self.returns.min(DOUBLINGS) {
            return None;
        }
        let apart = self.overlap_ns.saturating_mul(100) <= self.busy_ns;
        let graphs = self.of_graphs.saturating_mul(2) >= self.kernels;
        let few = self.known.len() + self.sampled.len() <= KNOWN;
        if apart && graphs && few {
            self.known.extend(&self.sampled);
            self.serial = true;
        } else if !apart {
            self.known.retain(|source| !self.sampled.contains(source));
        }
        self.restart();
        self.serial.then_some(true)
    }

    fn restart(&mut self) {
        *self = Self {
            serial: self.serial,
            known: std::mem::take(&mut self.known),
            returns: self.returns,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds `count` kernels of 100 ns, each begun `period` ns after the one before.
    fn add(evidence: &mut Evidence, count: u64, source: (u32, u32), period: u64, serial: bool) {
        for at in 1..=count {
            evidence.add(source, (at * period, at * period + 100), serial);
        }
    }

    #[test]
    fn a_graph_whose_kernels_follow_each_other_is_recorded_serially() {
        let mut evidence = Evidence::default();
        add(&mut evidence, SAMPLE - 1, (0, 5), 120, false);
        assert_eq!(evidence.decide(), None);
        add(&mut evidence, 1, (0, 5), 120, false);
        assert_eq!(evidence.decide(), Some(true));
        assert_eq!(evidence.decide(), None);
        add(&mut evidence, SAMPLE, (0, 5), 120, true);
        assert_eq!(evidence.decide(), None, "the same graph again");
    }

    #[test]
    fn overlapping_kernels_and_kernels_without_a_graph_are_not() {
        for (graph, period) in [(5, 50), (5, 98), (0, 120)] {
            let mut evidence = Evidence::default();
            add(&mut evidence, 10 * SAMPLE, (0, graph), period, false);
            assert_eq!(evidence.decide(), None, "{graph} {period}");
        }
        let mut evidence = Evidence::default();
        for at in 1..=SAMPLE {
            // Two branches of 1000 ns, seen one after the other.
            let start = at / 2 * 2000 + at % 2 * 100;
            evidence.add((at as u32 % 2, 5), (start, start + 1000), false);
        }
        assert_eq!(evidence.decide(), None);
    }

    #[test]
    fn another_graph_or_stream_brings_the_concurrent_kind_back() {
        for stranger in [(0, 6), (1, 5)] {
            let mut evidence = Evidence::default();
            add(&mut evidence, SAMPLE, (0, 5), 120, false);
            assert_eq!(evidence.decide(), Some(true));
            add(&mut evidence, 1, stranger, 120, true);
            assert_eq!(evidence.decide(), Some(false));
            // Twice the evidence is needed now.
            add(&mut evidence, SAMPLE, stranger, 120, false);
            assert_eq!(evidence.decide(), None);
            add(&mut evidence, SAMPLE, (0, 5), 120, false);
            assert_eq!(evidence.decide(), Some(true));
            for source in [(0, 5), stranger] {
                add(&mut evidence, 1, source, 120, true);
                assert_eq!(evidence.decide(), None, "{source:?}");
            }
        }
    }

    #[test]
    fn a_graph_that_overlaps_later_is_forgotten() {
        let mut evidence = Evidence::default();
        add(&mut evidence, SAMPLE, (0, 5), 120, false);
        assert_eq!(evidence.decide(), Some(true));
        add(&mut evidence, 1, (0, 6), 120, true);
        assert_eq!(evidence.decide(), Some(false));
        add(&mut evidence, 2 * SAMPLE, (0, 5), 50, false);
        assert_eq!(evidence.decide(), None);
        add(&mut evidence, 2 * SAMPLE, (0, 6), 120, false);
        assert_eq!(evidence.decide(), Some(true));
        add(&mut evidence, 1, (0, 5), 120, true);
        assert_eq!(evidence.decide(), Some(false));
    }
}
