//! A capture made from an nsys export must read as the export does; and what only a capture has.

use super::reader::kernel_names;
use crate::{LossKind, OpKind, RangeStyle, ReadError, Sniffed, Trace, WaitKind};
use proptest::prelude::*;
use roofgap_wire as wire;
use roofgap_wire::Ending;
use roofgap_wire::{self, EventKind, FrameBuilder, Header, Message, NvtxEvent, NvtxPop, Record, Text};
use std::path::{Path, PathBuf};

fn read(path: &Path, trace: &mut Trace) -> Result<Ending, ReadError> {
    super::reader::read(&Sniffed::of(path)?, trace)
}

/// Writes records as a capture, some to a frame.
fn write(folder: &Path, records: &[Record<'_>], ended: bool) -> PathBuf {
    let mut bytes = Header::new(42, 1, 2).encode().to_vec();
    let mut frame = FrameBuilder::new();
    for some in records.chunks(1000) {
        some.iter().for_each(|record| frame.put(record));
        bytes.extend_from_slice(frame.close());
    }
    if ended {
        frame.put(&Record::End(wire::End { how: 1, at: 9 }));
        bytes.extend_from_slice(frame.close());
    }
    let path = folder.join("42-2.rgcap");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn event(kind: EventKind, domain: u32, at: u64, range: u64, message: Message<'_>) -> Record<'_> {
    Record::NvtxEvent(NvtxEvent {
        kind,
        tid: 7,
        domain,
        at,
        range,
        category: 0,
        payload_kind: 0,
        payload: 0,
        message,
    })
}

fn launch(correlation: u32, handle: u32, at: u64) -> [Record<'static>; 2] {
    let call = wire::Call { api: 211, thread: handle, correlation, result: 0, start: at, end: at + 5 };
    let kernel =
        wire::Kernel { shape: 0, stream_id: 0, correlation, graph: 0, start: at + 10, end: at + 30, node: 0 };
    [Record::Call(call), Record::Kernel(kernel)]
}

fn basics() -> Vec<Record<'static>> {
    vec![
        Record::TextEntry(wire::TextEntry { id: 0, text: Text(b"_Z3addPfS_i") }),
        Record::LaunchShape(wire::LaunchShape {
            id: 0,
            name: 0,
            grid: [3, 1, 1],
            block: [128, 1, 1],
            registers: 40,
            static_shared: 0,
            dynamic_shared: 16,
            local: 0,
        }),
        Record::StreamEntry(wire::StreamEntry { id: 0, device: 0, context: 1, stream: 7 }),
        Record::CallName(wire::CallName { api: 211, name: Text(b"cudaLaunchKernel_v7000") }),
    ]
}

fn read_whole(records: &[Record<'_>]) -> (Trace, Ending) {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), records, true);
    let mut trace = Trace::default();
    let ending = read(&path, &mut trace).unwrap();
    trace.sort();
    (trace, ending)
}

#[test]
fn a_graph_node_has_the_ranges_of_its_creation_and_so_has_its_clone() {
    let node = |node, original| Record::GraphNode(wire::GraphNode { tid: 7, node, original });
    let push = |text: &'static [u8]| event(EventKind::Push, 0, 100, 0, Message::Inline(Text(text)));
    let pop = || Record::NvtxPop(NvtxPop { tid: 7, domain: 0, at: 200 });
    let mut records = basics();
    records.push(Record::Domain(wire::Domain { id: 1, name: Text(b"LLM") }));
    records.push(Record::Registered(wire::Registered { id: 5, domain: 1, text: Text(b"layer:b") }));
    records.extend([push(b"layer:a"), node(101, 0)]);
    records.push(event(EventKind::Push, 1, 110, 0, Message::Registered(5)));
    records.extend([node(102, 0), node(103, 0)]);
    records.push(Record::NvtxPop(NvtxPop { tid: 7, domain: 1, at: 150 }));
    records.extend([pop(), node(104, 0)]);
    // Its own creation says nothing of a clone; the clone of a node that was never seen is unknown.
    records.extend([node(1, 0), node(1, 101), node(2, 102), node(3, 900), node(4, 0), node(4, 901)]);
    let (trace, _) = read_whole(&records);
    let ranges = |node| {
        let process = trace.processes.len() as u32 - 1;
        let stack = trace.graph_nodes.stack_of(crate::ProcessId(process), node)?;
        let names = trace.graph_nodes.stacks()[stack].iter();
        Some(names.map(|name| trace.names.get(*name)).collect::<Vec<_>>().join("/"))
    };
    let expected = [
        (101, Some("layer:a")),
        (102, Some("layer:a/layer:b")),
        (103, Some("layer:a/layer:b")),
        (104, Some("")),
        (1, Some("layer:a")),
        (2, Some("layer:a/layer:b")),
        (3, None),
        (4, None),
        (5, None),
    ];
    for (node, name) in expected {
        assert_eq!(ranges(node).as_deref(), name, "{node}");
    }
}

#[test]
fn a_range_encloses_the_launches_of_its_thread() {
    let mut records = basics();
    records.push(Record::Thread(wire::Thread { tid: 7, handle: 900, at: 50 }));
    records.push(Record::Domain(wire::Domain { id: 1, name: Text(b"LLM") }));
    records.push(event(EventKind::Push, 1, 100, 0, Message::Inline(Text(b"prefill"))));
    records.extend(launch(1, 900, 110));
    records.push(Record::NvtxPop(NvtxPop { tid: 7, domain: 1, at: 200 }));
    let (trace, ending) = read_whole(&records);
    assert!(matches!(ending, Ending::Complete { .. }));
    let range = trace.ranges.rows[0];
    assert_eq!(trace.names.get(range.domain), "LLM");
    assert_eq!(trace.names.get(range.name), "prefill");
    assert_eq!((range.start, range.end, range.style), (100, 200, RangeStyle::PushPop));
    assert_eq!(trace.calls.thread[0], range.thread);
    assert_eq!(trace.threads[range.thread.index()].tid, 7);
    assert_eq!(trace.names.get(trace.ops.name[0]), "add(float*, float*, int)");
    assert_eq!(trace.ops.shape_of(0).grid, [3, 1, 1]);
    assert_eq!(trace.ops.kind[0], OpKind::Kernel);
}

#[test]
fn a_handle_means_the_thread_that_had_it_then() {
    let mut records = basics();
    for (tid, at) in [(7, 50), (8, 1_000)] {
        records.push(Record::Thread(wire::Thread { tid, handle: 900, at }));
    }
    for (at, correlation) in [(10, 1), (110, 2), (1_100, 3)] {
        records.extend(launch(correlation, 900, at));
    }
    records.extend(launch(4, 901, 2_000));
    let (trace, _) = read_whole(&records);
    let tids: Vec<u32> = trace.calls.thread.iter().map(|id| trace.threads[id.index()].tid).collect();
    assert_eq!(tids, [7, 7, 8, 901]);
}

#[test]
fn another_clock_is_brought_to_the_annotations() {
    let mut records = basics();
    records.push(Record::ClockPair(wire::ClockPair {
        before: 1_000_000,
        cupti: 501_000_010,
        after: 1_000_020,
    }));
    records.extend(launch(1, 900, 501_000_100));
    let (trace, _) = read_whole(&records);
    assert_eq!(trace.calls.start[0], 1_000_100);
}

#[test]
fn a_device_is_known_by_the_number_the_program_uses() {
    let device = |id, source, name: &'static str, uuid: &'static [u8], bandwidth| {
        Record::Device(wire::Device {
            id,
            visible: 1,
            source,
            major: 9,
            minor: 0,
            sms: 132,
            clock_khz: 0,
            l2_bytes: 0,
            memory_bytes: 5,
            bandwidth,
            name: Text(name.as_bytes()),
            uuid: Text(uuid),
        })
    };
    let mut records = basics();
    // The machine's first device is hidden from the program, whose number 0 is the second.
    records.push(device(0, 0, "hidden", &[1; 16], 10));
    records.push(device(1, 0, "used", &[2; 16], 20));
    records.push(device(0, 1, "used", &[2; 16], 0));
    records.extend(launch(1, 900, 100));
    let (trace, _) = read_whole(&records);
    assert_eq!(trace.devices.len(), 1);
    assert_eq!(trace.devices[0].name.as_deref(), Some("used"));
    assert_eq!(trace.devices[0].bandwidth_bytes_per_s, Some(20));
    assert_eq!(trace.devices[0].uuid.as_deref(), Some("02020202-0202-0202-0202-020202020202"));
    assert_eq!(trace.losses.count(LossKind::OpNoDevice), 0);
}

#[test]
fn names_may_come_after_what_they_name() {
    let mut records = vec![event(EventKind::Start, 3, 10, 77, Message::Registered(5))];
    records.push(Record::NvtxEnd(wire::NvtxEnd { tid: 9, range: 77, at: 30 }));
    records.push(Record::Registered(wire::Registered { id: 5, domain: 3, text: Text(b"request") }));
    records.push(Record::Domain(wire::Domain { id: 3, name: Text(b"server") }));
    let (trace, _) = read_whole(&records);
    let range = trace.ranges.rows[0];
    assert_eq!((trace.names.get(range.domain), trace.names.get(range.name)), ("server", "request"));
    assert_eq!(range.style, RangeStyle::StartEnd);
    assert_eq!(trace.losses.count(LossKind::RangeCrossThread), 1);
}

#[test]
fn a_capture_without_an_end_keeps_its_open_ranges_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = basics();
    records.push(event(EventKind::Push, 0, 5, 0, Message::Inline(Text(b"decode"))));
    records.extend(launch(1, 900, 100));
    let path = write(folder.path(), &records, false);
    let mut trace = Trace::default();
    let ending = read(&path, &mut trace).unwrap();
    assert!(matches!(ending, Ending::Cut { .. }));
    assert_eq!(ends(&trace), (1, 0));
    assert_eq!(trace.losses.count(LossKind::RangeOpen), 1);
    assert!(trace.ranges.rows[0].open);
    assert_eq!(trace.ranges.rows[0].end, 130);
}

/// Returns the counts of captures without an end and of truncated ones.
fn ends(trace: &Trace) -> (u64, u64) {
    let count = |kind| trace.losses.count(kind);
    (count(LossKind::EndMissing), count(LossKind::CaptureCut))
}

#[test]
fn a_truncated_frame_differs_from_a_missing_end() {
    let folder = tempfile::tempdir().unwrap();
    for (ended, dropped, expected) in
        [(true, 0, (0, 0)), (false, 0, (1, 0)), (false, 1, (0, 1)), (true, 1, (0, 1))]
    {
        let path = write(folder.path(), &basics(), ended);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - dropped]).unwrap();
        let mut trace = Trace::default();
        read(&path, &mut trace).unwrap();
        assert_eq!(ends(&trace), expected, "ended {ended}, {dropped} bytes dropped");
    }
}

