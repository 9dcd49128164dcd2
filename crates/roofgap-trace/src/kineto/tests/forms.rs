//! What different releases of the profiler write.

use super::snapshot::Snapshot;
use super::*;
use crate::vitals::GpuState;
use crate::{DeviceId, LossKind, MemoryKind, ProcessId, RecordedEvent, SampledMetric, Wait, WaitKind};
use serde_json::{Value, json};

#[test]
fn the_first_releases() {
    let trace = read_text(
        r#"{"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 10, "tid": "10", "ts": 1621401187223005, "dur": 50,
         "args": {"Device": 10, "External id": 7, "Input dims": [[1, 2]]}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 10, "tid": 11, "ts": 1621401187223010, "dur": 5,
         "args": {"cbid": 211, "correlation": 99, "external id": "7", "external ts": "1621401187223005"}},
        {"ph": "X", "cat": "Kernel", "name": "sgemm", "pid": 0, "tid": "stream 7", "ts": 1621401187223020, "dur": 30,
         "args": {"queued": 0, "device": 0, "context": 1, "stream": "7", "correlation": 99, "external id": 7,
                  "registers per thread": 32, "shared memory": 512, "grid": [4, 1, 1], "block": [128, 1, 1]}},
        {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": "stream 7",
         "ts": 1621401187223060, "dur": 1, "args": {"stream": 7, "bytes": 64}}
        ]}"#,
    )
    .unwrap();
    let snapshot = Snapshot::of(&trace);
    assert_eq!(
        snapshot.ops,
        [
            "Kernel (1621401187223020000, 1621401187223050000) \"sgemm\" (0, 7) (99, 10) \
             ([4, 1, 1], [128, 1, 1], 32, 512) (0, 0)",
            "Copy (1621401187223060000, 1621401187223061000) \"Memcpy HtoD (Pageable -> Device)\" (0, 7) (0, 10) \
             ([0, 0, 0], [0, 0, 0], 0, 0) (64, 0)",
        ]
    );
    assert_eq!(snapshot.calls, ["(1621401187223010000, 1621401187223015000) \"cudaLaunchKernel\" 10/11 99"]);
    assert_eq!(snapshot.cpu_ops, ["(1621401187223005000, 1621401187223055000) \"aten::mm\" 10/10"]);
    assert_eq!(trace.losses.count(LossKind::OpNoDevice), 2);
    assert_eq!(trace.losses.count(LossKind::TimeRounded), 2);
    assert_eq!(trace.losses.iter().count(), 2);
}

/// ROCm counts the host's processors as devices 0 and 1; the header describes the GPUs from 0.
#[test]
fn the_device_of_an_event_is_no_index_into_the_descriptions() {
    let read = |devices: &str| {
        read_text(&format!(
            r#"{{"schemaVersion": 1, "deviceProperties": [{devices}], "traceEvents": [
            {{"ph": "X", "cat": "kernel", "name": "k", "pid": 2, "tid": 0, "ts": 1.5, "dur": 2.5,
             "args": {{"device": 2, "stream": 0, "correlation": 1}}}}]}}"#
        ))
        .unwrap()
    };
    let gpu =
        |id: u32, name: &str| format!(r#"{{"id": {id}, "name": "{name}", "numSms": 304, "warpSize": 64}}"#);
    let alike = read(&format!("{}, {}", gpu(0, "AMD Instinct MI300X"), gpu(1, "AMD Instinct MI300X")));
    let device = &alike.devices[alike.ops.device[0].index()];
    assert_eq!(
        (device.number, device.name.as_deref(), device.sms),
        (2, Some("AMD Instinct MI300X"), Some(304))
    );
    assert_eq!(alike.losses.count(LossKind::OpNoDevice), 0);
    let mixed = read(&format!("{}, {}", gpu(0, "AMD Instinct MI300X"), gpu(1, "AMD Instinct MI210")));
    assert_eq!(mixed.devices[mixed.ops.device[0].index()].name, None);
    assert_eq!(mixed.losses.count(LossKind::OpNoDevice), 1);
}

