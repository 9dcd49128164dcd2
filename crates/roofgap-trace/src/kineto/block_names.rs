//! Names of a block of events in the trace.

use super::rows::Rows;
use crate::native::demangle;
use crate::{NameId, Trace};

/// The trace's ids of a block's names, taken when they are first needed.
pub struct BlockNames<'r> {
    rows: &'r Rows,
    ids: Vec<Option<NameId>>,
}

impl<'r> BlockNames<'r> {
    /// Takes the names of a block, none of which has an id yet.
    pub fn of(rows: &'r Rows) -> Self {
        let ids = vec![None; rows.names.len()];
        Self { rows, ids }
    }

    /// Returns the text of a name.
    pub fn text(&self, name: u32) -> &str {
        self.rows.names.get(name as usize).map_or("", |n| n)
    }

    /// Returns the trace's id of a name.
    pub fn get(&mut self, name: u32, trace: &mut Trace) -> NameId {
        let text = || self.rows.names.get(name as usize).map_or("", |n| n);
        match self.ids.get_mut(name as usize) {
            Some(id) => *id.get_or_insert_with(|| trace.names.intern(text())),
            None => trace.names.intern(text()),
        }
    }

    /// Returns the id of a kernel name. The profiler leaves some names mangled; nsys never does.
    pub fn get_demangled(&mut self, name: u32, trace: &mut Trace) -> NameId {
        let known = self.ids.get(name as usize).copied().flatten();
        let text = self.rows.names.get(name as usize).map_or("", |n| n);
        let readable = if known.is_none() { demangle(text) } else { None };
        if let (Some(slot), Some(readable)) = (self.ids.get_mut(name as usize), readable) {
            *slot = Some(trace.names.intern(&readable));
        }
        self.get(name, trace)
    }
}
