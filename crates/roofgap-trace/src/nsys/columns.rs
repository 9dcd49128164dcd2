//! The columns that parts of a scan fill: dictionaries of repeated values, and joining parts.

use crate::NameId;
use crate::model::Dictionary;
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// A dictionary that remembers the number last returned for each hint.
#[derive(Debug, Default)]
pub struct Distinct<T> {
    known: Dictionary<T>,
    last: Vec<u32>,
}

/// Larger hints share one entry.
const MOST_HINTS: usize = 1 << 16;

impl<T: Copy + Eq + Hash> Distinct<T> {
    /// Returns the number of a value. A value that repeats under its hint needs no look-up in the map.
    #[inline]
    pub fn number(&mut self, value: T, hint: usize) -> u32 {
        let hint = hint.min(MOST_HINTS);
        if let Some(&last) = self.last.get(hint)
            && self.known.values.get(last as usize) == Some(&value)
        {
            return last;
        }
        let number = self.known.number(value);
        if self.last.len() <= hint {
            self.last.resize(hint + 1, u32::MAX);
        }
        self.last[hint] = number;
        number
    }

    /// Returns the values in the order of their numbers.
    pub fn values(&self) -> &[T] {
        &self.known.values
    }
}

/// Appends a column; the first one is taken over with its capacity.
pub fn append<T: Copy>(to: &mut Vec<T>, from: Vec<T>) {
    if to.is_empty() {
        *to = from;
    } else {
        to.extend_from_slice(&from);
    }
}

/// Replaces the numbers of a part by their values, in place where both have one size.
pub fn replace<T: Copy>(numbers: Vec<u32>, values: &[T]) -> Vec<T> {
    numbers.into_iter().map(|number| values[number as usize]).collect()
}

/// Ids are nearly always numbered from 0 without holes, so they are positions in a list; a map takes the others.
#[derive(Debug, Default)]
pub struct Strings {
    list: Vec<Option<NameId>>,
    others: FxHashMap<i64, NameId>,
}

/// A hole in the numbering up to which the list goes on.
const MOST_MISSING: usize = 4096;

impl Strings {
    pub fn insert(&mut self, id: i64, name: NameId) {
        match usize::try_from(id) {
            Ok(at) if at < self.list.len() + MOST_MISSING => {
                if at >= self.list.len() {
                    self.list.resize(at + 1, None);
                }
                self.list[at] = Some(name);
            }
            _ => _ = self.others.insert(id, name),
        }
    }

    pub fn get(&self, id: i64) -> Option<NameId> {
        match usize::try_from(id).ok().and_then(|at| self.list.get(at)) {
            Some(Some(name)) => Some(*name),
            _ => self.others.get(&id).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Distinct;

    #[test]
    fn numbers_count_up_whatever_the_hint() {
        let mut list = Distinct::default();
        let numbers = [(7, 0), (7, 5), (9, 0), (7, 0), (9, 1 << 30), (8, 1 << 30), (9, 5)];
        assert_eq!(numbers.map(|(value, hint)| list.number(value, hint)), [0, 0, 1, 0, 1, 2, 1]);
        assert_eq!(list.values(), [7, 9, 8]);
    }
}

#[cfg(test)]
mod strings_tests {
    use super::*;

    #[test]
    fn ids_may_be_any_number() {
        let mut strings = Strings::default();
        for (name, id) in [0, 3, -5, i64::MAX, 1 << 40, 4100, 10_000, 9_000].into_iter().enumerate() {
            strings.insert(id, NameId(name as u32));
        }
        let name_of = |id| strings.get(id).map(|n: NameId| n.0);
        assert_eq!([0, 3, -5, i64::MAX].map(name_of), [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!([1 << 40, 4100, 10_000, 9_000].map(name_of), [Some(4), Some(5), Some(6), Some(7)]);
        assert_eq!([1, 2, -1, 5000, i64::MIN].map(name_of), [None; 5]);
    }
}