/// Since torch 2.12 a program can name the nodes of its graphs, and have them shown on lanes of its own.
#[test]
fn named_nodes_of_graphs_keep_their_streams() {
    let kernel = |ts: u32, node: u32, rest: &str| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {ts}.5, "dur": 1.5,
                "args": {{"device": 0, "stream": 7, "correlation": 5, "graph node id": {node}{rest}}}}}"#
        )
    };
    let moved = r#", "original_stream": 153, "name": "model.layers.3.mlp""#;
    let events = [kernel(1, 11, moved), kernel(5, 12, ""), kernel(9, 11, moved)].join(", ");
    let call = r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 10, "tid": 10, "ts": 0.5, "dur": 0.5, "args": {"correlation": 5}}"#;
    let text = format!(r#"{{"cudaGraphInlineAnnotated": true, "traceEvents": [{call}, {events}]}}"#);
    let trace = read_text(&text).unwrap();
    assert_eq!(trace.ops.stream, [153, 7, 153]);
    let names = |node| {
        let stack = trace.graph_nodes.stack_of(trace.ops.process[0], node)?;
        Some(trace.graph_nodes.stacks()[stack].iter().map(|name| trace.names.get(*name)).collect::<Vec<_>>())
    };
    assert_eq!(names(11), Some(vec!["model.layers.3.mlp"]));
    assert_eq!(names(12), None);
}

fn torch(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/torch").join(file)
}

#[test]
fn both_writers_of_torch_2_15_say_the_same() {
    for file in ["cpu.json.gz", "cpu-python.json.gz"] {
        let mut text = String::new();
        let unpacked = &mut flate2::read::MultiGzDecoder::new(std::fs::File::open(torch(file)).unwrap());
        unpacked.read_to_string(&mut text).unwrap();
        let expected = super::oracle::expected(&serde_json::from_str(&text).unwrap());
        let trace = read_text(&text).unwrap();
        assert_eq!(Snapshot::of(&trace), expected, "{file}");
        assert_eq!((trace.cpu_ops.len(), trace.ranges.rows.len(), trace.stacks.spans.len()), (1180, 4, 544));
        let losses: Vec<_> = trace.losses.iter().map(|loss| (loss.kind, loss.count)).collect();
        use LossKind::{AllocationsRecorded, ShapesRecorded, StacksRecorded};
        assert_eq!(losses, [(StacksRecorded, 1), (ShapesRecorded, 1), (AllocationsRecorded, 1)], "{file}");
    }
}

