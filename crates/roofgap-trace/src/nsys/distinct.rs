//! Values numbered as they first occur.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// A short list of values that a long column refers to by number.
#[derive(Debug)]
pub(super) struct Distinct<T> {
    values: Vec<T>,
    numbers: FxHashMap<T, u32>,
    /// The number last given under each hint.
    last: Vec<u32>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            numbers: FxHashMap::default(),
            last: Vec::new(),
        }
    }
}

/// Hints from here on share one memory.
const MOST_HINTS: usize = 1 << 16;

impl<T: Copy + Eq + Hash> Distinct<T> {
    /// The number of a value. Equal values under equal hints are found without the map.
    #[inline]
    pub(super) fn number(&mut self, value: T, hint: usize) -> u32 {
        let hint = hint.min(MOST_HINTS);
        if let Some(&last) = self.last.get(hint)
            && self.values.get(last as usize) == Some(&value)
        {
            return last;
        }
        let next = self.values.len() as u32;
        let number = *self.numbers.entry(value).or_insert(next);
        if number == next {
            self.values.push(value);
        }
        if self.last.len() <= hint {
            self.last.resize(hint + 1, u32::MAX);
        }
        self.last[hint] = number;
        number
    }

    /// The values, in the order of their numbers.
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }
}

#[cfg(test)]
mod tests {
    use super::Distinct;

    #[test]
    fn numbers_count_up_whatever_the_hint() {
        let mut list = Distinct::default();
        let numbers = [(7, 0), (7, 5), (9, 0), (7, 0), (9, 1 << 30), (8, 1 << 30), (9, 5)];
        assert_eq!(
            numbers.map(|(value, hint)| list.number(value, hint)),
            [0, 0, 1, 0, 1, 2, 1]
        );
        assert_eq!(list.values(), [7, 9, 8]);
    }
}
