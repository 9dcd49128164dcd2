//! One pass over the calls and samples of each thread, beside the idle time that it is responsible for.

use crate::timeline::{Grouped, HostGap};
use roofgap_base::stats::median;
use roofgap_trace::{HostFrame, HostSample, HostSpan, Ns, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// The node around all functions.
pub const ROOT: u32 = 0;

/// Most functions around another. Deeper ones count for the function at this depth.
const DEEPEST: usize = 512;

/// Stacks as a tree: the node around each node, which comes before it, and its function.
pub struct Nodes(Grouped<(u32, HostFrame), (u32, HostFrame)>);

impl Nodes {
    /// Returns the nodes.
    pub fn list(&self) -> &[(u32, HostFrame)] {
        &self.0.items
    }

    fn child(&mut self, parent: u32, frame: HostFrame) -> u32 {
        self.0.position((parent, frame), || (parent, frame)) as u32
    }

    /// Iterates over a node and all around it, innermost first, without the root.
    pub fn upwards(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let around = |node: &u32| self.list().get(*node as usize).map(|(parent, _)| *parent);
        std::iter::successors(Some(node), around).take_while(|node| *node != ROOT)
    }
}

/// Idle time of a stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// All of it, ns.
    pub ns: Ns,
    /// Part in which the thread waited for the device, ns.
    pub wait_ns: Ns,
    /// Part that was estimated from samples, ns.
    pub sampled_ns: Ns,
    /// Number of samples.
    pub samples: u64,
}

impl Part {
    pub fn add(&mut self, other: Self) {
        self.ns += other.ns;
        self.wait_ns += other.wait_ns;
        self.sampled_ns += other.sampled_ns;
        self.samples += other.samples;
    }
}

/// Idle time of one stage.
#[derive(Debug, Default)]
pub struct Sums {
    /// All of it, ns.
    pub idle_ns: Ns,
    /// Part without a call around it, ns.
    pub bare_ns: Ns,
    /// Samples in that part.
    pub samples: u64,
    /// Times of stacks that were recorded exactly, by node.
    exact: FxHashMap<u32, Part>,
    /// Samples by node. Each stands for the time between two samples of its thread.
    sampled: FxHashMap<u32, Part>,
}

impl Sums {
    /// Returns the time of each stack and the time without any, which add up to the idle time. More samples than there is time for
    /// share that time.
    pub fn parts(&self) -> (Vec<(u32, Part)>, Ns) {
        let bare = i128::from(self.bare_ns);
        let all = self.sampled.values().map(|part| i128::from(part.ns)).sum::<i128>().max(bare).max(1);
        // Rounded sums differ by rounded parts, which therefore add up.
        let scaled = |ns: i128| (ns * bare / all) as Ns;
        let mut parts = self.exact.clone();
        let mut sampled: Vec<(&u32, &Part)> = self.sampled.iter().collect();
        sampled.sort_unstable_by_key(|(node, _)| **node);
        let mut before = 0;
        for (node, part) in sampled {
            let ns = scaled(before + i128::from(part.ns)) - scaled(before);
            before += i128::from(part.ns);
            let wait_ns = part.wait_ns.min(ns);
            parts.entry(*node).or_default().add(Part { ns, wait_ns, sampled_ns: ns, ..*part });
        }
        let mut parts: Vec<(u32, Part)> = parts.into_iter().collect();
        parts.sort_unstable_by_key(|(node, _)| *node);
        (parts, self.bare_ns - scaled(before))
    }
}

/// Joins idle time, each with the number of its stage, with the calls and samples of its threads.
pub fn sweep(trace: &Trace, mut gaps: Vec<(u32, HostGap)>, stages: usize) -> (Nodes, Vec<Sums>) {
    let stacks = &trace.stacks;
    let mut nodes = Nodes(Grouped::default());
    nodes.0.items.push((ROOT, HostFrame::default()));
    let mut sums: Vec<Sums> = (0..stages).map(|_| Sums::default()).collect();
    gaps.sort_unstable_by_key(|(slot, gap)| (gap.thread, gap.start, gap.end, *slot));
    let mut of_stack = vec![ROOT];
    for (caller, frame) in stacks.stacks() {
        of_stack.push(nodes.child(of_stack[caller.index()], stacks.frame(*frame)));
    }
    for gaps in gaps.chunk_by(|a, b| a.1.thread == b.1.thread) {
        let thread = gaps.first().and_then(|(_, gap)| gap.thread);
        let samples = of_thread(&stacks.samples, thread, |row| row.thread);
        let mut steps: Vec<Ns> =
            samples.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at)).collect();
        let step_ns = median(&mut steps).unwrap_or(0).max(0);
        let (next, active, of_stack, sums) = (0, Vec::new(), &of_stack[..], &mut sums[..]);
        let mut meter = Meter { gaps, next, active, samples, of_stack, sums, step_ns };
        meter.run(trace, of_thread(&stacks.spans, thread, |row| row.thread), &mut nodes);
    }
    (nodes, sums)
}