#[test]
fn a_capture_that_the_program_closed_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &basics(), false);
    std::fs::write(wire::note_path(&path), "The program closed the descriptor").unwrap();
    let mut trace = Trace::default();
    read(&path, &mut trace).unwrap();
    assert_eq!(ends(&trace), (0, 1));
}

#[test]
fn what_the_collector_lost_is_declared() {
    let loss = |id: &'static str, count| {
        Record::Loss(wire::Loss { count, id: Text(id.as_bytes()), detail: Text(b"why") })
    };
    let (trace, _) = read_whole(&[
        loss("cupti.dropped", 3),
        loss("cupti.dropped", 5),
        loss("cupti.other_profiler", 1),
        loss("process.forked", 2),
    ]);
    assert_eq!(trace.losses.count(LossKind::ToolDropped), 5, "counts are totals");
    assert_eq!(trace.losses.count(LossKind::GpuNotRecorded), 1);
    assert_eq!(trace.losses.count(LossKind::ForkNotRecorded), 2);
}

#[test]
fn ranges_that_were_open_when_the_capture_began_are_counted() {
    let mut records = basics();
    let pop = |at| Record::NvtxPop(NvtxPop { tid: 7, domain: 0, at });
    records.push(pop(50));
    records.push(event(EventKind::Push, 0, 100, 0, Message::Inline(Text(b"step"))));
    records.push(pop(200));
    let (trace, _) = read_whole(&records);
    assert_eq!(trace.ranges.rows.len(), 1);
    assert_eq!(trace.losses.count(LossKind::RangeBegunBefore), 1);
    assert_eq!(trace.losses.count(LossKind::EventMalformed), 0);
}