/// The Cuspy backend of torch 2.15. Times of the fixture, us after the start of its script.
#[test]
fn the_work_of_graphs_that_cuspy_writes() {
    let trace = crate::read(&[torch("cuspy.json")]).unwrap().trace;
    let us = |at: i64| 1_790_861_026_000_000_000 + at * 1000;
    let op = |kind: &str, (start, end): (i64, i64), name: &str, stream, correlation, shape, other| {
        super::snapshot::op_line(
            kind,
            (us(start), us(end)),
            name,
            (0, stream),
            (correlation, 7),
            shape,
            other,
        )
    };
    let none = ([0; 3], [0; 3], 0, 0);
    let gemm = ([8, 4, 1], [128, 1, 1], 96, 2048);
    let node = |graph: u64, node: u64| graph << 32 | node;
    assert_eq!(
        Snapshot::of(&trace).ops,
        [
            op("Kernel", (30, 50), "gemm_kernel", 7, 41, gemm, (0, 0)),
            op("Copy", (60, 64), "Memcpy HtoD (pageable -> device)", 7, 42, none, (4096, 0)),
            op("Set", (66, 67), "Memset", 7, 43, none, (64, 0)),
            op(
                "Kernel",
                (100, 110),
                "flash_fwd",
                7,
                50,
                ([16, 1, 1], [256, 1, 1], 128, 5120),
                (0, node(3, 1))
            ),
            op("Kernel", (112, 130), "gemm_kernel", 21, 50, gemm, (0, node(3, 2))),
            op("Copy", (132, 136), "Memcpy DtoH (device -> pinned)", 7, 50, none, (512, node(3, 3))),
            op("Kernel", (140, 150), "sample_kernel", 7, 51, ([1; 3], [32, 1, 1], 24, 0), (0, node(4, 1))),
        ]
    );
    assert_eq!(trace.ops.transfers[&1].memory, (MemoryKind::Pageable, MemoryKind::Device));
    let names = |node| {
        let stack = trace.graph_nodes.stack_of(trace.ops.process[0], node)?;
        Some(trace.graph_nodes.stacks()[stack].iter().map(|name| trace.names.get(*name)).collect::<Vec<_>>())
    };
    assert_eq!(names(node(3, 1)), Some(vec!["attention"]));
    assert_eq!(names(node(4, 1)), Some(vec!["sampler"]), "the first node of another graph");
    let unread: Vec<_> = trace.losses.messages(LossKind::EventUnknown).collect();
    assert_eq!(unread, [("host nodes of CUDA graphs", 1)]);
    assert_eq!(trace.losses.iter().count(), 1);
    let [sampled] = &trace.sampled[..] else { panic!("{:?}", trace.sampled) };
    let windows = [(30, 40), (40, 50), (110, 120)].map(|(start, end)| (us(start), us(end)));
    assert_eq!(sampled.windows, windows, "no window where samples are missing");
    assert_eq!(sampled.values(SampledMetric::SmActivePct), Some(&[0.0, 80.0, 60.0][..]));
    assert_eq!(sampled.values(SampledMetric::DramPct), Some(&[0.0, 40.0, 20.0][..]));
    let state = &trace.vitals[0].states[..];
    let (watts, sm_mhz, memory_mhz) = (Some(250.0), Some(1980.0), Some(3201.0));
    assert_eq!(state, [GpuState { at: us(40), watts, sm_mhz, memory_mhz, reasons: 0 }]);
}

/// Counters as the C++ writer has them since torch 2.13, under the names of CUPTI.
#[test]
fn counters_go_by_the_names_of_cupti() {
    let event = |name: &str, pid: &str, ts: u32, value: f64| json!({"ph": "C", "cat": "hardware_counters", "name": name, "pid": pid, "tid": 0, "ts": ts, "args": {"": value}});
    let tensor = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
    let mut events: Vec<Value> =
        (0..4).map(|at| event(tensor, "GPU 0 Counters", at, 10.0 * f64::from(at))).collect();
    events.push(event("nvltx__bytes.sum", "GPU 0 Counters", 1, 5.0));
    events.push(event(tensor, "Other", 1, 5.0));
    events.push(json!({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {"device": 0, "stream": 7}}));
    let trace = read_text(&json!({"schemaVersion": 1, "traceEvents": events}).to_string()).unwrap();
    let [sampled] = &trace.sampled[..] else { panic!("{:?}", trace.sampled) };
    assert_eq!(sampled.windows, [(0, 1000), (1000, 2000), (2000, 3000)]);
    assert_eq!(sampled.values(SampledMetric::TensorPct), Some(&[0.0, 10.0, 20.0][..]));
    let unread: Vec<_> =
        trace.losses.messages(LossKind::EventUnknown).map(|(name, _)| name.to_owned()).collect();
    assert_eq!(unread, ["counter nvltx__bytes.sum".to_owned(), format!("counter {tensor}")]);
}

