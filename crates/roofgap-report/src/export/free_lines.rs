//! Lines of a track: each takes one item at a time.

use roofgap_trace::Ns;

/// Assigns items, sorted by start, to the first line that is free, in logarithmic time.
#[derive(Debug, Default)]
pub struct FreeLines {
    /// Number of lines.
    lines: usize,
    /// A binary tree of minima over the times at which lines become free; the leaves are its second half.
    free: Vec<Ns>,
}

impl FreeLines {
    /// Returns the first line that is free at `start`, or a new one, and occupies it until `end`.
    pub fn assign(&mut self, start: Ns, end: Ns) -> usize {
        let line = self.first_free(start).unwrap_or_else(|| self.add());
        let mut at = self.free.len() / 2 + line;
        self.set(at, end);
        while at > 1 {
            at /= 2;
            let least = self.at(2 * at).min(self.at(2 * at + 1));
            self.set(at, least);
        }
        line
    }

    fn first_free(&self, start: Ns) -> Option<usize> {
        if self.lines == 0 || self.at(1) > start {
            return None;
        }
        let leaves = self.free.len() / 2;
        let mut at = 1;
        while at < leaves {
            at *= 2;
            if self.at(at) > start {
                at += 1;
            }
        }
        Some(at - leaves)
    }

    /// Adds a line, and doubles the tree when it is full.
    fn add(&mut self) -> usize {
        let leaves = self.free.len() / 2;
        if self.lines == leaves {
            let known = self.free.split_off(leaves);
            let leaves = (2 * leaves).max(1);
            self.free = vec![Ns::MAX; leaves];
            self.free.extend(known);
            self.free.resize(2 * leaves, Ns::MAX);
            for at in (1..leaves).rev() {
                let least = self.at(2 * at).min(self.at(2 * at + 1));
                self.set(at, least);
            }
        }
        self.lines += 1;
        self.lines - 1
    }

    /// A line that does not exist is never free.
    fn at(&self, at: usize) -> Ns {
        self.free.get(at).copied().unwrap_or(Ns::MAX)
    }

    fn set(&mut self, at: usize, value: Ns) {
        if let Some(slot) = self.free.get_mut(at) {
            *slot = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FreeLines;
    use proptest::prelude::*;

    #[test]
    fn many_lines_at_once_take_no_search_through_all() {
        let mut lines = FreeLines::default();
        // With so many lines, a search through all of them for each item would take minutes.
        for item in 0..300_000 {
            assert_eq!(lines.assign(item, i64::MAX - 1), item as usize);
        }
    }

    proptest! {
        #[test]
        fn the_first_free_line_is_taken(items in prop::collection::vec((0i64..6, 0i64..60), 0..200)) {
            let mut lines = FreeLines::default();
            let mut ends: Vec<i64> = Vec::new();
            let mut start = 0;
            for (later, length) in items {
                start += later;
                let expected = ends.iter().position(|end| *end <= start).unwrap_or(ends.len());
                ends.resize(ends.len().max(expected + 1), 0);
                ends[expected] = start + length;
                prop_assert_eq!(lines.assign(start, start + length), expected);
            }
        }
    }
}