#[test]
fn kernels_without_times_are_left_out_and_counted() {
    let mut records = basics();
    records.push(Record::Kernel(wire::Kernel {
        shape: 0,
        stream_id: 0,
        correlation: 1,
        graph: 0,
        start: 0,
        end: 0,
        node: 0,
    }));
    let (trace, _) = read_whole(&records);
    assert!(trace.ops.is_empty());
    assert_eq!(trace.losses.count(LossKind::EventMalformed), 1);
}

#[test]
fn a_newer_capture_and_another_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = Header::new(1, 2, 3).encode();
    bytes[6] = 9;
    let newer = folder.path().join("newer.rgcap");
    std::fs::write(&newer, bytes).unwrap();
    let text = read(&newer, &mut Trace::default()).unwrap_err().to_string();
    assert!(text.contains("version 9") && text.contains("newer"), "{text}");
    let other = folder.path().join("other");
    std::fs::write(&other, "SQLite format 3").unwrap();
    assert!(read(&other, &mut Trace::default()).is_err());
}

#[test]
fn a_capture_is_told_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &basics(), true);
    assert_eq!(Sniffed::of(&path).unwrap().format, crate::SourceFormat::Native);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

#[test]
fn a_file_the_collector_wrote_is_read() {
    let trace = crate::read(&[fixture("native/stand-in.rgcap")]).unwrap().trace;
    let kinds = |kind| trace.ops.kind.iter().filter(|k| **k == kind).count();
    assert_eq!((kinds(OpKind::Kernel), kinds(OpKind::Copy), kinds(OpKind::Set)), (10, 2, 1));
    let named = |name: &str| {
        let full = |range: &&crate::Range| {
            format!("{}@{}", trace.names.get(range.domain), trace.names.get(range.name)) == name
        };
        trace.ranges.rows.iter().filter(full).count()
    };
    assert_eq!((named("LLM@prefill"), named("LLM@decode_step"), named("@sam")), (1, 2, 1));
    // Launches and ranges are of one thread, and the launches of the prefill lie within it.
    assert_eq!(trace.threads.len(), 1);
    let prefill = trace.ranges.rows.iter().find(|r| trace.names.get(r.name) == "prefill").unwrap();
    let inside = trace.calls.start.iter().filter(|start| (prefill.start..=prefill.end).contains(start));
    assert_eq!(inside.count(), 5);
    assert_eq!(trace.devices[0].sms, Some(132));
    // A wait as early collectors wrote it.
    assert_eq!(
        (trace.waits.len(), trace.waits[0].kind, trace.waits[0].stream),
        (1, WaitKind::Stream, Some(13))
    );
    assert_eq!(trace.losses.iter().count(), 0, "{:?}", trace.losses);
}

