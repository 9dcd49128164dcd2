//! What the CPU did while the GPU waited: idle time of each stage by function of the launching thread.
//!
//! Calls with exact times come first. Where none is around a moment, samples tell: each stands for the time between two samples of its
//! thread. Time that neither explains stays unknown, so that the parts add up to the idle time.

#[cfg(test)]
mod tests;

use crate::engines::part_of;
use crate::gpu::UserLimits;
use crate::result::{HostCall, HostFunction, HostIdle, HostKind, Stage};
use crate::stages::StageIndex;
use crate::timeline::{Activity, CopyMeter, Grouped, HostGap, HostWork, StageMeter};
use roofgap_base::stats::{median, proportion_interval};
use roofgap_trace::frames::MODULE;
use roofgap_trace::{HostFrame, HostSample, HostSpan, NOT_RUNNING, NameId, Ns, ThreadId, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::LazyLock;

/// Most functions of a stage that are listed.
const MOST_FUNCTIONS: usize = 60;

/// Idle time by stack of some stages.
struct HostJoin<'t> {
    trace: &'t Trace,
    nodes: Nodes,
    /// By node.
    places: Vec<Place>,
    /// By stage.
    sums: Vec<Sums>,
    /// Functions that sleep until the next turn of a fixed rate.
    rates: FxHashSet<NameId>,
}

/// A node as the tables show it.
#[derive(Clone, Copy)]
struct Place {
    /// Class of the module whose call led here through plumbing alone.
    class: Option<NameId>,
    /// Nearest node around it, or itself, with a line of its own.
    site: Option<u32>,
    plumbing: bool,
}

/// Idle time of a stage by stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostStack {
    /// Functions, outermost first. Those of one part of an engine that call each other stand below its name.
    pub functions: Vec<String>,
    /// Idle time, ns.
    pub ns: Ns,
}

/// Adds the functions of the launching threads to the stages of an analysis. Nothing is added without stacks.
pub fn attach(stages: &mut [Stage], meter: &StageMeter<'_>) {
    if meter.trace.stacks.is_empty() || stages.len() != meter.index.len() {
        return;
    }
    let warm = (0..stages.len()).map(|at| meter.index.warm(at)).filter(|warm| *warm >= stages.len());
    let parts: Vec<usize> = (0..stages.len()).chain(warm).collect();
    let join = HostJoin::of_stages(meter, &parts);
    for (at, stage) in stages.iter_mut().enumerate() {
        (stage.host, stage.host_idle) = join.functions(at);
        let warm = parts.iter().position(|part| *part == meter.index.warm(at));
        if let (Some(stage), Some(warm)) = (&mut stage.warm, warm) {
            (stage.host, stage.host_idle) = join.functions(warm);
        }
    }
}

/// Returns the idle time of each stage by stack of the launching thread, the longest first; nothing without stacks.
pub fn host_stacks(trace: &Trace, index: &StageIndex) -> Vec<Vec<HostStack>> {
    if trace.stacks.is_empty() {
        return Vec::new();
    }
    let (activity, host) = (&Activity::of(trace), &HostWork::of(trace, index));
    let (copies, members) = (&CopyMeter::new(trace, UserLimits::default()), &index.members()[..]);
    let parts: Vec<usize> = (0..index.len()).collect();
    let join = HostJoin::of_stages(
        &StageMeter { trace, index, activity, host, copies, members, periods: &[] },
        &parts,
    );
    parts.iter().map(|at| join.stacks(*at)).collect()
}

/// Returns the time of some gaps by kind of work, each with the line that has most of it; nothing without stacks.
pub fn kinds_in(trace: &Trace, gaps: Vec<HostGap>) -> Vec<(HostKind, Ns, String)> {
    if trace.stacks.is_empty() || gaps.is_empty() {
        return Vec::new();
    }
    let join = HostJoin::of_gaps(trace, gaps.into_iter().map(|gap| (0, gap)).collect(), 1);
    let mut kinds: Grouped<HostKind, (HostKind, Ns, String)> = Grouped::default();
    for row in join.functions(0).0 {
        kinds.entry(row.kind, || (row.kind, 0, row.spoken())).1 += row.self_ns;
    }
    kinds.items
}

