//! The lanes of the timeline: ranges by thread and depth, calls by thread, operations by device and stream, gaps by device and cause.

use crate::document::maybe;
use crate::export::FreeLines;
use crate::page::class;
use roofgap_analyze::IdleParts;
use roofgap_base::text::cut;
use roofgap_trace::{HostSample, Ns, SampledMetric, ThreadId, Trace};
use std::collections::{BTreeMap, HashSet};

/// The groups of lanes, from top to bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Ranges of the program.
    Ranges,
    /// Operators of a framework.
    Operators,
    /// CUDA calls.
    Calls,
    /// Functions of sampled stacks.
    Stacks,
    /// GPU operations.
    Streams,
    /// Sampled counters.
    Counters,
    /// Times in which a GPU ran nothing.
    Idle,
}

impl Group {
    /// Returns the most lanes that are drawn.
    fn most(self) -> usize {
        match self {
            Self::Ranges => 16,
            Self::Operators => 8,
            Self::Calls | Self::Stacks => 8,
            Self::Streams | Self::Counters => 32,
            Self::Idle => 64,
        }
    }

    /// Returns the start and the end of a row.
    #[inline(always)]
    pub fn span(self, trace: &Trace, parts: &IdleParts, row: u32) -> (Ns, Ns) {
        let row = row as usize;
        match self {
            Self::Ranges => (trace.ranges.rows[row].start, trace.ranges.rows[row].end),
            Self::Operators => (trace.cpu_ops.start[row], trace.cpu_ops.end[row]),
            Self::Calls => (trace.calls.start[row], trace.calls.end[row]),
            Self::Streams => (trace.ops.start[row], trace.ops.end[row]),
            Self::Idle => (parts.start[row], parts.end[row]),
            Self::Stacks => {
                let run = trace.stacks.samples[row..].windows(2).take_while(|pair| is_same(pair));
                let (from, last) = (trace.stacks.samples[row], row + run.count());
                let next = trace.stacks.samples.get(last + 1).filter(|next| next.thread == from.thread);
                let end = trace.stacks.samples[last].at.saturating_add(MOST_STEP);
                (from.at, next.map_or(end, |next| next.at.min(end)))
            }
            // Their points are no rows.
            Self::Counters => (0, 0),
        }
    }

    /// Names the items of a lane.
    pub fn items(self) -> &'static str {
        match self {
            Self::Ranges => "ranges",
            Self::Operators => "operators",
            Self::Calls => "calls",
            Self::Streams => "GPU operations",
            Self::Idle => "parts of gaps",
            Self::Stacks => "stacks",
            Self::Counters => "samples",
        }
    }
}

/// The owner of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A position in `Trace::threads`.
    Thread(u32),
    /// A position in `Trace::devices`.
    Device(u16),
}

impl Owner {
    /// Returns the kind for the page.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Thread(_) => "thread",
            Self::Device(_) => "gpu",
        }
    }

    /// Names the owner.
    pub fn label(self, trace: &Trace) -> String {
        match self {
            Self::Thread(thread) => thread_name(trace, thread),
            Self::Device(device) => format!("GPU {}", device_number(trace, device)),
        }
    }
}

/// One line of the timeline: rows of one table of the trace, sorted by start.
#[derive(Debug)]
pub struct Lane {
    pub label: String,
    pub owner: Owner,
    pub rows: Vec<u32>,
}

/// The lanes of a group, and the number of lanes and rows left out.
#[derive(Debug)]
pub struct Lanes {
    pub group: Group,
    pub lanes: Vec<Lane>,
    pub left_out_lanes: usize,
    pub left_out_rows: usize,
}

impl Lanes {
    /// Keeps the lanes with the most rows, in their order.
    fn of(group: Group, lanes: impl Iterator<Item = Lane>) -> Self {
        let mut lanes: Vec<Lane> = lanes.collect();
        let count = |lanes: &[Lane]| (lanes.len(), lanes.iter().map(|l| l.rows.len()).sum::<usize>());
        let all = count(&lanes);
        let mut order: Vec<usize> = (0..lanes.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(lanes[i].rows.len()), i));
        let kept: HashSet<usize> = order.into_iter().take(group.most()).collect();
        let mut at = 0..;
        lanes.retain(|_| at.next().is_some_and(|i| kept.contains(&i)));
        let shown = count(&lanes);
        Self { group, left_out_lanes: all.0 - shown.0, left_out_rows: all.1 - shown.1, lanes }
    }
}