/// Rewrites a trace as the collector would have recorded it.
fn as_capture<'a>(trace: &'a Trace) -> Vec<Record<'a>> {
    let mut records = Vec::new();
    for device in &trace.devices {
        let (major, minor) = device.compute_capability.unwrap_or_default();
        records.push(Record::Device(wire::Device {
            id: device.number,
            visible: 1,
            source: 0,
            major,
            minor,
            sms: device.sms.unwrap_or(0),
            clock_khz: (device.clock_hz.unwrap_or(0) / 1000) as u32,
            l2_bytes: device.l2_bytes.unwrap_or(0),
            memory_bytes: device.memory_bytes.unwrap_or(0),
            bandwidth: device.bandwidth_bytes_per_s.unwrap_or(0),
            name: Text(device.name.as_deref().unwrap_or("").as_bytes()),
            uuid: Text(&[]),
        }));
    }
    let name = |id| Text(trace.names.get(id).as_bytes());
    for (id, text) in trace.names.iter() {
        let text = Text(text.as_bytes());
        records.push(Record::TextEntry(wire::TextEntry { id: id.0, text }));
        records.push(Record::CallName(wire::CallName { api: id.0, name: text }));
        records.push(Record::Domain(wire::Domain { id: id.0 + 1, name: text }));
    }
    let tid = |thread: crate::ThreadId| trace.threads[thread.index()].tid;
    for thread in &trace.threads {
        records.push(Record::Thread(wire::Thread { tid: thread.tid, handle: thread.tid ^ 0x5555, at: 1 }));
    }
    for row in 0..trace.calls.len() {
        records.push(Record::Call(wire::Call {
            api: trace.calls.name[row].0,
            thread: tid(trace.calls.thread[row]) ^ 0x5555,
            correlation: trace.calls.correlation[row],
            result: 0,
            start: trace.calls.start[row] as u64,
            end: trace.calls.end[row] as u64,
        }));
    }
    let ops = &trace.ops;
    for row in 0..ops.len() {
        let shape = ops.shape_of(row);
        let (stream_id, correlation) = (row as u32, ops.correlation[row]);
        let (start, end) = (ops.start[row] as u64, ops.end[row] as u64);
        records.push(Record::StreamEntry(wire::StreamEntry {
            id: stream_id,
            device: u32::from(ops.device[row].0),
            context: 1,
            stream: ops.stream[row],
        }));
        let (bytes, node) = (ops.transfers.get(&stream_id).map_or(0, |t| t.bytes), ops.graph_node(row));
        let work = match ops.kind[row] {
            OpKind::Kernel => {
                records.push(Record::LaunchShape(wire::LaunchShape {
                    id: stream_id,
                    name: ops.name[row].0,
                    grid: shape.grid,
                    block: shape.block,
                    registers: shape.registers,
                    static_shared: shape.static_shared,
                    dynamic_shared: shape.dynamic_shared,
                    local: 0,
                }));
                Record::Kernel(wire::Kernel {
                    shape: stream_id,
                    stream_id,
                    correlation,
                    graph: 0,
                    start,
                    end,
                    node,
                })
            }
            OpKind::Copy => Record::Memcpy(wire::Memcpy {
                stream_id,
                correlation,
                graph: 0,
                start,
                end,
                node,
                bytes,
                kind: match trace.names.get(ops.name[row]) {
                    "[CUDA memcpy Host-to-Device]" => 1,
                    "[CUDA memcpy Device-to-Host]" => 2,
                    "[CUDA memcpy Device-to-Device]" => 8,
                    _ => 0,
                },
                from: 0,
                to: 0,
                flags: 0,
            }),
            OpKind::Set => Record::Memset(wire::Memset {
                stream_id,
                correlation,
                graph: 0,
                start,
                end,
                node,
                bytes,
                memory: 3,
            }),
            OpKind::Graph => {
                Record::GraphLaunch(wire::GraphLaunch { stream_id, correlation, graph: 1, start, end })
            }
        };
        records.push(work);
    }
    // Events in the order of time; of those at one time, ends of inner ranges first, then beginnings, outer first.
    let mut events: Vec<(i64, u8, i64, Record<'a>)> = Vec::new();
    for (number, range) in trace.ranges.rows.iter().enumerate() {
        let domain = if trace.names.get(range.domain).is_empty() { 0 } else { range.domain.0 + 1 };
        let kind = match range.style {
            RangeStyle::PushPop => EventKind::Push,
            RangeStyle::StartEnd => EventKind::Start,
        };
        let begun = Record::NvtxEvent(NvtxEvent {
            kind,
            tid: tid(range.thread),
            domain,
            at: range.start as u64,
            range: number as u64,
            category: 0,
            payload_kind: 0,
            payload: 0,
            message: Message::Inline(name(range.name)),
        });
        events.push((range.start, 1, -range.end, begun));
        let at = range.end as u64;
        let ended = match range.style {
            RangeStyle::PushPop => Record::NvtxPop(NvtxPop { tid: tid(range.thread), domain, at }),
            RangeStyle::StartEnd => {
                Record::NvtxEnd(wire::NvtxEnd { tid: tid(range.end_thread), range: number as u64, at })
            }
        };
        events.push((range.end, 0, -range.start, ended));
    }
    events.sort_by_key(|event| (event.0, event.1, event.2));
    records.extend(events.into_iter().map(|event| event.3));
    records
}

