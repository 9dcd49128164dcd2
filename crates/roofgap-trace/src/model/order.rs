//! Putting rows that are kept in columns in order.

use super::Ns;
use rustc_hash::FxHashMap;
use std::cmp::Ordering;

/// A permutation of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// A few rows at the end belong among the sorted ones before them: first the rows, in order, then for each of them the row
    /// in front of which it belongs.
    Merge(Vec<u32>, Vec<u32>),
    /// Row `i` is to be what is row `order[i]` now.
    All(Vec<u32>),
}

/// Computes the order of rows by start, equal starts by `tie`; `None` if they are in order.
///
/// Starts rarely repeat, so they are sorted by themselves, beside their row numbers, and `tie` is asked only where it matters.
pub fn by_start(start: &[Ns], tie: impl Fn(usize, usize) -> Ordering) -> Option<Order> {
    let compare = |a: usize, b: usize| start[a].cmp(&start[b]).then_with(|| tie(a, b));
    let sorted =
        (1..start.len()).find(|&row| start[row - 1] >= start[row] && compare(row - 1, row).is_gt())?;
    if start.len() - sorted <= start.len() / 4 {
        // Copies behind kernels: moving the kernels apart takes no second copy of every column.
        let mut last: Vec<u32> = (sorted as u32..start.len() as u32).collect();
        last.sort_by(|&a, &b| compare(a as usize, b as usize));
        let place = |&row: &u32| {
            let (mut low, mut high) = (0, sorted);
            while low < high {
                let middle = (low + high) / 2;
                if compare(middle, row as usize).is_le() {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low as u32
        };
        let places = last.iter().map(place).collect();
        return Some(Order::Merge(last, places));
    }
    let mut rows: Vec<(Ns, u32)> = start.iter().copied().zip(0..).collect();
    // Stable: inputs are mostly a few sorted runs, which such a sort merges.
    rows.sort_by_key(|row| row.0);
    for equal in rows.chunk_by_mut(|a, b| a.0 == b.0).filter(|rows| rows.len() > 1) {
        equal.sort_by(|a, b| tie(a.1 as usize, b.1 as usize));
    }
    Some(Order::All(rows.into_iter().map(|row| row.1).collect()))
}

/// Methods of rows that are kept in columns: their number, appending one, and keeping those of an order.
macro_rules! columns {
    ($rows:ident: $row:ident, $vis:vis $push:ident, $take:ident; $($column:ident),*) => {
        impl $rows {
            /// Returns the number of rows.
            pub fn len(&self) -> usize {
                self.start.len()
            }

            /// Returns true if there are no rows.
            pub fn is_empty(&self) -> bool {
                self.start.is_empty()
            }

            /// Adds a row.
            $vis fn $push(&mut self, row: $row) {
                $(self.$column.push(row.$column);)*
            }

            /// Puts the rows in an order.
            pub(super) fn $take(&mut self, order: &Order) {
                $(order.apply(&mut self.$column);)*
            }
        }
    };
}
pub(super) use columns;

impl Order {
    /// Puts one column in this order.
    pub fn apply<T: Copy>(&self, column: &mut Vec<T>) {
        match self {
            Self::All(order) => *column = order.iter().map(|&row| column[row as usize]).collect(),
            Self::Merge(last, places) => {
                let values: Vec<T> = last.iter().map(|&row| column[row as usize]).collect();
                // From the end: what lies behind a place moves up as far as rows are still to come.
                let mut from = column.len() - values.len();
                for (ahead, (&value, &place)) in values.iter().zip(places).enumerate().rev() {
                    let place = place as usize;
                    column.copy_within(place..from, place + ahead + 1);
                    column[place + ahead] = value;
                    from = place;
                }
            }
        }
    }

    /// Values kept by row number, under the rows' new numbers.
    pub fn renumber<T: Copy>(&self, values: &FxHashMap<u32, T>) -> FxHashMap<u32, T> {
        match self {
            Self::All(order) => order
                .iter()
                .zip(0..)
                .filter_map(|(old, new)| values.get(old).map(|value| (new, *value)))
                .collect(),
            Self::Merge(last, places) => {
                let moved: FxHashMap<u32, u32> = last
                    .iter()
                    .zip(places)
                    .zip(0..)
                    .map(|((&row, &place), ahead)| (row, place + ahead))
                    .collect();
                let pushed = |row: u32| row + places.partition_point(|&place| place <= row) as u32;
                values
                    .iter()
                    .map(|(&row, &value)| (moved.get(&row).copied().unwrap_or_else(|| pushed(row)), value))
                    .collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_in_the_order_of_the_whole_key(
            rows in prop::collection::vec((0i64..20, 0u8..4), 0..60),
            sorted in 0usize..60,
        ) {
            let mut rows = rows;
            let sorted = sorted.min(rows.len());
            rows[..sorted].sort();
            let start: Vec<Ns> = rows.iter().map(|r| r.0).collect();
            let order = by_start(&start, |a, b| rows[a].1.cmp(&rows[b].1));
            let mut right = rows.clone();
            right.sort();
            prop_assert_eq!(order.is_none(), right == rows);
            let mut column = rows.clone();
            if let Some(order) = order {
                order.apply(&mut column);
                let by_row: FxHashMap<u32, _> = (0..).zip(rows.iter().copied()).collect();
                let renumbered = order.renumber(&by_row);
                let moved: Vec<_> = (0..rows.len() as u32).map(|row| renumbered[&row]).collect();
                prop_assert_eq!(&moved, &right);
            }
            prop_assert_eq!(column, right);
        }
    }

    #[test]
    fn a_few_rows_at_the_end_are_merged() {
        let order = by_start(&[1, 3, 5, 7, 9, 11, 4, 0], |_, _| Ordering::Equal);
        assert_eq!(order, Some(Order::Merge(vec![7, 6], vec![0, 2])));
    }
}
