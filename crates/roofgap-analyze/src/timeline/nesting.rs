//! From a call to the innermost range or operator around it, as a node of a tree.
//!
//! The rule is that of [`Contexts`](super::Contexts): an item encloses a call that it starts and ends with or outlasts.

use roofgap_trace::{NameId, Ns, Range, RangeStyle, ThreadId, Trace};
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

impl<K> Scope<K> {
    /// Creates the scope of a range.
    pub fn of_range(range: &Range, key: K) -> Self {
        Self { thread: range.thread, start: range.start, end: range.end, key }
    }

    /// Returns the order of nesting: an item comes before those inside it.
    pub fn order(&self) -> (ThreadId, Ns, Reverse<Ns>) {
        (self.thread, self.start, Reverse(self.end))
    }
}

/// Iterates over the push/pop ranges and operators of a trace in the order of nesting, with the keys that the functions give them.
pub fn scopes<'t, K: Copy + 't>(
    trace: &'t Trace,
    range_key: impl Fn(&Range) -> K + 't,
    operator_key: impl Fn(NameId) -> K + 't,
) -> impl Iterator<Item = Scope<K>> + 't {
    let rows = &trace.ranges.rows;
    let mut ranges: Vec<u32> = (0u32..)
        .zip(rows)
        .filter(|(_, range)| range.style == RangeStyle::PushPop)
        .map(|(row, _)| row)
        .collect();
    // Rows keep the order of ranges with equal times.
    ranges.sort_unstable_by_key(|&row| (Scope::of_range(&rows[row as usize], ()).order(), row));
    let mut ranges = ranges
        .into_iter()
        .map(move |row| {
            let range = &rows[row as usize];
            Scope::of_range(range, range_key(range))
        })
        .peekable();
    let cpu = &trace.cpu_ops;
    let mut operators = (0..cpu.len())
        .map(move |row| Scope {
            thread: cpu.thread[row],
            start: cpu.start[row],
            end: cpu.end[row],
            key: operator_key(cpu.name[row]),
        })
        .peekable();
    std::iter::from_fn(move || {
        let operator = operators.peek().map(Scope::order);
        ranges
            .next_if(|range| operator.is_none_or(|operator| range.order() <= operator))
            .or_else(|| operators.next())
    })
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

/// Returns the node of the innermost item around each call. `items` are in the order of nesting. `calls` have a thread, a start and an
/// end, ns, and are in the order of thread and start. `child` gives the node of an item below a node; at most `deepest` items lie
/// above each other, deeper ones are left out.
///
/// Items may overlap without one enclosing the other, as ranges of two domains do: an item that ended is not around a later call, even if
/// one inside it goes on.
pub fn innermost<K: Copy, N: Copy>(
    items: impl Iterator<Item = Scope<K>>,
    calls: impl Iterator<Item = (ThreadId, Ns, Ns)>,
    deepest: usize,
    root: N,
    mut child: impl FnMut(N, K) -> N,
) -> Vec<N> {
    let mut items = items.peekable();
    let mut open = OpenScopes { thread: None, open: Vec::new(), root };
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
        let items = items.iter().map(|&(key, start, end)| Scope { thread, start, end, key });
        let mut items: Vec<_> = items.collect();
        items.sort_by_key(Scope::order);
        let mut paths = vec![String::new()];
        let child = |node: usize, key: &str| {
            paths.push(format!("{}{key}", paths[node]));
            paths.len() - 1
        };
        let calls = calls.iter().map(|&(start, end)| (thread, start, end));
        let nodes = innermost(items.into_iter(), calls, deepest, 0, child);
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
    fn ranges_and_operators_come_in_the_order_of_nesting() {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "");
        let threads = [1, 2].map(|tid| trace.add_thread(process, tid, ""));
        let mut range = |thread: usize, start: Ns, end: Ns, style: RangeStyle, name: &str| {
            let (domain, name) = (trace.names.intern(""), trace.names.intern(name));
            let (thread, end_thread) = (threads[thread], threads[thread]);
            trace.ranges.rows.push(Range {
                start,
                end,
                domain,
                name,
                process,
                thread,
                end_thread,
                style,
                open: false,
            });
        };
        range(1, 0, 50, RangeStyle::PushPop, "other thread");
        range(0, 0, 100, RangeStyle::PushPop, "outer");
        range(0, 10, 20, RangeStyle::StartEnd, "overlaps");
        range(0, 10, 20, RangeStyle::PushPop, "inner");
        range(0, 10, 20, RangeStyle::PushPop, "innermost");
        for (start, end, name) in [(0, 120, "all"), (10, 20, "operator"), (30, 40, "last")] {
            let name = trace.names.intern(name);
            trace.cpu_ops.push(start, end, name, threads[0]);
        }
        let names = scopes(&trace, |range| range.name, |name| name).map(|scope| trace.names.get(scope.key));
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["all", "outer", "inner", "innermost", "operator", "last", "other thread"]
        );
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
        let items = items.iter().map(|&(key, start, end)| Scope { thread: ThreadId(0), start, end, key });
        let calls = calls.iter().map(|&(start, end)| (ThreadId(0), start, end));
        innermost(items, calls, 16, 0, |node: u32, _| {
            children += 1;
            node + 1
        });
        assert!(children < 16 * 3 * count as u64, "{children}");
    }
}