#[test]
fn the_same_work_gives_the_same_trace_as_nsys() {
    let nsys = crate::read(&[fixture("h200/llama4.sqlite.gz")]).unwrap().trace;
    let (native, _) = read_whole(&as_capture(&nsys));
    assert!(nsys.ops.len() > 3_000 && nsys.ranges.rows.len() > 10);
    assert_eq!(native.ops.start, nsys.ops.start);
    assert_eq!(native.ops.end, nsys.ops.end);
    assert_eq!(native.ops.kind, nsys.ops.kind);
    assert_eq!(native.ops.stream, nsys.ops.stream);
    assert_eq!(native.ops.correlation, nsys.ops.correlation);
    assert_eq!(native.calls.start, nsys.calls.start);
    assert_eq!(native.calls.class, nsys.calls.class);
    assert_eq!(native.devices[0].sms, nsys.devices[0].sms);
    assert_eq!(native.devices[0].bandwidth_bytes_per_s, nsys.devices[0].bandwidth_bytes_per_s);
    for row in 0..nsys.ops.len() {
        assert_eq!(native.names.get(native.ops.name[row]), nsys.names.get(nsys.ops.name[row]));
        assert_eq!(native.ops.shape_of(row), nsys.ops.shape_of(row));
    }
    let told = |trace: &Trace| -> Vec<String> {
        let text = |range: &crate::Range| {
            let (domain, name) = (trace.names.get(range.domain), trace.names.get(range.name));
            let tid = trace.threads[range.thread.index()].tid;
            format!("{domain}@{name} {tid} {} {} {:?}", range.start, range.end, range.style)
        };
        trace.ranges.rows.iter().map(text).collect()
    };
    assert_eq!(told(&native), told(&nsys));
    let tids = |trace: &Trace| -> Vec<u32> {
        trace.calls.thread.iter().map(|id| trace.threads[id.index()].tid).collect()
    };
    assert_eq!(tids(&native), tids(&nsys));
}

#[test]
fn names_are_kept_as_the_compiler_made_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = basics();
    records.push(Record::TextEntry(wire::TextEntry { id: 1, text: Text(b"triton_poi_fused_add_0") }));
    let path = write(folder.path(), &records, false);
    let mut trace = Trace::default();
    read(&path, &mut trace).unwrap();
    let wanted =
        [("add(float*, float*, int)", "_Z3addPfS_i"), ("triton_poi_fused_add_0", "triton_poi_fused_add_0")];
    assert_eq!(
        kernel_names(&path).unwrap(),
        wanted.map(|(readable, mangled)| (readable.to_owned(), mangled.to_owned()))
    );
}

fn edge(on: u8, at: u64) -> Record<'static> {
    let cause = wire::WindowCause::Request.to_u8();
    Record::Window(wire::Window { on, cause, at })
}

#[test]
fn windows_are_read_with_their_gaps() {
    let mut records = basics();
    records.push(edge(0, 50));
    records.push(edge(1, 100));
    records.extend(launch(1, 900, 110));
    records.push(edge(0, 200));
    records.push(edge(1, 300));
    records.extend(launch(2, 900, 310));
    let (trace, _) = read_whole(&records);
    let recorded = &trace.recorded[0];
    assert_eq!(recorded.windows, [(100, 200), (300, 340)]);
    assert_eq!(trace.losses.count(LossKind::PartlyRecorded), 2);
    assert_eq!(trace.window_of(recorded.process, 310, 315), Some(1));
    assert_eq!(trace.window_of(recorded.process, 190, 210), None);
    let (whole, _) = read_whole(&basics());
    assert!(whole.recorded.is_empty());
    assert_eq!(whole.window_of(recorded.process, 190, 210), Some(0));
}

#[test]
fn graph_kernels_at_the_edges_of_a_window_are_left_out() {
    let replay = |correlation, at, start, end| {
        let [call, _] = launch(correlation, 900, at);
        let kernel = |start, end, node| wire::Kernel {
            shape: 0,
            stream_id: 0,
            correlation,
            graph: 7,
            start,
            end,
            node,
        };
        let kernels = [kernel(start, start + 5, 1), kernel(start + 5, end, 2)];
        [call, Record::Kernel(kernels[0]), Record::Kernel(kernels[1])]
    };
    let mut records = basics();
    records.push(edge(0, 50));
    records.push(edge(1, 100));
    records.extend(replay(1, 110, 115, 130));
    // Runs while recording ends: its last kernel has the end of a later launch.
    records.extend(replay(2, 180, 190, 300));
    // Launched one by one, it has its own times.
    records.extend(launch(3, 900, 195));
    records.push(edge(0, 200));
    records.push(edge(1, 400));
    // Launched before recording began again.
    records.extend(replay(4, 380, 390, 410).into_iter().skip(1));
    records.extend(replay(5, 420, 425, 440));
    let (trace, _) = read_whole(&records);
    let kept: Vec<u32> = trace.ops.correlation.clone();
    assert_eq!(kept, [1, 1, 2, 3, 5, 5]);
    assert_eq!(trace.losses.count(LossKind::WindowEdge), 3);
    assert_eq!(trace.recorded[0].windows[0], (100, 179), "the cut launch is not in the window");
}