/// Accelerators whose events are not work alone.
#[test]
fn devices_that_are_no_gpus_are_named() {
    let devices = |events: &str| {
        let call = r#"{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 10, "tid": 10, "ts": 1.0, "dur": 2.0}"#;
        let trace = read_text(&format!(r#"{{"traceEvents": [{call}, {events}]}}"#)).unwrap();
        assert_eq!(trace.ops.len(), 0);
        trace
            .losses
            .messages(LossKind::OtherDevice)
            .map(|(name, count)| format!("{name} {count}"))
            .collect::<Vec<_>>()
    };
    let wait = r#"{"ph": "X", "cat": "mtia_ccp_events", "name": "event_wait", "pid": 17, "tid": 1, "ts": 1.0, "dur": 2.0, "args": {"stream": 1}}"#;
    assert_eq!(devices(&format!("{wait}, {wait}")), ["MTIA 2"]);
    let lane =
        r#"{"ph": "M", "pid": 5, "tid": 0, "name": "process_name", "args": {"name": "Ascend Hardware"}}"#;
    let task = r#"{"ph": "X", "name": "MatMulV2", "pid": 5, "tid": 2, "ts": "1.0", "dur": 2.0, "args": {"Task Type": "AI_CORE"}}"#;
    assert_eq!(devices(&format!("{lane}, {task}")), ["Ascend NPU 1"]);
}

/// A process that sees one GPU of several numbers it in two ways.
#[test]
fn the_only_device_is_the_one_that_is_described() {
    let read = |devices: &str| {
        read_text(&format!(
            r#"{{"deviceProperties": [{devices}], "traceEvents": [
            {{"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 1,
             "args": {{"correlation": 5}}}},
            {{"ph": "X", "cat": "kernel", "name": "k", "pid": 2, "tid": 0, "ts": 3, "dur": 1,
             "args": {{"device": 2, "stream": 0, "correlation": 5}}}}]}}"#
        ))
        .unwrap()
    };
    let one = read(r#"{"id": 0, "name": "AMD Instinct MI300X"}"#);
    assert_eq!(one.losses.count(LossKind::OpNoDevice), 0);
    assert_eq!(one.devices[one.ops.device[0].index()].name.as_deref(), Some("AMD Instinct MI300X"));
    let several = read(r#"{"id": 0, "name": "A"}, {"id": 1, "name": "B"}"#);
    assert_eq!(several.losses.count(LossKind::OpNoDevice), 1);
}

/// Releases before 2022 wrote the ranges of the profiler and of optimizers as operators.
#[test]
fn early_steps_are_ranges() {
    let event = |name: &str, ts: u32| {
        format!(
            r#"{{"ph": "X", "cat": "Operator", "name": "{name}", "pid": 1, "tid": "1", "ts": {ts}, "dur": 5, "args": {{}}}}"#
        )
    };
    let events = [
        event("ProfilerStep#16", 0),
        event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1),
        event("aten::mm", 2),
        event("Optimizer.step#SGD.step", 3),
        event("OptimizedMatmul", 4),
    ];
    let trace = read_text(&format!(r#"{{"traceEvents": [{}]}}"#, events.join(","))).unwrap();
    let ranges: Vec<&str> = trace.ranges.rows.iter().map(|r| trace.names.get(r.name)).collect();
    assert_eq!(
        ranges,
        [
            "ProfilerStep#16",
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            "Optimizer.step#SGD.step",
        ]
    );
    let ops: Vec<&str> = trace.cpu_ops.name.iter().map(|name| trace.names.get(*name)).collect();
    assert_eq!(ops, ["aten::mm", "OptimizedMatmul"]);
}

#[test]
fn times_beyond_floating_point_are_exact() {
    let trace = read_text(
        r#"{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1,
            "ts": 1621401187223005.123, "dur": 0.001}], "baseTimeNanoseconds": 1000000000000000001}"#,
    )
    .unwrap();
    assert_eq!(trace.cpu_ops.start, [2_621_401_187_223_005_124]);
    assert_eq!(trace.cpu_ops.end, [2_621_401_187_223_005_125]);
}

#[test]
fn a_duration_without_decimals_is_rounded_only_where_all_are() {
    let kernel = |ts: u32, dur: &str| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {ts}, "dur": {dur}}}"#
        )
    };
    let rounded = |second: &str| {
        let text = format!("[{}, {}]", kernel(1, "2"), kernel(9, second));
        read_text(&text).unwrap().losses.count(LossKind::TimeRounded)
    };
    assert_eq!(rounded("3"), 2);
    assert_eq!(rounded("3.504"), 0);
}

/// Only a broken file has as many devices.
#[test]
fn more_devices_than_can_be() {
    let kernel = |device: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "k", "pid": {device}, "tid": 7, "ts": {device}.5, "dur": 1.5}}"#
        )
    };
    let events: Vec<String> = (0..5000).map(kernel).collect();
    let trace = read_text(&format!("[{}]", events.join(","))).unwrap();
    assert_eq!((trace.devices.len(), trace.ops.len()), (4096, 4096));
    assert_eq!(trace.losses.count(LossKind::EventMalformed), 904);
}

