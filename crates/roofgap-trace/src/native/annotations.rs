//! Joins the NVTX events of threads into ranges and marks.

use super::identity::Identity;
use super::reader::moment;
use crate::{GraphNodes, LossKind, Mark, NameId, Ns, ProcessId, Range, RangeStyle, Trace};
use roofgap_wire::{EventKind, GraphNode, Message, NvtxEnd, NvtxEvent, NvtxPop};
use rustc_hash::FxHashMap;

/// Name of an event, as far as it is known when the event is read.
#[derive(Debug, Clone, Copy)]
enum Called {
    Nothing,
    Text(NameId),
    Registered(u32),
}

#[derive(Debug, Clone, Copy)]
struct Row {
    start: u64,
    end: Option<u64>,
    domain: u32,
    called: Called,
    tid: u32,
    end_tid: u32,
    style: RangeStyle,
}

/// The annotations of one process.
#[derive(Debug, Default)]
pub struct Annotations {
    rows: Vec<Row>,
    marks: Vec<(u64, u32, Called, u32)>,
    /// Open push/pop ranges by thread and domain: positions in `rows`.
    stacks: FxHashMap<(u32, u32), Vec<usize>>,
    /// Open start/end ranges by their number.
    started: FxHashMap<u64, usize>,
    /// Names of domains.
    pub domains: FxHashMap<u32, NameId>,
    /// Registered strings.
    pub strings: FxHashMap<u32, NameId>,
    /// Ends without a beginning, as those of ranges that were open when the capture began.
    strays: u64,
    /// Pushes and pops so far.
    edges: u64,
}

impl Annotations {
    pub fn event(&mut self, event: &NvtxEvent<'_>, trace: &mut Trace) {
        let called = match event.message {
            Message::None => Called::Nothing,
            Message::Inline(text) => Called::Text(trace.names.intern(&text.to_str())),
            Message::Registered(id) => Called::Registered(id),
        };
        let (tid, domain) = (event.tid, event.domain);
        let style = match event.kind {
            EventKind::Mark => return self.marks.push((event.at, domain, called, tid)),
            EventKind::Push => RangeStyle::PushPop,
            EventKind::Start => RangeStyle::StartEnd,
        };
        let at = self.rows.len();
        self.edges += 1;
        match style {
            RangeStyle::PushPop => self.stacks.entry((tid, domain)).or_default().push(at),
            RangeStyle::StartEnd => drop(self.started.insert(event.range, at)),
        }
        self.rows.push(Row { start: event.at, end: None, domain, called, tid, end_tid: tid, style });
    }

    pub fn pop(&mut self, pop: &NvtxPop) {
        self.edges += 1;
        let open = self.stacks.get_mut(&(pop.tid, pop.domain)).and_then(Vec::pop);
        self.close(open, pop.at, pop.tid);
    }

    pub fn end(&mut self, end: &NvtxEnd) {
        let open = self.started.remove(&end.range);
        self.close(open, end.at, end.tid);
    }

    fn close(&mut self, open: Option<usize>, at: u64, tid: u32) {
        match open.and_then(|row| self.rows.get_mut(row)) {
            Some(row) => {
                row.end = Some(at);
                row.end_tid = tid;
            }
            None => self.strays += 1,
        }
    }

    /// Returns the open push/pop ranges of a thread, outermost first, by their number; at most [`GraphNodes::DEEPEST`].
    pub fn open_on(&self, tid: u32) -> Vec<usize> {
        let stacks = self.stacks.iter().filter(|((thread, _), _)| *thread == tid);
        let outer = stacks.flat_map(|(_, rows)| rows.iter().copied().take(GraphNodes::DEEPEST));
        let mut open: Vec<usize> = outer.collect();
        open.sort_unstable();
        open.truncate(GraphNodes::DEEPEST);
        open
    }

    fn name_of(&self, called: Called) -> Option<NameId> {
        match called {
            Called::Nothing => None,
            Called::Text(name) => Some(name),
            Called::Registered(id) => self.strings.get(&id).copied(),
        }
    }

