//! Strings held once.

use super::NameId;
use rustc_hash::FxHashMap;

/// An interner: every distinct string once, rows hold the id.
#[derive(Debug, Clone, Default)]
pub struct Names {
    strings: Vec<Box<str>>,
    ids: FxHashMap<Box<str>, NameId>,
}

impl Names {
    /// The id of `text`, new or known.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = NameId(self.strings.len() as u32);
        self.strings.push(text.into());
        self.ids.insert(text.into(), id);
        id
    }

    /// The id of `text` if it was seen before.
    pub fn find(&self, text: &str) -> Option<NameId> {
        self.ids.get(text).copied()
    }

    /// The string of an id; empty for an id of another trace.
    pub fn get(&self, id: NameId) -> &str {
        self.strings.get(id.index()).map_or("", |s| s)
    }

    /// Returns the number of distinct strings.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Returns true if no string was interned.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// Every id with its string, in the order of first sight.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, &str)> {
        self.strings
            .iter()
            .enumerate()
            .map(|(i, s)| (NameId(i as u32), &**s))
    }
}
