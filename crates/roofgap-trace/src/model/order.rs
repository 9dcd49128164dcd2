//! Putting rows that are kept in columns in order.

use super::Ns;
use std::cmp::Ordering;

/// The order of rows by their start, equal starts by `tie`; `None` if they are in order already.
///
/// Starts rarely repeat, so they are sorted by themselves, beside their row numbers, and `tie` is asked only where it matters.
pub(super) fn by_start(start: &[Ns], tie: impl Fn(usize, usize) -> Ordering) -> Option<Vec<u32>> {
    let pairs = || start.iter().zip(start.iter().skip(1)).enumerate();
    if pairs().all(|(i, (a, b))| a < b || (a == b && tie(i, i + 1).is_le())) {
        return None;
    }
    let mut rows: Vec<(Ns, u32)> = start.iter().copied().zip(0..).collect();
    // Stable: inputs are mostly a few sorted runs, which such a sort merges.
    rows.sort_by_key(|row| row.0);
    for equal in rows.chunk_by_mut(|a, b| a.0 == b.0).filter(|rows| rows.len() > 1) {
        equal.sort_by(|a, b| tie(a.1 as usize, b.1 as usize));
    }
    Some(rows.into_iter().map(|row| row.1).collect())
}

/// Reorders one column: row `i` becomes what was row `order[i]`.
pub(super) fn permute<T: Copy>(column: &mut Vec<T>, order: &[u32]) {
    *column = order.iter().map(|&i| column[i as usize]).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_in_the_order_of_the_whole_key(rows in prop::collection::vec((0i64..20, 0u8..4), 0..60)) {
            let start: Vec<Ns> = rows.iter().map(|r| r.0).collect();
            let order = by_start(&start, |a, b| rows[a].1.cmp(&rows[b].1));
            let mut sorted = rows.clone();
            sorted.sort();
            prop_assert_eq!(order.is_none(), sorted == rows);
            let order = order.unwrap_or_else(|| (0..rows.len() as u32).collect());
            let mut column = rows;
            permute(&mut column, &order);
            prop_assert_eq!(column, sorted);
        }
    }
}