/// Assigns ranges to one lane per thread and depth.
pub fn ranges(trace: &Trace) -> Lanes {
    let rows = trace.ranges.rows.iter().enumerate();
    nested(trace, Group::Ranges, rows.map(|(row, r)| (row as u32, r.thread.0, r.start, r.end)))
}

/// Assigns operators of a framework to one lane per thread and depth.
pub fn operators(trace: &Trace) -> Lanes {
    let ops = &trace.cpu_ops;
    let rows = (0..ops.start.len()).map(|row| (row as u32, ops.thread[row].0, ops.start[row], ops.end[row]));
    nested(trace, Group::Operators, rows)
}

/// Assigns items that nest, sorted by start and then longest first on each thread, to the first free depth.
fn nested(trace: &Trace, group: Group, rows: impl Iterator<Item = (u32, u32, Ns, Ns)>) -> Lanes {
    let mut depths: BTreeMap<u32, FreeLines> = BTreeMap::new();
    let rows = rows.map(|(row, thread, start, end)| {
        ((thread, depths.entry(thread).or_default().assign(start, end)), row)
    });
    by_key(group, rows, |(thread, depth)| {
        let label = if depth == 0 { thread_name(trace, thread) } else { String::new() };
        (0, label, Owner::Thread(thread))
    })
}

/// Assigns rows to one lane per key, in the order of the keys. `lane` has a number that comes before the key, its label and its owner.
fn by_key<K: Ord + Copy>(
    group: Group,
    rows: impl Iterator<Item = (K, u32)>,
    lane: impl Fn(K) -> (u32, String, Owner),
) -> Lanes {
    let mut lanes: BTreeMap<K, Vec<u32>> = BTreeMap::new();
    let mut rows = rows.peekable();
    while let Some((key, row)) = rows.next() {
        let lane = lanes.entry(key).or_default();
        lane.push(row);
        lane.extend(std::iter::from_fn(|| rows.next_if(|(next, _)| *next == key)).map(|(_, row)| row));
    }
    let lanes = lanes.into_iter().map(|(key, rows)| {
        let (number, label, owner) = lane(key);
        (number, Lane { label, owner, rows })
    });
    let mut lanes: Vec<(u32, Lane)> = lanes.collect();
    lanes.sort_by_key(|(number, _)| *number);
    Lanes::of(group, lanes.into_iter().map(|(_, lane)| lane))
}

fn by_thread(trace: &Trace, group: Group, rows: impl Iterator<Item = (ThreadId, usize)>) -> Lanes {
    let rows = rows.map(|(thread, row)| (thread.0, row as u32));
    by_key(group, rows, |thread| (0, thread_name(trace, thread), Owner::Thread(thread)))
}

/// Assigns the calls that launch, copy, set or wait to one lane per thread.
pub fn calls(trace: &Trace) -> Lanes {
    let calls = &trace.calls;
    let drawn = (0..calls.len()).filter(|row| class::of_call(calls.class[*row]).is_some());
    by_thread(trace, Group::Calls, drawn.map(|row| (calls.thread[row], row)))
}

/// Longest time for which a sample of a stack stands, ns.
const MOST_STEP: Ns = 20_000_000;

/// Tells whether the second of two samples goes on with the first.
fn is_same(pair: &[HostSample]) -> bool {
    let (a, b) = (pair[0], pair[1]);
    a.thread == b.thread && a.stack == b.stack && b.at - a.at <= MOST_STEP
}

/// Assigns sampled stacks to one lane per thread; equal ones in a row are one item.
pub fn stacks(trace: &Trace) -> Lanes {
    let samples = &trace.stacks.samples;
    let first = (0..samples.len()).filter(|row| *row == 0 || !is_same(&samples[row - 1..=*row]));
    by_thread(trace, Group::Stacks, first.map(|row| (samples[row].thread, row)))
}

/// A sampled counter of a device: start and end of each sample, and the part of that time that its value is of the peak, ns.
pub struct Curve {
    pub lane: Lane,
    pub points: Vec<(Ns, Ns, Ns)>,
}