impl<'t> HostJoin<'t> {
    /// Joins the idle time of some stages with the stacks of the trace.
    fn of_stages(meter: &StageMeter<'t>, stages: &[usize]) -> Self {
        let gaps = (0u32..)
            .zip(stages)
            .flat_map(|(slot, stage)| meter.host_gaps(*stage).into_iter().map(move |gap| (slot, gap)));
        Self::of_gaps(meter.trace, gaps.collect(), stages.len())
    }

    /// Joins gaps with the stacks of the trace, by slot.
    fn of_gaps(trace: &'t Trace, gaps: Vec<(u32, HostGap)>, slots: usize) -> Self {
        let rates = rates(trace, gaps.iter().filter_map(|(_, gap)| gap.thread).collect());
        let (nodes, sums) = sweep(trace, gaps, slots);
        let mut places: Vec<Place> = Vec::with_capacity(nodes.list().len());
        for (node, (parent, frame)) in (0u32..).zip(nodes.list()) {
            let around = places.get(*parent as usize).copied();
            let (function, file) = (trace.names.get(frame.function), trace.names.get(frame.file));
            let class = match function.starts_with(MODULE) {
                true => Some(frame.function),
                false => around.filter(|around| around.plumbing).and_then(|around| around.class),
            };
            let plumbing = is_plumbing(function, file) || function.starts_with(MODULE);
            let site = (node != ROOT && !plumbing && !file.is_empty()).then_some(node);
            places.push(Place { class, site: site.or(around.and_then(|around| around.site)), plumbing });
        }
        Self { trace, nodes, places, sums, rates }
    }

    fn frame(&self, node: u32) -> HostFrame {
        self.nodes.list()[node as usize].1
    }

    /// Returns the function of a node, with the class of its module.
    fn label(&self, node: u32) -> String {
        let function = self.trace.names.get(self.frame(node).function);
        let class = self.places[node as usize].class.map(|class| self.trace.names.get(class));
        match class.and_then(|class| class.strip_prefix(MODULE)) {
            Some(class) if function == "forward" => format!("{class}.forward"),
            _ => function.to_owned(),
        }
    }

    /// Returns the part of an engine that the function of a node belongs to.
    fn part(&self, node: u32) -> Option<String> {
        let frame = self.frame(node);
        let (function, file) = (self.trace.names.get(frame.function), self.trace.names.get(frame.file));
        part_of(file, function)
    }

    /// Returns the stacks of one stage with idle time of their own.
    fn stacks(&self, slot: usize) -> Vec<HostStack> {
        let (parts, unknown_ns) = self.sums[slot].parts();
        let stack = |(node, part): (u32, Part)| {
            let mut functions = Vec::new();
            for at in self.nodes.upwards(node) {
                let (frame, of_engine) = (self.frame(at), self.part(at));
                functions.push(match (self.trace.names.get(frame.file), frame.line) {
                    ("", _) => self.label(at),
                    (file, line) => format!("{} ({file}:{line})", self.label(at)),
                });
                let outer = self.part(self.nodes.list()[at as usize].0);
                functions.extend(of_engine.filter(|part| outer.as_ref() != Some(part)));
            }
            functions.reverse();
            HostStack { functions, ns: part.ns }
        };
        let mut stacks: Vec<HostStack> = parts.into_iter().map(stack).collect();
        if unknown_ns > 0 {
            stacks.push(HostStack { functions: vec!["(no frame or sample)".to_owned()], ns: unknown_ns });
        }
        stacks.sort_by(|a, b| (b.ns, &a.functions).cmp(&(a.ns, &b.functions)));
        stacks
    }