/// Halves of kernels are not read, and the totals say that something is missing.
#[test]
fn kernels_in_halves_are_a_warning() {
    let trace = read_text(
        r#"[{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 1.0},
            {"ph": "B", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 9.0},
            {"ph": "E", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10.0}]"#,
    )
    .unwrap();
    assert_eq!(trace.ops.len(), 1);
    assert_eq!(trace.losses.count(LossKind::EventMalformed), 2);
}

#[test]
fn devices_of_others_and_a_base_time_in_quotes() {
    let launch = |cat: &str, name: &str, id: u32| {
        format!(
            r#"{{"ph": "X", "cat": "{cat}", "name": "{name}", "pid": 1, "tid": 1, "ts": {id}.5, "dur": 1.0,
                "args": {{"correlation": {id}}}}}"#
        )
    };
    let text = format!(
        r#"{{"baseTimeNanoseconds": "1000000", "traceEvents": [{}, {}]}}"#,
        launch("cuda_runtime", "hipLaunchKernel", 1),
        launch("privateuse1_runtime", "Launch", 2)
    );
    let trace = read_text(&text).unwrap();
    assert_eq!(trace.calls.start, [1_001_500, 1_002_500]);
    assert_eq!(trace.calls.class, [crate::CallClass::Launch; 2]);
    assert_eq!(trace.losses.iter().count(), 0);
}

#[test]
fn every_loss_is_counted() {
    let trace = read_text(
        r#"[{"ph": "X", "cat": "cpu_op", "name": "good", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
            {"ph": "X", "cat": "cpu_op", "name": "no time", "pid": 1, "tid": 1, "dur": 1},
            {"ph": "X", "cat": "cpu_op", "name": "no thread", "ts": 1, "dur": 1},
            {"ph": "X", "cat": "kernel", "name": "no stream", "ts": 1, "dur": 1, "args": {"device": 0, "stream": -1}},
            {"ph": "X", "cat": "kernel", "name": "back", "pid": 0, "tid": 7, "ts": 9, "dur": -1},
            {"ph": "X", "cat": "cuda_runtime", "name": "back", "pid": 1, "tid": 1, "ts": 9, "dur": -1},
            {"ph": "X", "cat": "user_annotation", "name": "back", "pid": 1, "tid": 1, "ts": 9, "dur": -1},
            {"ph": "X", "cat": "new_thing", "name": "x", "pid": 1, "tid": 1, "ts": 9, "dur": 1},
            {"ph": "B", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": 9},
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 2, "tid": 7, "ts": 9, "dur": 1},
            {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 9},
            {"cat": "python_function", "ph": "X"}, {}]"#,
    )
    .unwrap();
    let count = |kind| trace.losses.count(kind);
    assert_eq!(count(LossKind::EventMalformed), 5);
    assert_eq!(count(LossKind::EventUnknown), 2);
    assert_eq!(count(LossKind::OpNegative), 1);
    assert_eq!(count(LossKind::CallNegative), 1);
    assert_eq!(count(LossKind::RangeNegative), 1);
    assert_eq!(count(LossKind::NoRuntime), 1);
    assert_eq!(count(LossKind::OpNoDevice), 1);
    assert_eq!((trace.cpu_ops.len(), trace.ops.len(), trace.calls.len()), (1, 1, 0));
    assert_eq!(trace.processes[trace.ops.process[0].index()].pid, 1);
}

#[test]
fn processes_with_the_same_correlation_ids_are_told_apart() {
    let call = |pid: u32, ts: u32| {
        format!(
            r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": {pid}, "tid": {pid}, "ts": {ts},
                "dur": 1, "args": {{"correlation": 5}}}}"#
        )
    };
    let kernel = |ts: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {ts}, "dur": 1,
                "args": {{"correlation": 5}}}}"#
        )
    };
    let text = format!("[{},{},{},{}]", call(1, 10), kernel(12), kernel(22), call(2, 20));
    let trace = read_text(&text).unwrap();
    let pids: Vec<u32> = trace.ops.process.iter().map(|p| trace.processes[p.index()].pid).collect();
    assert_eq!(pids, [1, 2]);
}

