//! The sweep against a plain computation, and odd inputs.

use super::{ROOT, sweep};
use crate::timeline::HostGap;
use proptest::prelude::*;
use roofgap_trace::{HostFrame, HostSpan, NameId, Ns, ThreadId, Trace};

const THREAD: ThreadId = ThreadId(0);

fn trace(spans: &[(Ns, Ns)]) -> Trace {
    let mut trace = Trace::default();
    let process = trace.add_process(1, "");
    trace.add_thread(process, 1, "");
    let file = trace.names.intern("");
    for (at, &(start, end)) in spans.iter().enumerate() {
        let function = trace.names.intern(&format!("f{at}"));
        let frame = trace.stacks.intern(HostFrame { function, file, line: 0 });
        trace.stacks.spans.push(HostSpan { thread: THREAD, start, end, frame });
    }
    trace.sort();
    trace
}

fn gaps(list: &[(Ns, Ns)]) -> Vec<(u32, HostGap)> {
    let gap = |&(start, end): &(Ns, Ns)| HostGap { thread: Some(THREAD), start, end, waits: false };
    list.iter().map(|times| (0, gap(times))).collect()
}

/// Makes spans that lie inside one another or apart.
fn nested(start: Ns, end: Ns, cuts: &[u8], list: &mut Vec<(Ns, Ns)>) {
    if let Some((cut, rest)) = cuts.split_first()
        && end - start > 4
    {
        let middle = start + 2 + Ns::from(*cut) % (end - start - 3);
        list.push((start + 1, middle));
        let (left, right) = rest.split_at(rest.len() / 2);
        nested(start + 1, middle, left, list);
        nested(middle, end, right, list);
    }
}

proptest! {
    #[test]
    fn each_moment_counts_for_the_innermost_call(
        cuts in prop::collection::vec(any::<u8>(), 0..24),
        times in prop::collection::vec((0i64..300, 1i64..40), 0..12),
    ) {
        let mut spans = Vec::new();
        nested(0, 300, &cuts, &mut spans);
        let list: Vec<(Ns, Ns)> = times.iter().map(|(start, length)| (*start, start + length)).collect();
        let trace = trace(&spans);
        let (nodes, sums) = sweep(&trace, gaps(&list), 1);
        let (parts, unknown) = sums[0].parts();
        let mut expected = vec![0; spans.len() + 1];
        for moment in list.iter().flat_map(|(start, end)| *start..*end) {
            let around = (0..spans.len()).filter(|at| spans[*at].0 <= moment && moment < spans[*at].1);
            expected[around.min_by_key(|at| spans[*at].1 - spans[*at].0).unwrap_or(spans.len())] += 1;
        }
        prop_assert_eq!(unknown, expected.pop().unwrap());
        for (at, ns) in expected.into_iter().enumerate() {
            let name = trace.names.find(&format!("f{at}")).unwrap_or(NameId(u32::MAX));
            let own = parts.iter().filter(|(node, _)| nodes.list()[*node as usize].1.function == name);
            prop_assert_eq!(own.map(|(_, part)| part.ns).sum::<Ns>(), ns);
        }
    }

    /// Calls that overlap as no program's do, as in a damaged trace.
    #[test]
    fn the_parts_add_up_whatever_the_calls(
        spans in prop::collection::vec((0i64..300, 0i64..300), 0..40),
        times in prop::collection::vec((0i64..300, 1i64..40), 0..12),
    ) {
        let spans: Vec<(Ns, Ns)> = spans.iter().map(|(a, b)| (*a.min(b), *a.max(b))).collect();
        let list: Vec<(Ns, Ns)> = times.iter().map(|(start, length)| (*start, start + length)).collect();
        let (nodes, sums) = sweep(&trace(&spans), gaps(&list), 1);
        let (parts, unknown) = sums[0].parts();
        let idle: Ns = list.iter().map(|(start, end)| end - start).sum();
        prop_assert_eq!(sums[0].idle_ns, idle);
        prop_assert_eq!(parts.iter().map(|(_, part)| part.ns).sum::<Ns>() + unknown, idle);
        prop_assert!(parts.iter().all(|(node, part)| *node != ROOT && part.ns > 0 && (*node as usize) < nodes.list().len()));
    }
}

#[test]
fn idle_time_without_a_thread_is_unknown() {
    let gap = HostGap { thread: None, start: 3, end: 9, waits: false };
    let (_, sums) = sweep(&trace(&[(0, 20)]), vec![(0, gap)], 1);
    assert_eq!((sums[0].parts(), sums[0].idle_ns), ((Vec::new(), 6), 6));
}
