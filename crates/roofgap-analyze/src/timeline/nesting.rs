//! From a call to the innermost range or operator around it, as a node of a tree.
//!
//! The rule is that of [`Contexts`](super::Contexts): an item encloses a call that it starts and ends with or outlasts.

use roofgap_trace::{Ns, ThreadId};
use std::cmp::Reverse;

/// A range, an operator or a module on its thread.
#[derive(Debug, Clone, Copy)]
pub struct Scope<K> {
    /// Thread.
    pub thread: ThreadId,
    /// Start, ns.
    pub start: Ns,
    /// End, ns.
    pub end: Ns,
    /// Identity below the item around it.
    pub key: K,
}

/// An item that has not ended, with its node.
struct Open<K, N> {
    end: Ns,
    key: K,
    node: N,
}

/// The items that are open on a thread, outermost first.
struct OpenScopes<K, N> {
    thread: Option<ThreadId>,
    open: Vec<Open<K, N>>,
    root: N,
}

/// Returns the node of the innermost item around each call. `calls` have a thread, a start and an end, ns, and are in the order of thread
/// and start. `child` gives the node of an item below a node; at most `deepest` items lie above each other, deeper ones are left out.
///
/// Items may overlap without one enclosing the other, as ranges of two domains do: an item that ended is not around a later call, even if
/// one inside it goes on.
pub fn innermost<K: Copy, N: Copy>(
    mut items: Vec<Scope<K>>,
    calls: impl Iterator<Item = (ThreadId, Ns, Ns)>,
    deepest: usize,
    root: N,
    mut child: impl FnMut(N, K) -> N,
) -> Vec<N> {
    items.sort_by_key(|item| (item.thread, item.start, Reverse(item.end)));
    let mut items = items.into_iter().peekable();
    let mut open = OpenScopes {
        thread: None,
        open: Vec::new(),
        root,
    };
    let node_of = |(thread, start, end): (ThreadId, Ns, Ns)| {
        while let Some(item) = items.next_if(|item| (item.thread, item.start) <= (thread, start)) {
            open.close(item.thread, item.start, &mut child);
            if open.open.len() < deepest {
                open.push(item.end, item.key, &mut child);
            }
        }
        open.close(thread, start, &mut child);
        open.around(end, &mut child)
    };
    calls.map(node_of).collect()
}

impl<K: Copy, N: Copy> OpenScopes<K, N> {
    /// Returns the node of the innermost item.
    fn last(&self) -> N {
        self.open.last().map_or(self.root, |item| item.node)
    }

    fn push(&mut self, end: Ns, key: K, child: &mut impl FnMut(N, K) -> N) {
        let node = child(self.last(), key);
        self.open.push(Open { end, key, node });
    }

    /// Drops the items of other threads and those that ended before a moment.
    fn close(&mut self, thread: ThreadId, at: Ns, child: &mut impl FnMut(N, K) -> N) {
        if self.thread != Some(thread) {
            self.open.clear();
            self.thread = Some(thread);
        }
        if let Some(first) = self.open.iter().position(|item| item.end < at) {
            // What is inside an item that ended goes on without it.
            let inside = self.open.split_off(first);
            for item in inside.into_iter().filter(|item| item.end >= at) {
                self.push(item.end, item.key, child);
            }
        }
    }

    /// Returns the node of the innermost item that ends at a moment or later.
    fn around(&self, end: Ns, child: &mut impl FnMut(N, K) -> N) -> N {
        if self.open.iter().all(|item| item.end >= end) {
            return self.last();
        }
        let around = self.open.iter().filter(|item| item.end >= end);
        around.fold(self.root, |node, item| child(node, item.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names around each call, outermost first. Items have a name, a start and an end.
    fn stacks(items: &[(&'static str, Ns, Ns)], calls: &[(Ns, Ns)], deepest: usize) -> Vec<String> {
        let thread = ThreadId(3);
        let items = items.iter().map(|&(key, start, end)| Scope {
            thread,
            start,
            end,
            key,
        });
        let mut paths = vec![String::new()];
        let child = |node: usize, key: &str| {
            paths.push(format!("{}{key}", paths[node]));
            paths.len() - 1
        };
        let calls = calls.iter().map(|&(start, end)| (thread, start, end));
        let nodes = innermost(items.collect(), calls, deepest, 0, child);
        nodes.into_iter().map(|node| paths[node].clone()).collect()
    }

    #[test]
    fn nested_items_are_around_the_calls_inside_them() {
        let items = [("c", 3, 4), ("a", 0, 10), ("b", 2, 5), ("d", 6, 10)];
        let calls = [(1, 1), (3, 3), (5, 5), (6, 7), (9, 10), (11, 12)];
        assert_eq!(stacks(&items, &calls, 9), ["a", "abc", "ab", "ad", "ad", ""]);
        assert_eq!(stacks(&items, &calls, 1), ["a", "a", "a", "a", "a", ""]);
    }

    #[test]
    fn an_item_that_ended_is_around_nothing_later() {
        // Two domains: the first ends inside the second.
        let items = [("a", 0, 10), ("b", 5, 20), ("c", 6, 15)];
        let calls = [(7, 8), (12, 13), (16, 17)];
        assert_eq!(stacks(&items, &calls, 9), ["abc", "bc", "b"]);
    }

    #[test]
    fn a_call_that_outlasts_an_item_is_not_inside_it() {
        let items = [("a", 0, 30), ("b", 0, 10), ("c", 10, 20)];
        let calls = [(4, 10), (5, 11), (10, 10), (10, 12), (15, 25), (16, 18)];
        assert_eq!(stacks(&items, &calls, 9), ["ab", "a", "abc", "ac", "a", "ac"]);
    }

    #[test]
    fn the_work_is_bounded_by_the_depth() {
        // Every item ends soon after the last begins, from the outermost to the innermost.
        let count = 2_000;
        let items: Vec<(&str, Ns, Ns)> = (0..count).map(|at| ("x", at, count + at)).collect();
        let calls: Vec<(Ns, Ns)> = (0..count).map(|at| (count + at, count + at)).collect();
        let mut children = 0u64;
        let items = items.iter().map(|&(key, start, end)| Scope {
            thread: ThreadId(0),
            start,
            end,
            key,
        });
        let calls = calls.iter().map(|&(start, end)| (ThreadId(0), start, end));
        innermost(items.collect(), calls, 16, 0, |node: u32, _| {
            children += 1;
            node + 1
        });
        assert!(children < 16 * 3 * count as u64, "{children}");
    }
}
