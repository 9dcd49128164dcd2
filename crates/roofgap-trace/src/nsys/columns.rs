//! Columns that parts of a scan filled, put behind those of the trace.

/// Appends a column; the first one is taken as it is, with the room it has.
pub(super) fn append<T: Copy>(to: &mut Vec<T>, from: Vec<T>) {
    if to.is_empty() {
        *to = from;
    } else {
        to.extend_from_slice(&from);
    }
}

/// Numbers of a part replaced by what they stand for, in the same memory where both are of one size.
pub(super) fn replace<T: Copy>(numbers: Vec<u32>, values: &[T]) -> Vec<T> {
    numbers
        .into_iter()
        .map(|number| values[number as usize])
        .collect()
}