#[test]
fn ranges_take_their_domain_from_their_name() {
    let trace = read_text(
        r#"[{"ph": "X", "cat": "user_annotation", "name": "LLM@prefill", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
            {"ph": "X", "cat": "gpu_user_annotation", "name": "LLM@prefill", "pid": 0, "tid": 7, "ts": 1, "dur": 1}]"#,
    )
    .unwrap();
    let ranges = Snapshot::of(&trace).ranges;
    assert_eq!(ranges, ["LLM@(1000, 2000) \"prefill\" 1/1", "@(1000, 2000) \"ProfilerStep#1\" 1/1"]);
}

#[test]
fn threads_that_are_pointers_keep_their_number_as_a_name() {
    let trace = read_text(
        r#"[{"ph": "X", "cat": "cpu_op", "name": "a", "pid": "rank 0", "tid": 139872360597248, "ts": 1, "dur": 1}]"#,
    )
    .unwrap();
    assert_eq!(trace.names.get(trace.threads[0].name), "139872360597248");
    assert_eq!(trace.names.get(trace.processes[0].name), "rank 0");
}

#[test]
fn a_trace_is_told_by_its_head() {
    use crate::kineto::looks_like;
    let text = fixture_text();
    assert!(looks_like(&text[..4096]));
    assert!(looks_like(b"\xef\xbb\xbf \n[ {\"ph\": \"X\"}"));
    for other in
        [&b""[..], b"{}", b"[1, 2]", b"{\"a\": [[[[", b"SQLite format 3\0", b"\"traceEvents\"", b"[[[["]
    {
        assert!(!looks_like(other), "{}", String::from_utf8_lossy(other));
    }
}