    /// Puts everything into the trace. Ranges that were never closed end at `last`.
    pub fn settle(self, process: ProcessId, last: Ns, who: &mut Identity, trace: &mut Trace) {
        let empty = trace.names.intern("");
        let (mut nameless, mut homeless, mut missing) = (0, 0, 0);
        let mut resolve = |called: Called, domain: u32| {
            let name = self.name_of(called);
            missing += u64::from(name.is_none() && matches!(called, Called::Registered(_)));
            nameless += u64::from(name.is_none());
            let home = self.domains.get(&domain).copied();
            homeless += u64::from(home.is_none() && domain != 0);
            (name.unwrap_or(empty), home.unwrap_or(empty))
        };
        for row in &self.rows {
            let (name, domain) = resolve(row.called, row.domain);
            let (start, open) = (moment(row.start), row.end.is_none());
            let end = row.end.map_or(last.max(start), moment);
            if end < start {
                trace.losses.add(LossKind::RangeNegative, 1);
                continue;
            }
            let thread = who.thread(process, row.tid, trace);
            let end_thread = who.thread(process, row.end_tid, trace);
            trace.losses.add(LossKind::RangeOpen, u64::from(open));
            trace.losses.add(LossKind::RangeCrossThread, u64::from(end_thread != thread));
            trace.ranges.rows.push(Range {
                start,
                end,
                domain,
                name,
                process,
                thread,
                end_thread,
                style: row.style,
                open,
            });
        }
        for (at, domain, called, tid) in &self.marks {
            let (name, domain) = resolve(*called, *domain);
            let thread = who.thread(process, *tid, trace);
            trace.ranges.marks.push(Mark { at: moment(*at), domain, name, thread });
        }
        trace.losses.add(LossKind::RangeNoName, nameless);
        trace.losses.add(LossKind::RangeNoDomain, homeless);
        trace.losses.add(LossKind::NameMissing, missing);
        trace.losses.add(LossKind::RangeBegunBefore, self.strays);
    }
}

/// The graph nodes of one process.
#[derive(Debug, Default)]
pub struct NodeRanges {
    /// Open ranges by their number, outermost first; nodes share them.
    stacks: Vec<Vec<usize>>,
    of_node: FxHashMap<u64, u32>,
    /// The last stack of each thread, and the number of range edges at that moment.
    last: FxHashMap<u32, (u64, u32)>,
}

impl NodeRanges {
    /// Adds a node. The events of its thread before it have been read.
    pub fn add(&mut self, node: &GraphNode, annotations: &Annotations) {
        if node.original != 0 {
            // The original of a graph that was captured before the recording is unknown, and so is its clone.
            match self.of_node.get(&node.original).copied() {
                Some(stack) => self.of_node.insert(node.node, stack),
                None => self.of_node.remove(&node.node),
            };
            return;
        }
        let edges = annotations.edges;
        let stack = match self.last.get(&node.tid) {
            Some((at, stack)) if *at == edges => *stack,
            _ => {
                self.stacks.push(annotations.open_on(node.tid));
                self.stacks.len() as u32 - 1
            }
        };
        self.last.insert(node.tid, (edges, stack));
        self.of_node.insert(node.node, stack);
    }

    /// Puts the nodes into the trace.
    pub fn settle(self, process: ProcessId, annotations: &Annotations, trace: &mut Trace) {
        let names = |stack: &Vec<usize>| -> Vec<NameId> {
            stack
                .iter()
                .filter_map(|range| annotations.name_of(annotations.rows.get(*range)?.called))
                .collect()
        };
        let stacks: Vec<Vec<NameId>> = self.stacks.iter().map(names).collect();
        for (node, stack) in self.of_node {
            if let Some(ranges) = stacks.get(stack as usize) {
                trace.graph_nodes.insert(process, node, ranges);
            }
        }
    }
}