    /// Returns the functions of one stage by their own time, and the sums.
    fn functions(&self, slot: usize) -> (Vec<HostFunction>, Option<HostIdle>) {
        let sums = &self.sums[slot];
        let (parts, unknown_ns) = sums.parts();
        let (mut rows, mut not_running_ns) = (Rows::default(), None);
        for (node, part) in parts {
            if self.trace.names.get(self.frame(node).function) == NOT_RUNNING {
                *not_running_ns.get_or_insert(0) += part.ns;
            }
            rows.add(self, node, part);
        }
        let rows = rows.list.into_iter().filter(|row| row.part.ns > 0);
        let mut functions: Vec<HostFunction> = rows.map(|row| row.finish(self, sums)).collect();
        functions.sort_by(|a, b| {
            let (one, other) = ((b.self_ns, &a.function, &a.file), (a.self_ns, &b.function, &b.file));
            one.cmp(&other).then_with(|| a.line.cmp(&b.line))
        });
        let others = functions.split_off(functions.len().min(MOST_FUNCTIONS));
        let others_ns = others.iter().map(|row| row.self_ns).sum();
        let samples = (sums.samples > 0).then_some(sums.samples);
        (functions, Some(HostIdle { idle_ns: sums.idle_ns, others_ns, unknown_ns, samples, not_running_ns }))
    }
}

/// Rows of functions under construction.
#[derive(Default)]
struct Rows {
    /// Positions by label, file and line.
    ids: FxHashMap<(String, NameId, u32), usize>,
    /// Positions by site.
    of_site: FxHashMap<u32, usize>,
    list: Vec<Row>,
    /// Number of stacks that were added.
    added: usize,
}

/// One function.
#[derive(Default)]
struct Row {
    site: u32,
    part: Part,
    idle_ns: Ns,
    /// Number of the stack that was added last, so that a function that calls itself counts once.
    last: usize,
    /// Time in functions without a line, by label.
    calls: FxHashMap<String, Ns>,
    /// Time in code of PyTorch, ns.
    dispatch_ns: Ns,
}

impl Rows {
    fn row(&mut self, join: &HostJoin<'_>, site: u32) -> &mut Row {
        let at = *self.of_site.entry(site).or_insert_with(|| {
            let frame = join.frame(site);
            *self.ids.entry((join.label(site), frame.file, frame.line)).or_insert_with(|| {
                self.list.push(Row { site, ..Row::default() });
                self.list.len() - 1
            })
        });
        &mut self.list[at]
    }

    /// Adds the time of a stack to the functions in it.
    fn add(&mut self, join: &HostJoin<'_>, node: u32, part: Part) {
        self.added += 1;
        let added = self.added;
        // Without a line anywhere, the function itself counts.
        let site = join.places[node as usize].site.unwrap_or(node);
        let (mut called, mut dispatches) = (None, false);
        for at in join.nodes.upwards(node) {
            let place = join.places[at as usize];
            if at > site {
                dispatches |= place.plumbing;
                called = if place.plumbing { called } else { Some(at) };
            } else if at == site || place.site == Some(at) {
                let row = self.row(join, at);
                row.idle_ns += if row.last == added { 0 } else { part.ns };
                row.last = added;
            }
        }
        let row = self.row(join, site);
        row.part.add(part);
        row.dispatch_ns += if dispatches { part.ns } else { 0 };
        if let Some(called) = called {
            *row.calls.entry(join.label(called)).or_default() += part.ns;
        }
    }
}

