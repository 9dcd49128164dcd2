//! The table of strings, which rows refer to by id.

use crate::event::CallKind;
use crate::names;

/// Ranges of domain `LLM`, which have registered names.
const REGISTERED: [&str; 4] = ["warmup", "prefill", "decode_all", "decode_step"];

/// Names of threads.
pub(super) const THREADS: [&str; 2] = ["python3", "loader"];

/// Returns all strings in the order of their ids.
pub(super) fn all() -> Vec<&'static str> {
    let mut list: Vec<&str> = vec![""];
    list.extend(CallKind::ALL.iter().map(|kind| kind.versioned()));
    list.extend(REGISTERED);
    list.extend(THREADS);
    for kind in names::kinds() {
        list.extend([kind.demangled.as_str(), kind.short.as_str(), kind.mangled.as_str()]);
    }
    list
}

pub(super) fn call(kind: CallKind) -> i64 {
    1 + CallKind::ALL.iter().position(|k| *k == kind).unwrap_or(0) as i64
}

pub(super) fn range(name: &str) -> Option<i64> {
    let at = REGISTERED.iter().position(|n| *n == name)?;
    Some((1 + CallKind::ALL.len() + at) as i64)
}

pub(super) fn thread(thread: usize) -> i64 {
    (1 + CallKind::ALL.len() + REGISTERED.len() + thread) as i64
}

/// Returns the ids of the demangled, short and mangled name.
pub(super) fn kernel(name: u16) -> [i64; 3] {
    let first = thread(THREADS.len()) + 3 * i64::from(name);
    [first, first + 1, first + 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positions() {
        let list = all();
        let at = |id: i64| list[id as usize];
        assert_eq!(at(call(CallKind::Query)), CallKind::Query.versioned());
        assert_eq!(at(range("decode_step").unwrap()), "decode_step");
        assert_eq!(at(thread(1)), "loader");
        assert_eq!(at(kernel(5)[0]), names::kernel(5));
        assert_eq!(range("sam"), None);
    }
}
