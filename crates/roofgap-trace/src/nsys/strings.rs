//! The strings of an export by their id.

use crate::NameId;
use rustc_hash::FxHashMap;

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
    use super::*;

    #[test]
    fn ids_may_be_any_number() {
        let mut strings = Strings::default();
        for (name, id) in [0, 3, -5, i64::MAX, 1 << 40, 4100, 10_000, 9_000].into_iter().enumerate() {
            strings.insert(id, NameId(name as u32));
        }
        let found = |id| strings.get(id).map(|n: NameId| n.0);
        assert_eq!([0, 3, -5, i64::MAX].map(found), [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!([1 << 40, 4100, 10_000, 9_000].map(found), [Some(4), Some(5), Some(6), Some(7)]);
        assert_eq!([1, 2, -1, 5000, i64::MIN].map(found), [None; 5]);
    }
}