impl Row {
    fn finish(self, join: &HostJoin<'_>, sums: &Sums) -> HostFunction {
        let (part, frame, function) = (self.part, join.frame(self.site), join.label(self.site));
        let file = join.trace.names.get(frame.file);
        let read_back = self.calls.iter().filter(|call| of_name(call.0) == Some(HostKind::HiddenSync));
        let waits_ns = read_back.map(|call| *call.1).sum::<Ns>().max(part.wait_ns);
        let mostly = self.calls.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        let most = |ns: Ns| 2 * ns > part.ns;
        let called = mostly.as_ref().filter(|(_, ns)| most(*ns)).map(|(name, _)| name.as_str());
        let sampled = part.samples > 0;
        let kind = kind_of(&function, file, called, most(self.dispatch_ns), 4 * waits_ns > part.ns);
        let sleeps_in = |name: &str| join.rates.iter().any(|rate| join.trace.names.get(*rate) == name);
        let keeps_rate = kind == HostKind::Sleep && sleeps_in(called.unwrap_or(&function));
        HostFunction {
            kind: if keeps_rate { HostKind::Rate } else { kind },
            file: (!file.is_empty()).then(|| file.to_owned()),
            line: (frame.line > 0).then_some(frame.line),
            part: join.part(self.site),
            self_ns: part.ns,
            idle_ns: self.idle_ns,
            device_wait_ns: part.wait_ns,
            samples: sampled.then_some(part.samples),
            interval_ns: sampled.then(|| interval(part, sums.bare_ns)),
            mostly: mostly.map(|(function, ns)| HostCall { function, ns }),
            function,
        }
    }
}

/// Fewest sleeps that show a rate, how many times as much as the distance of their ends their durations vary, and how many times the
/// variation of that distance goes into it.
const LEAST_TURNS: usize = 8;
const STEADIER: Ns = 4;
const STEADY: Ns = 50;

/// Returns the functions in which a thread sleeps for as long as is left until the next turn of a fixed rate.
fn rates(trace: &Trace, threads: FxHashSet<ThreadId>) -> FxHashSet<NameId> {
    let mut sleeps: FxHashMap<(ThreadId, NameId), Vec<(Ns, Ns)>> = FxHashMap::default();
    let mut is_sleep: FxHashMap<NameId, bool> = FxHashMap::default();
    for span in trace.stacks.spans.iter().filter(|span| threads.contains(&span.thread)) {
        let function = trace.stacks.frame(span.frame).function;
        let of_name = || of_name(trace.names.get(function)) == Some(HostKind::Sleep);
        if *is_sleep.entry(function).or_insert_with(of_name) {
            sleeps.entry((span.thread, function)).or_default().push((span.start, span.end));
        }
    }
    let rates = sleeps.iter().filter(|(_, sleeps)| keep_a_rate(sleeps));
    rates.map(|((_, function), _)| *function).collect()
}

/// Tells whether sleeps end at equal distances, and last as long as that takes.
fn keep_a_rate(sleeps: &[(Ns, Ns)]) -> bool {
    let spread = |values: Vec<Ns>| {
        let middle = median(&mut values.clone()).unwrap_or(0);
        let mut off: Vec<Ns> = values.iter().map(|value| (value - middle).abs()).collect();
        (middle, median(&mut off).unwrap_or(0))
    };
    let (turn_ns, unsteady_ns) = spread(sleeps.windows(2).map(|pair| pair[1].1 - pair[0].1).collect());
    let (_, varies_ns) = spread(sleeps.iter().map(|(start, end)| end - start).collect());
    sleeps.len() >= LEAST_TURNS && STEADY * unsteady_ns <= turn_ns && STEADIER * unsteady_ns < varies_ns
}

/// Returns the 95 % confidence interval of the time of a function: of the moments that could have been sampled, those with it.
fn interval(part: Part, bare_ns: Ns) -> [Ns; 2] {
    let samples = part.samples as f64;
    let moments = (bare_ns as f64 * samples / part.sampled_ns.max(1) as f64).max(samples);
    let (low, high) = proportion_interval(samples, moments);
    let ns = |share: f64| part.ns - part.sampled_ns + (share * bare_ns as f64) as Ns;
    [ns(low).min(part.ns), ns(high).max(part.ns)]
}

/// Kinds of work, by names and files of functions, and what to do about each.
const TEXT: &str = include_str!("kinds.txt");