/// Kernels carry the arguments of their collective since torch 2.3.
#[test]
fn collectives_of_kernels() {
    let kernel = |ts: u32, more: &str| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "pid": 0, "tid": 7, "ts": {ts}, "dur": 2.5,
                "args": {{"device": 0, "stream": 7{more}}}}}"#
        )
    };
    let events = [
        kernel(50, ""),
        kernel(
            10,
            r#", "Collective name": "_allgather_base", "In msg nelems": 25136, "Out msg nelems": 201088, "Group size": 8,
               "dtype": "BFloat16", "In split size": "[]", "Process Group Name": "3", "Process Group Description": "undefined",
               "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]""#,
        ),
        kernel(
            30,
            r#", "Collective name": "send", "In msg nelems": 7, "dtype": "Opaque", "Seq": 41, "Process Group Name": "0",
               "Process Group Description": "default_pg""#,
        ),
    ];
    let text = format!(
        r#"{{"traceEvents": [{}], "distributedInfo": {{"backend": "nccl", "rank": 5, "world_size": 8, "pg_count": 2,
            "pg_config": [{{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": [0, 1]}}, {{"pg_name": "3", "uid": 1}}]}}}}"#,
        events.join(", ")
    );
    for block in [64, 1 << 20] {
        let mut trace = read_bytes(text.as_bytes(), block, 2).unwrap();
        trace.sort();
        assert_eq!(trace.ops.start, [10_000, 30_000, 50_000]);
        let collectives = &trace.ops.collectives;
        assert_eq!(collectives.len(), 2, "in blocks of {block}");
        let name = |id| trace.names.get(id);
        let gather = collectives[&0];
        assert_eq!((name(gather.name), name(gather.group)), ("_allgather_base", "3"));
        assert_eq!(gather.group_size, 8);
        assert_eq!((gather.input_bytes, gather.output_bytes), (Some(2 * 25_136), Some(2 * 201_088)));
        let send = collectives[&1];
        assert_eq!((name(send.name), name(send.group)), ("send", "0 (default_pg)"));
        assert_eq!((send.group_size, send.input_bytes), (0, None), "unknown type");
        let job = trace.distributed.unwrap();
        assert_eq!((job.rank, job.world_size), (Some(5), Some(8)));
        assert_eq!(job.groups.len(), 1, "a group without a size says nothing");
        assert_eq!((job.groups[0].description.as_str(), job.groups[0].size), ("default_pg", 8));
        assert_eq!(job.groups[0].ranks, [0, 1]);
        assert_eq!(job.groups[0].label(), name(send.group));
        assert_eq!((gather.sequence, send.sequence), (None, Some(41)));
    }
}

/// A backward operator has the sequence number of its forward operator, and the id of the thread that ran it.
#[test]
fn backward_operators_find_their_forward_operators() {
    let op = |name: &str, tid: u32, ts: u32, number: u64, forward: u32| {
        format!(
            r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": {tid}, "ts": {ts}, "dur": 5,
                "args": {{"External id": 1, "Sequence number": {number}, "Fwd thread id": {forward}, "Ev Idx": 3}}}}"#
        )
    };
    let events = [
        op("autograd::engine::evaluate_function: MmBackward0", 9, 100, 40, 1),
        op("aten::linear", 7, 10, 40, 0),
        op("aten::mm", 7, 11, 40, 0),
        // A number of two threads.
        op("aten::add", 7, 20, 41, 0),
        op("aten::add", 8, 20, 41, 0),
        op("AddBackward0", 9, 110, 41, 1),
        // The forward operator was not recorded.
        op("SubBackward0", 9, 120, 39, 1),
    ];
    let text = format!(r#"{{"traceEvents": [{}], "baseTimeNanoseconds": 1000000}}"#, events.join(", "));
    for block in [100, 1 << 20] {
        let trace = read_bytes(text.as_bytes(), block, 2).unwrap();
        assert_eq!(trace.backward.len(), 1, "in blocks of {block}");
        let link = trace.backward[0];
        assert_eq!((link.start, link.end), (1_100_000, 1_105_000));
        assert_eq!((link.forward_start, link.forward_end), (1_011_000, 1_016_000));
        let tid = |thread: crate::ThreadId| trace.threads[thread.index()].tid;
        assert_eq!((tid(link.thread), tid(link.forward_thread)), (9, 7));
    }
}

#[test]
fn mangled_kernels_are_called_as_nsys_calls_them() {
    let kernel = |name: &str, ts: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {ts}, "dur": 1.5,
                "args": {{"device": 0, "stream": 7, "correlation": {ts}}}}}"#
        )
    };
    let names = ["_Z3addPfS_i", "_Z3addPfS_i", "_Znot understood", "plain"];
    let events: Vec<String> = (1..).zip(names).map(|(ts, name)| kernel(name, ts)).collect();
    let trace = read_text(&format!(r#"{{"traceEvents": [{}]}}"#, events.join(","))).unwrap();
    let found: Vec<&str> = trace.ops.name.iter().map(|&name| trace.names.get(name)).collect();
    let add = "add(float*, float*, int)";
    assert_eq!(found, [add, add, "_Znot understood", "plain"]);
}

#[test]
fn options_that_slow_the_program_down_are_noted() {
    let losses = |head: &str| {
        let event =
            r#"{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}"#;
        let trace = read_text(&format!(r#"{{{head} "traceEvents": [{event}]}}"#)).unwrap();
        let ids = trace.losses.iter().map(|loss| (loss.kind.id(), loss.count));
        ids.collect::<Vec<_>>()
    };
    assert_eq!(
        losses(r#""record_shapes": 1, "with_stack": true, "profile_memory": 1, "with_flops": 1,"#),
        [("profiler_with_stack", 1), ("profiler_record_shapes", 1), ("profiler_profile_memory", 1)]
    );
    assert_eq!(losses(r#""record_shapes": 0, "with_stack": false,"#), []);
}

#[test]
fn python_frames_are_stacks_of_their_thread() {
    let frame = |name: &str, tid: u32, ts: &str, dur: &str| {
        format!(
            r#"{{"ph": "X", "cat": "python_function", "name": "{name}", "pid": 1, "tid": {tid}, "ts": {ts}, "dur": {dur}, "args": {{"Python id": 4}}}}"#
        )
    };
    let events = [
        frame("<built-in method item of Tensor object at 0x7f01>", 5, "12.250", "3.500"),
        frame("/a/site-packages/pkg/app.py(7): step", 5, "10", "20"),
        frame("<built-in method item of Tensor object at 0x7f02>", 5, "18", "1"),
        frame("nn.Module: Linear_3", 4, "11", "2"),
        frame("nn.Module: Linear_4", 4, "14", "2"),
    ];
    let text = format!(r#"{{"baseTimeNanoseconds": 1000, "traceEvents": [{}]}}"#, events.join(","));
    let mut trace = read_text(&text).unwrap();
    trace.sort();
    let stacks = &trace.stacks;
    let spans: Vec<_> = stacks
        .spans
        .iter()
        .map(|span| {
            let frame = stacks.frame(span.frame);
            let tid = trace.threads[span.thread.index()].tid;
            (
                tid,
                span.start,
                span.end,
                trace.names.get(frame.function),
                trace.names.get(frame.file),
                frame.line,
            )
        })
        .collect();
    let expected = [
        (5, 11_000, 31_000, "step", "pkg/app.py", 7),
        (5, 13_250, 16_750, "Tensor.item", "", 0),
        (5, 19_000, 20_000, "Tensor.item", "", 0),
        (4, 12_000, 14_000, "nn.Module: Linear", "", 0),
        (4, 15_000, 17_000, "nn.Module: Linear", "", 0),
    ];
    assert_eq!(spans, expected);
    let frames: std::collections::HashSet<_> = stacks.spans.iter().map(|span| span.frame).collect();
    assert_eq!((frames.len(), trace.modules.len(), trace.ranges.rows.len()), (3, 2, 0));
}

/// Waits as `enable_cuda_sync_events` writes them: a query is none, and the number -1 is none either.
#[test]
fn waits_name_the_record_of_their_event() {
    let call = |name: &str, correlation: u32, ts: u32| {
        json!({"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 77, "tid": 77, "ts": ts, "dur": 2,
               "args": {"correlation": correlation}})
    };
    let wait = |name: &str, correlation: u32, stream: i64, (of, record): (i64, i64)| {
        json!({"ph": "X", "cat": "cuda_sync", "name": name, "pid": 0, "tid": stream, "ts": 50, "dur": 1,
               "args": {"cuda_sync_kind": name, "wait_on_stream": of, "wait_on_cuda_event_record_corr_id": record,
                        "wait_on_cuda_event_id": 3, "stream": stream, "correlation": correlation, "device": 0, "context": 1}})
    };
    let events = json!([
        call("cudaEventRecord", 10, 1),
        call("cudaStreamWaitEvent", 11, 4),
        call("cudaEventQuery", 12, 8),
        call("cudaEventSynchronize", 13, 12),
        call("cudaDeviceSynchronize", 14, 16),
        wait("Context Sync", 14, 4_294_967_295, (-1, -1)),
        wait("Stream Wait Event", 11, 20, (7, 10)),
        wait("Event Sync", 12, -1, (7, 10)),
        wait("Event Sync", 13, -1, (-1, -1)),
        wait("Sync of tomorrow", 15, 7, (7, 10)),
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 60, "dur": 1,
         "args": {"device": 0, "stream": 7, "correlation": 16}},
    ]);
    let mut trace = read_text(&events.to_string()).unwrap();
    trace.sort();
    let wait = |correlation, kind, stream, event: Option<(u32, u32)>| Wait {
        process: ProcessId(0),
        correlation,
        kind,
        stream,
        device: Some(DeviceId(0)),
        event: event.map(|(stream, correlation)| RecordedEvent { correlation, stream }),
    };
    let expected = [
        wait(11, WaitKind::StreamForEvent, Some(20), Some((7, 10))),
        wait(13, WaitKind::Event, None, None),
        wait(14, WaitKind::Device, None, None),
    ];
    assert_eq!(trace.waits, expected);
    assert_eq!(trace.losses.count(LossKind::EventMalformed), 1);
}
