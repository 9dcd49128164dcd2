use super::*;
use crate::WaitKind;
use proptest::prelude::*;
use std::io::Write;
use std::path::PathBuf;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perfetto/program.pftrace")
}

fn read_bytes(bytes: &[u8]) -> Result<Trace, ReadError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    crate::read(&[file.path().to_path_buf()]).map(|input| input.trace)
}

/// Nanoseconds of boot time of a moment of the fixture, us after 5 s.
fn us(at: f64) -> Ns {
    5_000_000_000 + (at * 1000.0) as Ns
}

#[test]
fn what_the_program_did_is_read() {
    let trace = crate::read(&[fixture()]).unwrap().trace;
    let name = |id| trace.names.get(id);
    let (ops, calls) = (&trace.ops, &trace.calls);
    let op = |i: usize| (ops.kind[i], ops.start[i], ops.end[i], name(ops.name[i]), ops.stream[i]);
    assert_eq!(ops.len(), 3);
    assert_eq!(op(0), (OpKind::Kernel, us(30.5), us(42.845), "gemm_kernel", 7));
    assert_eq!(op(1), (OpKind::Copy, us(60.0), us(64.0), "Memcpy HtoD (Pinned -> Device)", 13));
    assert_eq!(op(2), (OpKind::Kernel, us(80.0), us(81.5), "norm_kernel", 21));
    assert_eq!((ops.shape_of(0).grid, ops.shape_of(0).block), ([8, 4, 1], [128, 1, 1]));
    assert_eq!(ops.transfers[&1].bytes, 4_096);
    assert_eq!(trace.devices[0].name.as_deref(), Some("NVIDIA H100 80GB HBM3"));
    assert_eq!(trace.devices.len(), 1);
    // Times of the main thread are microseconds that count on from 100; those of the worker from 1,000,000, 20 us later.
    let call = |i: usize| (calls.start[i], calls.end[i], name(calls.name[i]));
    assert_eq!(calls.len(), 3);
    assert_eq!(call(0), (us(21.0), us(25.0), "cudaLaunchKernel"));
    assert_eq!(call(1), (us(31.0), us(40.0), "cudaMemcpyAsync"));
    assert_eq!(call(2), (us(70.0), us(72.0), "cudaLaunchKernelExC"));
    // The last pair is joined by an arrow.
    assert_eq!(ops.correlation, calls.correlation);
    assert_eq!(ops.correlation[..2], [41, 42]);
    assert!(
        ops.process.iter().chain(&calls.process).all(|process| trace.processes[process.index()].pid == 7)
    );
    let cpu_op = (trace.cpu_ops.start[0], trace.cpu_ops.end[0], name(trace.cpu_ops.name[0]));
    assert_eq!((trace.cpu_ops.len(), cpu_op), (1, (us(20.0), us(26.0), "aten::mm")));
    let ranges: Vec<_> =
        trace.ranges.rows.iter().map(|r| (r.start, r.end, name(r.name), r.style, r.open)).collect();
    assert_eq!(
        ranges,
        [
            (us(10.0), us(50.0), "decode_step", RangeStyle::PushPop, false),
            (us(11.0), us(60.0), "request", RangeStyle::StartEnd, false),
            (us(22.0), us(81.5), "open", RangeStyle::PushPop, true),
        ]
    );
    let threads: Vec<_> = trace.threads.iter().map(|thread| (thread.tid, name(thread.name))).collect();
    assert_eq!(threads, [(7, "main"), (8, "worker")]);
    assert_eq!(trace.ranges.rows[1].thread, calls.thread[0]);
    assert_eq!((trace.ranges.marks[0].at, name(trace.ranges.marks[0].name)), (us(30.0), "first token"));
    let losses: Vec<_> = trace.losses.iter().map(|loss| (loss.kind, loss.count)).collect();
    let expected = [(LossKind::RangeOpen, 1), (LossKind::RangeBegunBefore, 1), (LossKind::EventUnknown, 1)];
    assert_eq!(losses, expected, "a slice without an end, an end without a slice, a counter");
}

/// The same work as the Cuspy backend of torch 2.15 writes it in both forms. A packet has no kinds of memory and no static shared memory.
#[test]
fn both_forms_of_torch_hold_the_same_work() {
    let read = |file: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/torch").join(file);
        crate::read(&[path]).unwrap().trace
    };
    let (json, packets) = (read("cuspy.json"), read("cuspy.pftrace"));
    let work = |trace: &Trace| -> Vec<String> {
        let ops = &trace.ops;
        let mut rows: Vec<String> = (0..ops.len())
            .map(|i| {
                let name = trace.names.get(ops.name[i]).split(' ').next();
                let shape = ops.shape_of(i);
                let node = (ops.graph_node(i), trace.graph_nodes.stack_of(ops.process[i], ops.graph_node(i)));
                let node = (node.0, node.1.map(|at| trace.names.get(trace.graph_nodes.stacks()[at][0])));
                let launch = (ops.correlation[i], trace.processes[ops.process[i].index()].pid);
                let bytes = ops.transfers.get(&(i as u32)).map_or(0, |transfer| transfer.bytes);
                let shape = (shape.grid, shape.block, shape.registers);
                format!(
                    "{} {} {:?} {name:?} {} {launch:?} {shape:?} {bytes} {node:?}",
                    ops.start[i], ops.end[i], ops.kind[i], ops.stream[i]
                )
            })
            .collect();
        rows.sort();
        rows
    };
    assert_eq!(work(&packets).len(), 7);
    assert_eq!(work(&packets), work(&json));
    assert_eq!(packets.ops.shape_of(0).dynamic_shared, 2048);
    let sorted = |mut rows: Vec<(Ns, Ns)>| {
        rows.sort_unstable();
        rows
    };
    let calls =
        |trace: &Trace| sorted(std::iter::zip(trace.calls.start.clone(), trace.calls.end.clone()).collect());
    assert_eq!(calls(&packets), calls(&json));
    let ranges = |trace: &Trace| {
        trace.ranges.rows.iter().map(|r| trace.names.get(r.name).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        ranges(&packets),
        ["prefill", "Buffer Flush", "decode_step"],
        "waits of the GPU are no ranges"
    );
    let waits = |trace: &Trace| {
        trace.waits.iter().map(|wait| (wait.correlation, wait.kind, wait.stream)).collect::<Vec<_>>()
    };
    assert_eq!(waits(&json), [(52, WaitKind::Stream, Some(7))]);
    assert_eq!(waits(&packets), waits(&json));
    assert_eq!(packets.losses.count(LossKind::EventUnknown), 1, "a host node");
    assert_eq!((&packets.sampled, &packets.vitals), (&json.sampled, &json.vitals));
    assert!(!packets.sampled.is_empty() && !packets.vitals.is_empty());
}