#[test]
fn the_older_segment_is_read_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = basics();
    records.push(event(EventKind::Push, 0, 100, 0, Message::Inline(Text(b"step"))));
    records.extend(launch(1, 900, 110));
    let path = write(folder.path(), &records, false);
    let older = wire::older_segment(&path);
    std::fs::rename(&path, &older).unwrap();
    let mut records = basics();
    records.extend(launch(2, 900, 200));
    records.push(Record::NvtxPop(NvtxPop { tid: 7, domain: 0, at: 250 }));
    write(folder.path(), &records, true);
    let read_pair = || {
        let mut trace = Trace::default();
        read(&path, &mut trace).unwrap();
        trace.sort();
        trace
    };
    let trace = read_pair();
    assert_eq!((trace.ops.len(), trace.processes.len()), (2, 1));
    let range = trace.ranges.rows[0];
    assert_eq!((range.start, range.end), (100, 250), "a range spans both");
    assert_eq!(trace.losses.count(LossKind::CaptureCut), 0);
    // The segment of another process with the same number is not read.
    let mut bytes = std::fs::read(&older).unwrap();
    bytes[..wire::HEADER_LEN].copy_from_slice(&Header::new(42, 1, 77).encode());
    std::fs::write(&older, bytes).unwrap();
    assert_eq!(read_pair().ops.len(), 1);
}

#[test]
fn records_of_a_newer_collector_are_skipped_with_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = Header::new(42, 1, 2).encode().to_vec();
    let mut frame = FrameBuilder::new();
    basics().iter().for_each(|record| frame.put(record));
    frame.put_encoded(&[201, 3, 1, 2, 3]);
    launch(1, 900, 110).iter().for_each(|record| frame.put(record));
    bytes.extend_from_slice(frame.close());
    let path = folder.path().join("42-2.rgcap");
    std::fs::write(&path, bytes).unwrap();
    let mut trace = Trace::default();
    read(&path, &mut trace).unwrap();
    assert_eq!(trace.ops.len(), 1);
    assert_eq!(trace.losses.count(LossKind::EventUnknown), 1);
}

/// A call that records an event, or waits, with its record.
fn sync(name: u32, sync: wire::SyncCall) -> [Record<'static>; 2] {
    let wire::SyncCall { correlation, at, .. } = sync;
    let call = wire::Call { api: name, thread: 900, correlation, result: 0, start: at, end: at + 5 };
    [Record::Call(call), Record::SyncCall(sync)]
}

#[test]
fn a_wait_is_for_the_latest_record_of_its_event() {
    let name =
        |api, name: &'static str| Record::CallName(wire::CallName { api, name: Text(name.as_bytes()) });
    let call = |kind, correlation, stream, event, at| {
        let (context, api) = (1, 300 + u32::from(kind));
        sync(api, wire::SyncCall { kind, correlation, context, stream, event, at })
    };
    let mut records = vec![
        name(300, "cudaEventRecord_v3020"),
        name(301, "cudaEventSynchronize_v3020"),
        name(302, "cudaStreamWaitEvent_v3020"),
        name(303, "cudaStreamSynchronize_v3020"),
    ];
    records.extend(basics());
    records.extend(launch(1, 900, 100));
    // Threads write their records apart, so these are in no order.
    records.extend(call(2, 12, 13, 0xe1, 120));
    records.extend(call(0, 11, 7, 0xe1, 110));
    records.extend(call(0, 13, 13, 0xe1, 130));
    records.extend(call(1, 14, u32::MAX, 0xe1, 140));
    records.extend(call(3, 15, 7, 0, 150));
    records.extend(call(1, 16, u32::MAX, 0xe2, 160));
    let (trace, _) = read_whole(&records);
    let waits: Vec<_> = trace
        .waits
        .iter()
        .map(|w| (w.correlation, w.kind, w.stream, w.event.map(|e| (e.correlation, e.stream))))
        .collect();
    let expected = [
        (12, WaitKind::StreamForEvent, Some(13), Some((11, 7))),
        (14, WaitKind::Event, None, Some((13, 13))),
        (15, WaitKind::Stream, Some(7), None),
        (16, WaitKind::Event, None, None),
    ];
    assert_eq!(waits, expected);
    assert!(trace.waits.iter().all(|wait| wait.device == Some(trace.ops.device[0])));

    // The event may have been recorded again between two windows.
    let window = |on, at| Record::Window(wire::Window { on, cause: 1, at });
    records.extend([window(1, 90), window(0, 125), window(1, 135), window(0, 170)]);
    let (trace, _) = read_whole(&records);
    let of = |correlation| trace.waits.iter().find(|wait| wait.correlation == correlation).unwrap().event;
    assert!(of(12).is_some() && of(14).is_none());
}