/// Returns the rows of one thread, of rows in the order of threads.
fn of_thread<T>(rows: &[T], thread: Option<ThreadId>, of: impl Fn(&T) -> ThreadId) -> &[T] {
    let first = rows.partition_point(|row| thread.is_none_or(|thread| of(row) < thread));
    let end = rows.partition_point(|row| thread.is_none_or(|thread| of(row) <= thread));
    rows.get(first..end).unwrap_or_default()
}

/// The idle time of one thread while time goes on.
struct Meter<'a> {
    gaps: &'a [(u32, HostGap)],
    /// First gap that has not begun.
    next: usize,
    /// Gaps that have begun and not ended.
    active: Vec<usize>,
    samples: &'a [HostSample],
    of_stack: &'a [u32],
    sums: &'a mut [Sums],
    /// Usual time between two samples, ns.
    step_ns: Ns,
}

impl Meter<'_> {
    /// Goes through the calls of the thread, which come in the order of nesting. A call that outlasts the one around it ends with it.
    fn run(&mut self, trace: &Trace, spans: &[HostSpan], nodes: &mut Nodes) {
        let mut open: Vec<(Ns, u32)> = Vec::new();
        let mut now = Ns::MIN;
        for span in spans {
            // Most calls lie between two gaps.
            let begins = self.gaps.get(self.next).map_or(Ns::MAX, |(_, gap)| gap.start);
            if self.active.is_empty() && begins >= span.end {
                continue;
            }
            while let Some((end, node)) = open.pop_if(|(end, _)| *end <= span.start) {
                now = self.until(now, end, node);
            }
            let (limit, around) = open.last().copied().unwrap_or((Ns::MAX, ROOT));
            now = self.until(now, span.start, around);
            if open.len() < DEEPEST {
                open.push((span.end.min(limit), nodes.child(around, trace.stacks.frame(span.frame))));
            }
        }
        while let Some((end, node)) = open.pop() {
            now = self.until(now, end, node);
        }
        self.until(now, Ns::MAX, ROOT);
    }

    /// Adds the time from one moment to another, in which a node is the innermost, to the gaps in it. Returns the later moment.
    fn until(&mut self, now: Ns, end: Ns, node: u32) -> Ns {
        while self.gaps.get(self.next).is_some_and(|(_, gap)| gap.start < end) {
            self.active.push(self.next);
            self.next += 1;
        }
        let mut active = std::mem::take(&mut self.active);
        for (slot, gap) in active.iter().filter_map(|at| self.gaps.get(*at)) {
            let (from, to) = (gap.start.max(now), gap.end.min(end));
            if let Some(sums) = self.sums.get_mut(*slot as usize).filter(|_| from < to) {
                let part = |ns: Ns| Part { ns, wait_ns: if gap.waits { ns } else { 0 }, ..Part::default() };
                sums.idle_ns += to - from;
                if node != ROOT {
                    sums.exact.entry(node).or_default().add(part(to - from));
                    continue;
                }
                sums.bare_ns += to - from;
                let first = self.samples.partition_point(|sample| sample.at < from);
                for sample in self.samples[first..].iter().take_while(|sample| sample.at < to) {
                    sums.samples += 1;
                    let stack = self.of_stack.get(sample.stack.index()).filter(|node| **node != ROOT);
                    if let Some(node) = stack {
                        let sampled = Part { samples: 1, ..part(self.step_ns) };
                        sums.sampled.entry(*node).or_default().add(sampled);
                    }
                }
            }
        }
        active.retain(|at| self.gaps.get(*at).is_some_and(|(_, gap)| gap.end > end));
        self.active = active;
        end.max(now)
    }
}