/// Encodes a field of a message.
fn field(number: u8, value: Result<u64, &[u8]>) -> Vec<u8> {
    let varint = |mut value: u64| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    match value {
        Ok(value) => [varint(u64::from(number) << 3), varint(value)].concat(),
        Err(bytes) => {
            [varint(u64::from(number) << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
        }
    }
}

#[test]
fn a_wait_names_the_record_of_its_event() {
    let note = |key: &str, value: Result<u64, &str>| {
        let value = match value {
            Ok(value) => field(4, Ok(value)),
            Err(text) => field(6, Err(text.as_bytes())),
        };
        field(4, Err(&[field(10, Err(key.as_bytes())), value].concat()))
    };
    let slice = |at: u64, kind: u64, name: &str, category: &str, notes: &[Vec<u8>]| {
        let event = [
            field(9, Ok(kind)),
            field(11, Ok(5)),
            field(23, Err(name.as_bytes())),
            field(22, Err(category.as_bytes())),
        ];
        let event = [event.concat(), notes.concat()].concat();
        field(1, Err(&[field(8, Ok(at)), field(10, Ok(1)), field(11, Err(&event))].concat()))
    };
    let read = |stream: u64, correlation: u64| {
        let notes = [
            note("cuda_sync_kind", Err("Stream Wait Event")),
            note("correlation", Ok(correlation)),
            note("stream", Ok(20)),
            note("wait_on_stream", Ok(stream)),
            note("wait_on_cuda_event_record_corr_id", Ok(40)),
        ];
        let call = note("correlation", Ok(41));
        let packets = [
            slice(10, 1, "cudaStreamWaitEvent", "cuda_runtime", &[call]),
            slice(20, 2, "", "", &[]),
            slice(30, 1, "Stream Wait Event", "cuda_sync", &notes),
            slice(40, 2, "", "", &[]),
        ];
        read_bytes(&packets.concat()).unwrap()
    };
    let trace = read(7, 41);
    let wait = trace.waits[0];
    assert_eq!(
        (wait.process, wait.correlation, wait.kind),
        (trace.calls.process[0], 41, WaitKind::StreamForEvent)
    );
    assert_eq!((wait.stream, wait.event), (Some(20), Some(RecordedEvent { correlation: 40, stream: 7 })));
    // A profiler that does not know the record writes -1.
    assert_eq!(read(u64::MAX, 41).waits[0].event, None);
    let nameless = read(7, 0);
    assert_eq!((nameless.waits.len(), nameless.losses.count(LossKind::EventMalformed)), (0, 1));
}

#[test]
fn a_trace_that_ends_within_a_packet_is_a_loss() {
    let bytes = std::fs::read(fixture()).unwrap();
    let cut = read_bytes(&bytes[..bytes.len() - 10]).unwrap();
    assert_eq!((cut.losses.count(LossKind::CaptureCut), cut.ops.len()), (1, 2));
    let empty = read_bytes(&[0x0a, 4, 0x50, 1, 0x68, 1]).unwrap_err().to_string();
    assert!(empty.contains("without slices and without work of a GPU"), "{empty}");
    let mut damaged = bytes.clone();
    let at = bytes.windows(5).position(|bytes| bytes == b"queue").unwrap();
    damaged[at - 1] = 0xff;
    let damaged = read_bytes(&damaged).unwrap_err().to_string();
    assert!(damaged.contains("damaged or incomplete Perfetto trace"), "{damaged}");
}

#[test]
fn other_protocol_buffers_are_not_traces() {
    assert!(packets::looks_like(&std::fs::read(fixture()).unwrap()[..200]));
    for other in [
        // An XPlane: a number and a name.
        &b"\x0a\x10\x08\x01\x12\x0c/host:CPU 1 "[..],
        b"\x0a\x02\x08\x01",
        b"\x0a",
        b"",
        b"\n\n{\"a\": 1}",
        b"\n ** CUDA GPU Kernel Summary",
    ] {
        assert!(!packets::looks_like(other), "{other:?}");
    }
}

#[test]
fn the_stream_is_in_the_name_of_a_queue() {
    assert_eq!(stream_and_pid("stream 7"), (Some(7), None));
    assert_eq!(stream_and_pid("stream 7 of 1234 (2)"), (Some(7), Some(1234)));
    assert_eq!(stream_and_pid("CUDA Stream #3"), (Some(3), None));
    assert_eq!(stream_and_pid("Compute"), (None, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn changed_bytes_are_answered(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = std::fs::read(fixture()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = read_bytes(&bytes);
        let _ = read_bytes(&bytes[..cut.index(bytes.len())]);
    }
}