/// The lines of the text: kind, field and content.
static LINES: LazyLock<Vec<(HostKind, &str, &str)>> = LazyLock::new(|| {
    let line = |line: &'static str| {
        let (kind, rest) = line.split_once(' ')?;
        let (field, text) = rest.split_once(' ')?;
        Some((HostKind::named(kind)?, field, text))
    };
    TEXT.lines().filter_map(line).collect()
});

/// Returns what to do about a kind of work.
pub fn advice(kind: HostKind) -> &'static str {
    LINES.iter().find(|line| line.0 == kind && line.1 == "advice").map_or("", |line| line.2)
}

/// Modules of Python whose functions only lead from one function of the program to another.
const PLUMBING: [&str; 5] = ["functools.py", "contextlib.py", "<string>", "typing.py", "abc.py"];

/// Tells whether a function stands for the one that called it: those of PyTorch and of some modules of Python.
fn is_plumbing(function: &str, file: &str) -> bool {
    let folder = file.starts_with("torch/") || file.contains("/torch/") || file.starts_with("<frozen ");
    let name = file.rsplit('/').next().unwrap_or(file);
    // The interpreter runs what calls it.
    if name.starts_with("libpython") || name.starts_with("python3") {
        return true;
    }
    // The outermost code of a program has a line of its own.
    function != "<module>" && !file.contains(".so") && (folder || PLUMBING.contains(&name))
}

fn find(field: &str, fits: impl Fn(&str) -> bool) -> Option<HostKind> {
    LINES.iter().find(|line| line.1 == field && line.2.split(' ').any(&fits)).map(|line| line.0)
}

/// Returns the kind of a function of C or of a system library, by its name.
fn of_name(name: &str) -> Option<HostKind> {
    find("functions", |known| match (known.strip_suffix('*'), known.strip_prefix('*')) {
        (Some(start), _) => name.starts_with(start),
        (_, Some(end)) => name.ends_with(end),
        _ => name == known,
    })
}

/// Returns the kind of a function. `called` is the function without a line that has most of its time, `dispatches` tells whether PyTorch
/// has most of it, and `waits` whether it waits for the device.
fn kind_of(function: &str, file: &str, called: Option<&str>, dispatches: bool, waits: bool) -> HostKind {
    // A function of a file is known by its file: `read` of a program is no system call.
    let is_native = !file.contains(".py") && !file.contains('<');
    let named = || called.and_then(of_name).or_else(|| of_name(function).filter(|_| is_native));
    let of_file = || find("files", |part| file.contains(part)).filter(|_| !is_native);
    named().or(waits.then_some(HostKind::HiddenSync)).or_else(of_file).unwrap_or(match () {
        () if function.contains("okenize") => HostKind::Tokenizer,
        () if dispatches || function.ends_with("forward") => HostKind::Dispatch,
        () if is_native => HostKind::Native,
        () => HostKind::Python,
    })
}

/// The node around all functions.
const ROOT: u32 = 0;

/// Most functions around another. Deeper ones count for the function at this depth.
const DEEPEST: usize = 512;

/// Stacks as a tree: the node around each node, which comes before it, and its function.
struct Nodes(Grouped<(u32, HostFrame), (u32, HostFrame)>);

impl Nodes {
    /// Returns the nodes.
    fn list(&self) -> &[(u32, HostFrame)] {
        &self.0.items
    }

    fn child(&mut self, parent: u32, frame: HostFrame) -> u32 {
        self.0.position((parent, frame), || (parent, frame)) as u32
    }

    /// Iterates over a node and all around it, innermost first, without the root.
    fn upwards(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let around = |node: &u32| self.list().get(*node as usize).map(|(parent, _)| *parent);
        std::iter::successors(Some(node), around).take_while(|node| *node != ROOT)
    }
}