/// Writes a variable of a launcher.
fn variable(name: &'static str, value: u32) -> Record<'static> {
    Record::LauncherVariable(wire::LauncherVariable { value, name: Text(name.as_bytes()) })
}

#[test]
fn the_launcher_and_the_process_group_tell_the_rank() {
    let folder = tempfile::tempdir().unwrap();
    let host = Record::Host(wire::Host { name: Text(b"node7") });
    let launched = [variable("RANK", 3), variable("WORLD_SIZE", 8), host];
    let mut records = basics();
    records.extend(launched);
    let (trace, _) = read_whole(&records);
    let job = trace.distributed.unwrap();
    assert_eq!((job.rank, job.world_size), (Some(3), Some(8)));
    assert_eq!(trace.host.as_deref(), Some("node7"));
    let path = write(folder.path(), &records, true);
    let told = super::rank(&path).unwrap().unwrap();
    assert_eq!((told.rank, told.host.as_deref()), (3, Some("node7")));

    // A worker that an engine started inherits the variables of the engine.
    let group = "roofgap.group rank=1 world=4 name=0 size=4 ranks=0-3 desc=default_pg";
    records.push(event(EventKind::Mark, 0, 100, 0, Message::Inline(Text(group.as_bytes()))));
    let path = write(folder.path(), &records, true);
    assert_eq!(super::rank(&path).unwrap().map(|told| told.rank), Some(1));
    let job = crate::read(&[path]).unwrap().trace.distributed.unwrap();
    assert_eq!((job.rank, job.world_size, job.groups.len()), (Some(1), Some(4), 1));

    let alone = [variable("RANK", 0), variable("WORLD_SIZE", 1)];
    let path = write(folder.path(), &alone, true);
    assert_eq!(super::rank(&path).unwrap(), None, "a job of one is no job");
}

/// Compresses a file as `runs prune` does.
fn compress(path: &Path) -> PathBuf {
    let packed = path.with_added_extension("gz");
    let mut encoder =
        flate2::write::GzEncoder::new(std::fs::File::create(&packed).unwrap(), flate2::Compression::fast());
    std::io::copy(&mut std::fs::File::open(path).unwrap(), &mut encoder).unwrap();
    encoder.finish().unwrap();
    std::fs::remove_file(path).unwrap();
    packed
}

#[test]
fn a_compressed_capture_has_its_host_and_names() {
    let folder = tempfile::tempdir().unwrap();
    let host = Record::Host(wire::Host { name: Text(b"node7") });
    let mut records = basics();
    records.insert(0, host);
    records.extend(launch(1, 900, 110));
    let path = write(folder.path(), &records, true);
    let plain = kernel_names(&path).unwrap();
    let packed = compress(&path);
    assert_eq!(kernel_names(&packed).unwrap(), plain);
    let trace = crate::read(&[packed]).unwrap().trace;
    assert_eq!(trace.host.as_deref(), Some("node7"));
}

#[test]
fn the_older_segment_is_read_beside_a_compressed_capture() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = basics();
    records.extend(launch(1, 900, 110));
    let path = write(folder.path(), &records, false);
    let older = wire::older_segment(&path);
    std::fs::rename(&path, &older).unwrap();
    let mut records = basics();
    records.extend(launch(2, 900, 200));
    write(folder.path(), &records, true);
    let kernels = |path: &Path| {
        let trace = crate::read(&[path.to_owned()]).unwrap().trace;
        assert_eq!(trace.sources[0].path, path.display().to_string());
        trace.ops.len()
    };
    assert_eq!(kernels(&path), 2);
    let packed = compress(&path);
    assert_eq!(kernels(&packed), 2);
    let packed_older = compress(&older);
    assert_eq!(kernels(&packed), 2);
    assert_eq!(super::find_older(&packed), Some(packed_older));
}

#[test]
fn captures_and_their_older_segments_are_named_as_such() {
    for (name, is_capture) in [
        ("1-2.rgcap", true),
        ("1-2.rgcap.old", true),
        ("1-2.rgcap.gz", true),
        ("1-2.rgcap.old.gz", true),
        ("1-2.rgcap.log", false),
        ("notes.old", false),
    ] {
        assert_eq!(super::is_capture(name), is_capture, "{name}");
    }
}

#[test]
fn losses_of_an_impossible_number_are_counted_up_to_the_largest() {
    let loss = Record::Loss(wire::Loss { count: u64::MAX, id: Text(b"cupti.dropped"), detail: Text(b"") });
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &[loss], true);
    let losses = crate::read(&[path.clone(), path]).unwrap().trace.losses;
    assert_eq!(losses.count(LossKind::ToolDropped), u64::MAX);
}

