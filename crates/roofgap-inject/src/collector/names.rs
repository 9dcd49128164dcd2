//! Names of domains, registered strings, categories and threads, kept for the life of the process.
//!
//! A lock-free list that only grows. The writer reads new entries. A forked child with its own recording reads all of it,
//! because handles from before the fork are still in use.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::duty;
use roofgap_wire::{Category, Domain, Record, Registered, Text, ThreadName};

static HEAD: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
static NEXT_DOMAIN: AtomicU32 = AtomicU32::new(1);
static NEXT_STRING: AtomicU32 = AtomicU32::new(1);

/// Owner of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    Domain { id: u32 },
    String { id: u32, domain: u32 },
    Category { id: u32, domain: u32 },
    Thread { tid: u32 },
}

struct Node {
    named: Named,
    text: Box<[u8]>,
    next: *const Node,
}

/// Adds a domain and returns its id.
pub fn add_domain(name: &[u8]) -> u32 {
    let id = NEXT_DOMAIN.fetch_add(1, Ordering::Relaxed);
    add(Named::Domain { id }, name);
    id
}

/// Adds a registered string and returns its id.
pub fn add_string(domain: u32, text: &[u8]) -> u32 {
    let id = NEXT_STRING.fetch_add(1, Ordering::Relaxed);
    duty::register(id, text);
    add(Named::String { id, domain }, text);
    id
}

/// Adds a name.
pub fn add(named: Named, text: &[u8]) {
    let node = Box::leak(Box::new(Node { named, text: text.into(), next: ptr::null() }));
    let mut head = HEAD.load(Ordering::Relaxed);
    loop {
        node.next = head;
        match HEAD.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Position of a reader in the list.
pub struct Seen(*const Node);

// SAFETY: nodes are never changed after they are in the list, and never freed.
unsafe impl Send for Seen {}

impl Seen {
    /// Creates a position before all names.
    pub fn nothing() -> Self {
        Self(ptr::null())
    }

    /// Calls `take` with each name added since the last call.
    pub fn each_new(&mut self, mut take: impl FnMut(Record<'_>)) {
        let head = HEAD.load(Ordering::Acquire).cast_const();
        let mut node = head;
        while !node.is_null() && node != self.0 {
            // SAFETY: in the list, so complete and never freed.
            let entry = unsafe { &*node };
            let text = Text(&entry.text);
            take(match entry.named {
                Named::Domain { id } => Record::Domain(Domain { id, name: text }),
                Named::String { id, domain } => Record::Registered(Registered { id, domain, text }),
                Named::Category { id, domain } => Record::Category(Category { domain, id, name: text }),
                Named::Thread { tid } => Record::ThreadName(ThreadName { tid, given: 1, name: text }),
            });
            node = entry.next;
        }
        self.0 = head;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_seen_once_by_each_reader() {
        let mut seen = Seen::nothing();
        seen.each_new(|_| {});
        let domain = add_domain(b"names-test");
        let string = add_string(domain, b"names-test-string");
        let count = |seen: &mut Seen| {
            let mut texts = Vec::new();
            seen.each_new(|record| match record {
                Record::Domain(entry) if entry.id == domain => texts.push(entry.name.to_str().into_owned()),
                Record::Registered(entry) if entry.id == string => {
                    texts.push(entry.text.to_str().into_owned())
                }
                _ => {}
            });
            texts.sort();
            texts
        };
        assert_eq!(count(&mut seen), ["names-test", "names-test-string"]);
        assert!(count(&mut seen).is_empty());
        assert_eq!(count(&mut Seen::nothing()).len(), 2);
    }
}