/// Returns the traffic of DRAM and the activity of the tensor cores of each device.
pub fn curves(trace: &Trace) -> Vec<Curve> {
    use SampledMetric::{DramPct, DramReadBytes, DramReadPct, DramWrittenBytes, DramWrittenPct, TensorPct};
    let mut curves = Vec::new();
    for counters in &trace.sampled {
        let device = trace.devices.get(counters.device.index());
        let bytes_per_ns = device.and_then(|device| device.bandwidth_bytes_per_s).unwrap_or(0) as f64 * 1e-9;
        // A share of the peak holds for the whole of a sample, a count of bytes is one.
        let share = |pct: f64, ns: f64| pct / 100.0 * ns;
        let mut curve = |label: &str, metrics: &[SampledMetric], filled: &dyn Fn(f64, f64) -> f64| {
            let parts: Vec<&[f32]> = metrics.iter().filter_map(|metric| counters.values(*metric)).collect();
            let point = |(at, (start, end)): (usize, &(Ns, Ns))| {
                let (sum, length) = (parts.iter().map(|part| f64::from(part[at])).sum(), end - start);
                // A value that is not a number is 0.
                (*start, *end, (filled(sum, length as f64).round() as Ns).clamp(0, length))
            };
            if parts.len() == metrics.len() {
                let points = counters.windows.iter().enumerate().map(point).collect();
                let (label, owner) = (label.to_owned(), Owner::Device(counters.device.0));
                curves.push(Curve { lane: Lane { label, owner, rows: Vec::new() }, points });
            }
        };
        if bytes_per_ns > 0.0 {
            curve("DRAM", &[DramReadBytes, DramWrittenBytes], &|bytes, _| bytes / bytes_per_ns);
        }
        let dram: &[_] =
            if counters.values(DramPct).is_some() { &[DramPct] } else { &[DramReadPct, DramWrittenPct] };
        curve("DRAM", dram, &share);
        curve("tensor cores", &[TensorPct], &share);
    }
    curves
}

/// Assigns GPU operations to one lane per device, process and stream.
pub fn streams(trace: &Trace) -> Lanes {
    let ops = &trace.ops;
    let several = ops.process.windows(2).any(|pair| pair[0] != pair[1]);
    let rows = (0..ops.len()).map(|row| {
        let device = ops.device[row].0;
        ((device, ops.process[row], ops.stream[row]), row as u32)
    });
    by_key(Group::Streams, rows, |(device, process, stream)| {
        let number = device_number(trace, device);
        let process = trace.processes.get(process.index()).filter(|_| several);
        let pid = maybe(process, |process| format!(" pid {}", process.pid));
        (number, format!("GPU {number} stream {stream}{pid}"), Owner::Device(device))
    })
}

/// Assigns the parts of gaps to one lane per device and cause.
pub fn idle(trace: &Trace, parts: &IdleParts) -> Lanes {
    let rows = parts.of.iter().zip(0..);
    by_key(Group::Idle, rows.map(|(key, row)| (*key, row)), |(device, cause)| {
        let number = device_number(trace, device.0);
        (number, format!("GPU {number} {}", class::of_idle(cause)), Owner::Device(device.0))
    })
}

/// Returns the number by which the tool calls a device.
fn device_number(trace: &Trace, device: u16) -> u32 {
    let known = trace.devices.get(usize::from(device));
    known.map_or(u32::from(device), |known| known.number)
}