#[test]
fn windows_of_impossible_times_have_a_length() {
    const YEAR: i64 = 366 * 86_400 * 1_000_000_000;
    let edge = |on: u8, at: u64| Record::Window(wire::Window { on, cause: 0, at });
    let edges = [edge(1, 0), edge(0, i64::MAX as u64), edge(1, 0), edge(0, u64::MAX)];
    let (mut trace, _) = read_whole(&edges);
    trace.limit_values().unwrap();
    let recorded = &trace.recorded[0];
    assert_eq!((recorded.recorded_ns(), recorded.all_ns()), (YEAR, YEAR));
    assert_eq!(trace.losses.count(LossKind::TimeOutOfRange), 2);
}

#[test]
fn samples_of_counters_are_on_the_clock_of_the_capture() {
    let uuid = [3; 16];
    let device = wire::Device {
        id: 0,
        visible: 1,
        source: 1,
        major: 9,
        minor: 0,
        sms: 132,
        clock_khz: 0,
        l2_bytes: 0,
        memory_bytes: 0,
        bandwidth: 0,
        name: Text(b"NVIDIA H200"),
        uuid: Text(&uuid),
    };
    let metric = |place, name: &'static str| {
        Record::CounterMetric(wire::CounterMetric { device: 0, place, name: Text(name.as_bytes()) })
    };
    let values: Vec<u8> = [5.5_f32, 7.0, 9.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let sample = |start| {
        let values = Text(&values);
        Record::CounterSample(wire::CounterSample { device: 0, start, end: start + 10, values })
    };
    let mut records = basics();
    records.extend(launch(1, 900, 110));
    records.extend([
        Record::Device(device),
        metric(0, "dram__bytes_read.sum"),
        metric(1, "some__new_counter.sum"),
        metric(2, "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"),
        // CUPTI's clock is 500 ahead.
        Record::ClockPair(wire::ClockPair { before: 100, cupti: 600, after: 100 }),
        sample(620),
        sample(610),
    ]);
    let (trace, _) = read_whole(&records);
    let [sampled] = trace.sampled.as_slice() else { panic!("{}", trace.sampled.len()) };
    assert_eq!(sampled.windows, [(120, 130), (110, 120)]);
    assert_eq!(sampled.values(crate::SampledMetric::DramReadBytes), Some(&[5.5, 5.5][..]));
    assert_eq!(sampled.values(crate::SampledMetric::TensorPct), Some(&[9.0, 9.0][..]));
    assert_eq!(sampled.metrics.len(), 2, "a counter of a newer sampler is left out");
    assert_eq!(trace.devices[sampled.device.index()].sms, Some(132));
}

#[test]
fn sampled_stacks_belong_to_the_thread_that_calls() {
    let frame = |id, function: &'static str, line| {
        let (function, file) = (Text(function.as_bytes()), Text(b"app.py"));
        Record::StackFrame(wire::StackFrame { id, line, function, file })
    };
    let frames: Vec<u8> = [1_u32, 0].iter().flat_map(|id| id.to_le_bytes()).collect();
    let sample = |tid, handle, at| {
        Record::StackSample(wire::StackSample { pid: 42, tid, handle, at, frames: Text(&frames) })
    };
    let mut records = basics();
    records.extend(launch(1, 900, 110));
    records.extend([
        frame(0, "main", 3),
        frame(1, "step", 7),
        sample(0, 900, 130),
        sample(0, 900, 120),
        // A thread without calls.
        sample(9_999, 901, 125),
    ]);
    let (trace, _) = read_whole(&records);
    let stacks = &trace.stacks;
    assert_eq!(stacks.samples.iter().map(|sample| sample.at).collect::<Vec<_>>(), [120, 130]);
    assert!(
        stacks.samples.iter().all(|sample| sample.thread == trace.calls.thread[0])
            && stacks.foreign.is_empty()
    );
    let (mut names, mut at) = (Vec::new(), stacks.samples[0].stack);
    while let Some((caller, frame)) = at.index().checked_sub(1).and_then(|at| stacks.stacks().get(at)) {
        let frame = stacks.frame(*frame);
        names.push((trace.names.get(frame.function), frame.line));
        at = *caller;
    }
    assert_eq!(names, [("step", 7), ("main", 3)]);
}

#[test]
fn a_name_that_is_not_mangled_stays() {
    for name in ["nvjet_sm90_tst_64x8", "", "_Z", "_ZN", "_Z99x", "_Z1fS5_"] {
        assert_eq!(super::demangle(name), None, "{name}");
    }
    assert_eq!(super::demangle("_Z3addPfS_i").as_deref(), Some("add(float*, float*, int)"));
}

proptest! {
    #[test]
    fn no_name_makes_demangling_fail(rest in "[NZSTIEKPRLJXFAMUDtalijv0-9_]{0,80}") {
        let _ = super::demangle(&format!("_Z{rest}"));
    }

    #[test]
    fn references_back_cannot_make_a_name_grow_without_end(depth in 1usize..60) {
        // Each argument list names the one before it twice.
        let mut name = String::from("_Z1fI1xIiiE");
        for at in 0..depth {
            let back = char::from_digit(at as u32 % 36, 36).unwrap().to_ascii_uppercase();
            name.push_str(&format!("1xIS{back}_S{back}_E"));
        }
        name.push_str("Evv");
        if let Some(text) = super::demangle(&name) {
            prop_assert!(text.len() < 1 << 20);
        }
    }
}