/// Idle time of a stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Part {
    /// All of it, ns.
    ns: Ns,
    /// Part in which the thread waited for the device, ns.
    wait_ns: Ns,
    /// Part that was estimated from samples, ns.
    sampled_ns: Ns,
    /// Number of samples.
    samples: u64,
}

impl Part {
    fn add(&mut self, other: Self) {
        self.ns += other.ns;
        self.wait_ns += other.wait_ns;
        self.sampled_ns += other.sampled_ns;
        self.samples += other.samples;
    }
}

/// Idle time of one stage.
#[derive(Debug, Default)]
struct Sums {
    /// All of it, ns.
    idle_ns: Ns,
    /// Part without a call around it, ns.
    bare_ns: Ns,
    /// Samples in that part.
    samples: u64,
    /// Times of stacks that were recorded exactly, by node.
    exact: FxHashMap<u32, Part>,
    /// Samples by node. Each stands for the time between two samples of its thread.
    sampled: FxHashMap<u32, Part>,
}

impl Sums {
    /// Returns the time of each stack and the time without any, which add up to the idle time. More samples than there is time for
    /// share that time.
    fn parts(&self) -> (Vec<(u32, Part)>, Ns) {
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
fn sweep(trace: &Trace, mut gaps: Vec<(u32, HostGap)>, stages: usize) -> (Nodes, Vec<Sums>) {
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

#[cfg(test)]
mod kind_tests {
    use super::*;
    use roofgap_trace::NOT_RUNNING;

    #[test]
    fn kinds_follow_from_names_and_files() {
        use HostKind::*;
        for (function, file, called, kind) in [
            ("Sampler.forward", "vllm/v1/sample/sampler.py", Some("Tensor.item"), HiddenSync),
            ("Sampler.forward", "vllm/v1/sample/sampler.py", Some("softmax"), Dispatch),
            ("run", "app.py", Some("torch.Event.synchronize"), HiddenSync),
            ("run", "app.py", Some("_thread.lock.acquire"), Lock),
            ("run", "app.py", Some("collect"), GarbageCollection),
            ("run", "app.py", Some("sleep"), Sleep),
            ("run", "app.py", Some(NOT_RUNNING), Descheduled),
            (NOT_RUNNING, "", None, Descheduled),
            ("emit", "logging/__init__.py", Some("_io.TextIOWrapper.write"), FileAccess),
            ("emit", "logging/__init__.py", None, Logging),
            ("_encode_plus", "transformers/tokenization_utils_fast.py", None, Tokenizer),
            ("schedule", "vllm/v1/core/sched/scheduler.py", None, Scheduler),
            ("get", "queue.py", None, Lock),
            ("read", "app.py", None, Python),
            ("read", "libc.so.6", None, FileAccess),
            ("pthread_cond_timedwait", "", None, Lock),
            ("at::native::add", "libtorch_cpu.so", None, Native),
        ] {
            assert_eq!(kind_of(function, file, called, false, false), kind, "{function} {file} {called:?}");
        }
        assert_eq!(kind_of("step", "app.py", Some("to"), false, true), HiddenSync);
        assert_eq!(kind_of("step", "app.py", Some("linear"), true, false), Dispatch);
    }

    #[test]
    fn every_kind_has_advice_and_every_line_a_kind() {
        for kind in HostKind::ALL.iter().copied() {
            assert!(!advice(kind).is_empty(), "{kind:?}");
        }
        let lines = TEXT.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(LINES.len(), lines.count());
        assert!(LINES.iter().all(|line| ["functions", "files", "advice"].contains(&line.1)));
    }

    #[test]
    fn code_of_pytorch_stands_for_its_caller() {
        assert!(is_plumbing("linear", "torch/nn/functional.py") && is_plumbing("f", "/opt/torch/_ops.py"));
        assert!(!is_plumbing("forward", "torchvision/models.py") && !is_plumbing("<module>", "<string>"));
        assert!(!is_plumbing("Tensor.item", "") && !is_plumbing("at::add", "/opt/torch/lib/libtorch.so"));
    }
}