fn thread_name(trace: &Trace, thread: u32) -> String {
    let Some(thread) = trace.threads.get(thread as usize) else {
        return "thread".into();
    };
    let name = match trace.names.get(thread.name) {
        "" => "thread".to_owned(),
        name => cut(name, 24),
    };
    let several = trace.processes.len() > 1;
    let process = trace.processes.get(thread.process.index()).filter(|_| several);
    let pid = maybe(process, |process| format!(" of {}", process.pid));
    // Some tools include the number in the name.
    let number = thread.tid.to_string();
    if name.contains(&number) {
        return format!("{name}{pid}");
    }
    format!("{name} {number}{pid}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_trace::{Device, GpuOp, HostFrame, OpKind, SampledCounters, ShapeId, StackId, ThreadId};

    #[test]
    fn devices_are_in_the_order_of_their_numbers() {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "python");
        let name = trace.names.intern("k");
        for number in [2, 0, 1] {
            let device = trace.add_device(Device { number, ..Device::default() });
            trace.ops.push(GpuOp {
                kind: OpKind::Kernel,
                start: 0,
                end: 1,
                name,
                device,
                stream: 7,
                process,
                correlation: 0,
                shape: ShapeId(0),
                bytes: 0,
                graph_node: 0,
                memory: Default::default(),
            });
        }
        let labels: Vec<String> = streams(&trace).lanes.into_iter().map(|lane| lane.label).collect();
        assert_eq!(labels, ["GPU 0 stream 7", "GPU 1 stream 7", "GPU 2 stream 7"]);
    }

    #[test]
    fn nested_items_go_down_and_left_out_lanes_are_counted() {
        let trace = Trace::default();
        let rows = [(0, 0, 0, 100), (1, 0, 10, 50), (2, 0, 50, 60), (3, 0, 100, 120)];
        let lanes = nested(&trace, Group::Ranges, rows.into_iter());
        let rows: Vec<&[u32]> = lanes.lanes.iter().map(|l| l.rows.as_slice()).collect();
        assert_eq!(rows, [&[0, 3][..], &[1, 2]]);
        let deep = (0..40).map(|i| (i, 0, Ns::from(i), 1000 - Ns::from(i)));
        let lanes = nested(&trace, Group::Ranges, deep);
        assert_eq!((lanes.lanes.len(), lanes.left_out_lanes, lanes.left_out_rows), (16, 24, 24));
        assert_eq!(lanes.lanes[0].rows, [0], "the outermost stay");
    }

    #[test]
    fn equal_stacks_in_a_row_are_one_item() {
        let mut trace = Trace::default();
        let name = trace.names.intern("f");
        let frame = trace.stacks.intern(HostFrame { function: name, ..HostFrame::default() });
        let outer = trace.stacks.call(StackId::default(), frame);
        let inner = trace.stacks.call(outer, frame);
        let second = 1_000_000_000;
        for (thread, at, stack) in
            [(0, 0, outer), (0, 10, outer), (0, 20, inner), (0, second, inner), (1, 5, outer)]
        {
            trace.stacks.samples.push(HostSample { thread: ThreadId(thread), at, stack });
        }
        let lanes = stacks(&trace);
        let rows: Vec<&[u32]> = lanes.lanes.iter().map(|lane| lane.rows.as_slice()).collect();
        assert_eq!(rows, [&[0, 2, 3][..], &[4]]);
        let spans: Vec<(Ns, Ns)> =
            (0..5).map(|row| Group::Stacks.span(&trace, &IdleParts::default(), row)).collect();
        assert_eq!([spans[0], spans[2]], [(0, 20), (20, 20 + MOST_STEP)], "a pause is no stack");
        assert_eq!(spans[4], (5, 5 + MOST_STEP));
    }

    #[test]
    fn counters_fill_their_samples_by_the_share_of_the_peak() {
        use SampledMetric::{DramReadBytes, DramWrittenBytes, TensorPct};
        let mut trace = Trace::default();
        let device =
            trace.add_device(Device { bandwidth_bytes_per_s: Some(4_000_000_000_000), ..Device::default() });
        // 4,000 bytes fill a ns.
        let metrics = vec![
            (DramReadBytes, vec![10_000_000.0, f32::NAN]),
            (DramWrittenBytes, vec![10_000_000.0, 0.0]),
            (TensorPct, vec![25.0, 120.0]),
        ];
        let windows = vec![(0, 10_000), (10_000, 20_000)];
        trace.sampled.push(SampledCounters { device, windows, metrics });
        let curves = curves(&trace);
        let [dram, tensor] = &curves[..] else { panic!("{} curves", curves.len()) };
        assert_eq!(dram.points, [(0, 10_000, 5_000), (10_000, 20_000, 0)]);
        assert_eq!(tensor.points, [(0, 10_000, 2_500), (10_000, 20_000, 10_000)]);
        assert_eq!((dram.lane.label.as_str(), tensor.lane.label.as_str()), ("DRAM", "tensor cores"));
    }
}
