//! Copies, whole graphs, communication and ranks, on small captures whose numbers are added up by hand.

use roofgap_analyze::{
    About, Analysis, CommunicationRow, CopyKind, CopyRow, Finding, IdleCause, Options, analyze, idle_parts,
    model, verdict,
};
use roofgap_testkit::{Graphs, Program, Spec, nsys};
use roofgap_trace::{LossKind, Trace};
use std::io::Write;
use std::path::Path;

const NCCL: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
const SEND: &str = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)";

fn read(path: &Path) -> Trace {
    roofgap_trace::read(&[path.to_path_buf()]).unwrap().trace
}

fn analysis_of(path: &Path, options: &Options) -> Analysis {
    analyze(&read(path), options).analysis
}

/// An event of a Kineto trace on device 0: category, name, stream, start and duration in microseconds, more arguments.
fn event(category: &str, name: &str, stream: u32, (start, duration): (u32, u32), more: &str) -> String {
    format!(
        r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {start}.0, "dur": {duration}.0,
            "args": {{"device": 0, "stream": {stream}{more}}}}}"#
    )
}

/// The arguments of a collective.
fn collective(name: &str, elements: (u64, u64), ranks: u32) -> String {
    format!(
        r#", "Collective name": "{name}", "In msg nelems": {}, "Out msg nelems": {}, "Group size": {ranks}, "dtype": "Half",
           "Process Group Name": "7", "Process Group Description": "mesh_tp""#,
        elements.0, elements.1
    )
}

/// Analyses a Kineto trace on one H100.
fn kineto(events: &[String], header: &str, options: &Options) -> Analysis {
    analyze(&traced(events, header), options).analysis
}

fn traced(events: &[String], header: &str) -> Trace {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(
        file,
        r#"{{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0,
            "numSms": 132, "totalGlobalMem": 85045870592}}], {header} "traceEvents": [{}]}}"#,
        events.join(",\n")
    )
    .unwrap();
    read(file.path())
}

#[test]
fn communication_by_collective_with_its_hidden_part() {
    let reduce = collective("allreduce", (1_000_000, 1_000_000), 8);
    let gather = collective("_allgather_base", (500_000, 4_000_000), 8);
    let events = [
        event("kernel", NCCL, 20, (0, 100), &reduce),
        event("kernel", "gemm", 7, (40, 30), ""),
        event("kernel", NCCL, 20, (200, 100), &reduce),
        event("kernel", "gemm", 7, (290, 50), ""),
        event("kernel", "ncclDevKernel_AllGather_RING_LL(int)", 20, (400, 50), &gather),
        // Two kernels at once, neither of which computes, and no arguments.
        event("kernel", SEND, 21, (420, 60), ""),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 7, (440, 10), r#", "bytes": 64"#),
    ];
    let header = r#""distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},"#;
    let analysis = kineto(&events, header, &Options::default());
    let row = |collective: &str| -> &CommunicationRow {
        let mut rows = analysis.communication.iter();
        rows.find(|row| row.collective == collective).unwrap()
    };
    assert_eq!(analysis.communication.len(), 3);
    let reduce = row("all_reduce");
    assert_eq!((reduce.rank, reduce.device, reduce.calls), (Some(3), Some(0), 2));
    assert_eq!(reduce.group.as_deref(), Some("7 (mesh_tp)"));
    assert_eq!(reduce.group_size, Some(8));
    assert_eq!((reduce.total_ns, reduce.exposed_ns), (200_000, 160_000));
    assert_eq!(reduce.hidden_ns(), 40_000);
    assert_eq!(reduce.bytes, Some(4_000_000));
    // 4 MB in 200 us, times 2 * 7 / 8.
    assert_eq!(reduce.bus_bandwidth_bytes_per_s.unwrap().round(), 35e9);
    assert_eq!(reduce.algorithm_bandwidth_bytes_per_s.unwrap().round(), 20e9);
    // 450 GB/s in one direction.
    assert_eq!(reduce.link.as_deref(), Some("NVLink"));
    assert_eq!(reduce.peak_pct.unwrap().round(), 8.0);
    let gather = row("all_gather");
    assert_eq!(gather.bytes, Some(8_000_000), "the output holds all parts");
    assert_eq!(gather.bus_bandwidth_bytes_per_s.unwrap().round(), 140e9);
    assert_eq!(gather.exposed_ns, 50_000);
    let send = row("send_recv");
    assert_eq!((send.bytes, send.bus_bandwidth_bytes_per_s), (None, None));
    assert_eq!((send.group.as_ref(), send.group_size), (None, None));
    assert_eq!(send.exposed_ns, 60_000);
    let rank = &analysis.ranks[0];
    assert_eq!((rank.rank, rank.world_size, &rank.devices[..]), (3, Some(8), &[0][..]));
}

#[test]
fn the_first_collective_waits_for_ranks_that_arrive_later() {
    let reduce = collective("allreduce", (1_000_000, 1_000_000), 8);
    let run = |first: u32| {
        let mut events = vec![event("kernel", NCCL, 20, (0, first), &reduce)];
        for start in (0..20).map(|at| 20_000 + 1_000 * at) {
            events.push(event("kernel", "gemm", 7, (start, 900), ""));
            events.push(event("kernel", NCCL, 20, (start + 900, 100), &reduce));
        }
        kineto(&events, "", &Options::default())
    };
    let analysis = run(20_000);
    let own = analysis.stages[0].communication.unwrap();
    assert_eq!((own.exposed_ns, own.late_ns, own.late_calls), (22_000_000, 19_900_000, 1));
    let finding = analysis.findings.iter().find(|finding| finding.id == "communication-exposed").unwrap();
    assert_eq!(finding.bound_ns, 2_100_000);
    assert!(
        finding.title.contains("19.9 ms of that are in 1 call, the first of a kind and size: probably"),
        "{}",
        finding.title
    );
    let own = run(400).stages[0].communication.unwrap();
    assert_eq!((own.late_ns, own.late_calls), (0, 0), "less than a millisecond");
}

#[test]
fn managed_memory_costs_its_faults_and_the_kernels_that_wait_for_it() {
    // The CPU goes through 64 pieces, a millisecond each.
    let piece = |start: u32| {
        event("gpu_memcpy", "[CUDA memcpy Unified Device-to-Host]", 9, (start, 10), r#", "bytes": 60000"#)
    };
    let mut events = vec![event("kernel", "fill", 7, (0, 1_000), "")];
    events.extend((0..64).map(|at| piece(2_000 + 1_010 * at)));
    let trace = traced(&events, "");
    let analyzed = analyze(&trace, &Options::default());
    let analysis = analyzed.analysis;
    let detail = analysis.stages[0].warm().idle_detail;
    assert_eq!(detail.paging_ns, 64 * (100_000 + 60_000), "a fault, and a ns a byte");
    assert_eq!(detail.host_work_ns, 64 * 1_000_000 - detail.paging_ns);
    assert_eq!(analysis.findings[0].id, "host-gaps");
    assert!(analysis.findings[0].action.starts_with("The CPU goes through what the GPU wrote"));
    let parts = idle_parts(&trace, &analyzed.stages);
    let sum = |cause| -> i64 {
        parts.iter().filter(|part| part.cause == cause).map(|part| part.end - part.start).sum()
    };
    assert_eq!((sum(IdleCause::Launch), sum(IdleCause::Other)), (detail.host_work_ns, detail.paging_ns));
    // A call asks for the next one after 97 of 100 ms.
    let mut events =
        vec![event("kernel", "fill", 7, (0, 1_000), ""), event("kernel", "fill", 7, (102_000, 900), "")];
    events.extend([1, 2].map(|at| {
        let call = if at == 1 { "cudaMemPrefetchAsync" } else { "cudaGetDevice" };
        event("cuda_runtime", call, 1, (98_000 + 500 * at, 10), "")
    }));
    events.push(event(
        "gpu_memcpy",
        "[CUDA memcpy Unified Host-to-Device]",
        9,
        (101_000, 10),
        r#", "bytes": 4096"#,
    ));
    let detail = analyze(&traced(&events, ""), &Options::default()).analysis.stages[0].warm().idle_detail;
    assert_eq!((detail.paging_ns, detail.host_work_ns), (2_500_000, 97_500_000));
    // One of six launches waits for pages that move in.
    let mut events: Vec<String> = (0..5).map(|at| event("kernel", "add", 7, (200 * at, 100), "")).collect();
    events.push(event("kernel", "add", 7, (1_000, 1_100), ""));
    let moved = |start: u32| {
        event("gpu_memcpy", "[CUDA memcpy Unified Host-to-Device]", 9, (start, 10), r#", "bytes": 4096"#)
    };
    events.extend((0..20).map(|at| moved(1_010 + 20 * at)));
    let analysis = kineto(&events, "", &Options::default());
    let found = analysis.findings.iter().find(|finding| finding.id == "managed-memory").unwrap();
    assert!(found.terms.iter().any(|term| term.ns == 1_000_000), "{:?}", found.terms);
}

#[test]
fn managed_memory_is_too_large_where_pieces_leave_beside_kernels() {
    let piece = |way: &str, start: u32| {
        let name = format!("[CUDA memcpy Unified {way}]");
        event("gpu_memcpy", &name, 9, (start, 10), r#", "bytes": 65536"#)
    };
    // Five launches of 100 us, then two at once that take 10 ms beside pieces.
    let found = |beside: &str, after: &str| -> Finding {
        let mut events: Vec<String> =
            (0..5).map(|at| event("kernel", "add", 7, (100 * at, 100), "")).collect();
        events.extend([7, 8].map(|stream| event("kernel", "add", stream, (500, 10_100), "")));
        events.extend((0..100).map(|at| piece(beside, 510 + 100 * at)));
        events.push(piece(after, 10_600));
        let analysis = kineto(&events, "", &Options::default());
        analysis.findings.into_iter().find(|finding| finding.id == "managed-memory").unwrap()
    };
    let times = |finding: &Finding| finding.terms.iter().map(|term| term.ns).collect::<Vec<_>>();
    let large = found("Device-to-Host", "Device-to-Host");
    assert!(large.action.contains("does not suffice"), "{}", large.action);
    assert_eq!(times(&large), [10_000, 10_000_000], "one piece is beside no kernel");
    let small = found("Host-to-Device", "Device-to-Host");
    assert!(small.action.starts_with("Move it ahead"), "{}", small.action);
    assert_eq!(times(&small), times(&large));
}

/// A kernel and its launch at another time.
fn launched(name: &str, at: u32, span: (u32, u32)) -> [String; 2] {
    let link = format!(r#", "correlation": {at}"#);
    [event("cuda_runtime", "cudaLaunchKernel", 1, (at, 5), &link), event("kernel", name, 7, span, &link)]
}

#[test]
fn work_that_was_launched_long_before_it_starts_is_queued() {
    let launch = |at: u32| launched("work", 10 * at, (4_000 + 100 * at, 100));
    let mut events: Vec<String> = (1..60).flat_map(launch).collect();
    events.push(event("user_annotation", "ProfilerStep#3", 1, (0, 10_000), ""));
    let outside = |events: &[String]| kineto(events, "", &Options::default()).stages[0].warm().outside();
    // Launched at 15 us, started at 4.1 ms.
    assert_eq!(outside(&events).queued_ns, 4_100_000 - 25_000);
    // Launched before the recording.
    events.push(event("kernel", "before", 7, (3_000, 1_000), ""));
    assert_eq!(outside(&events).queued_ns, 3_000_000);
}

#[test]
fn a_stream_may_work_on_what_was_launched_before_the_recording() {
    let verdict_of = |side: (u32, u32)| {
        let launch = |at: u32| launched("work", 10 * at, (4_000 + 100 * at, 100));
        let mut events: Vec<String> = (1..60).flat_map(launch).collect();
        // Another stream runs one kernel while this one waits.
        let link = r#", "correlation": 1"#;
        events.push(event("cuda_runtime", "cudaLaunchKernel", 2, (side.0 - 7, 5), link));
        events.push(event("kernel", "side", 8, side, link));
        let analysis = kineto(&events, "", &Options::default());
        (verdict(analysis.stages[0].warm()).label.as_str(), analysis.findings.len())
    };
    assert_eq!(verdict_of((700, 5)), ("GPU-bound", 0));
    // Launched after something ran, so that nothing from before can be in the way.
    assert_eq!(verdict_of((8, 1)).0, "gaps on the GPU");
}

#[test]
fn work_that_an_idle_gpu_starts_late_is_not_queued() {
    let step = |at: u32| {
        let launch = |own: u32| launched("work", at + 10 * own, (at + 7_000 + 105 * own, 100));
        let range = event("user_annotation", "decode", 1, (at, 9_000), "");
        (1..13).flat_map(launch).chain([range]).collect::<Vec<_>>()
    };
    let events: Vec<String> = (0..30).flat_map(|at| step(10_000 * at)).collect();
    let analysis = kineto(&events, "", &Options::default());
    let stage = analysis.stages.iter().find(|stage| stage.name == "decode").unwrap();
    // Launched at 15 us, started at 7.105 ms; what ran before the first was not recorded.
    let late_ns = 7_105_000 - 25_000;
    assert_eq!((stage.queued_ns, stage.before.after_launch_ns), (late_ns, 29 * late_ns));
    assert_eq!(verdict(stage.warm()).label.as_str(), "gaps on the GPU");
    assert_eq!(analysis.findings[0].id, "late-start");
}

#[test]
fn the_tool_says_why_it_has_no_records_of_the_gpu() {
    let mut trace = Trace::default();
    let mut why = |kind, text: &str| {
        trace.losses.add_message(kind, text, 1);
        let analysis = analyze(&trace, &Options::default()).analysis;
        analysis.reason(&About::Kernels).unwrap_or_default().to_owned()
    };
    assert!(!why(LossKind::ToolNote, "OpenGL injection failed").contains("the tool says"));
    let text = why(LossKind::ToolWarning, "No CUDA events collected.");
    assert!(text.ends_with("the tool says \u{201c}No CUDA events collected.\u{201d}"), "{text}");
    // A reason says more.
    let text = why(LossKind::ToolError, "CUDA injection failed");
    assert!(text.ends_with("the tool says \u{201c}CUDA injection failed\u{201d}"), "{text}");
}

#[test]
fn short_launches_between_copies_belong_to_them() {
    // Calls of 5 us, 100 us apart, each of a copy or a kernel of 20 us.
    let launch_after = |kinds: [&str; 2]| {
        let each = |at: u32| {
            let link = format!(r#", "correlation": {}"#, at + 1);
            let (call, category, name) = match kinds[at as usize % 2] {
                "copy" => ("cudaMemcpyAsync", "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"),
                _ => ("cudaLaunchKernel", "kernel", "work"),
            };
            let start = 100 * at;
            [
                event("cuda_runtime", call, 1, (start, 5), &link),
                event(category, name, 7, (start + 10, 20), &link),
            ]
        };
        let events: Vec<String> = (0..40).flat_map(each).collect();
        let analysis = kineto(&events, "", &Options::default());
        let stage = analysis.stages[0].warm();
        (stage.launch_after.copy_ns, stage.idle.unwrap().launch_ns)
    };
    let (after, launch) = launch_after(["copy", "copy"]);
    assert!(after > 0 && after == launch, "{after} of {launch}");
    assert_eq!(launch_after(["copy", "kernel"]).0, 0);
}

#[test]
fn a_start_with_little_work_before_a_busy_gpu_is_left_out() {
    let mut events = launched("first", 1, (10, 10)).to_vec();
    let later = |at: u32| launched(&format!("kernel{at}"), 3_990 + 210 * at, (4_000 + 210 * at, 200));
    events.extend((0..50).flat_map(later));
    let startup = |events: &[String]| {
        let analysis = kineto(events, "", &Options::default());
        analysis.stages[0].cold_start.as_ref().map_or(0, |cold| cold.startup_ns)
    };
    assert_eq!(startup(&events), 3_990_000 - 10_000);
    // The GPU goes on to wait.
    events.extend(launched("last", 23_990, (24_000, 200)));
    assert_eq!(startup(&events), 0);
}

/// 840 and 1,008 us, of 20 us for each kernel, are left without a start of 580 us.
#[test]
fn what_is_left_without_the_start_is_enough_to_judge() {
    let startup = |kernels: u32| {
        let mut events = launched("first", 1, (10, 10)).to_vec();
        let later = |at: u32| launched(&format!("kernel{at}"), 590 + 21 * at, (600 + 21 * at, 20));
        events.extend((0..kernels).flat_map(later));
        let analysis = kineto(&events, "", &Options::default());
        analysis.stages[0].cold_start.as_ref().map_or(0, |cold| cold.startup_ns)
    };
    assert_eq!((startup(40), startup(48)), (0, 580_000));
}

/// Weights go to the GPU one by one, and a pass follows whose kernels differ and wait for launches.
#[test]
fn many_copies_before_the_first_kernel_are_a_start() {
    let startup = |copies: u32| {
        let load = |at: u32| {
            let (link, start) = (format!(r#", "correlation": {}"#, at + 1), 100 * at);
            let name = "Memcpy HtoD (Pageable -> Device)";
            let call = event("cuda_runtime", "cudaMemcpyAsync", 1, (start, 90), &link);
            [call, event("gpu_memcpy", name, 7, (start + 10, 80), &link)]
        };
        let mut events: Vec<String> = (0..copies).flat_map(load).collect();
        let pass = |at: u32| launched(&format!("kernel{at}"), 10_000 + 50 * at, (10_010 + 50 * at, 20));
        events.extend((0..200).flat_map(pass));
        let analysis = kineto(&events, "", &Options::default());
        analysis.stages[0].cold_start.as_ref().map_or(0, |cold| cold.startup_ns)
    };
    assert_eq!((startup(64), startup(63)), (9_990_000, 0));
}

/// A call that returns before its collective ends has no time, and NCCL beside a collective on the CPU does not hide it.
#[test]
fn communication_on_the_cpu_is_timed_where_its_calls_wait() {
    let call = |collective: &str, wait: u8, span: (u32, u32)| {
        let name =
            format!("roofgap.collective {collective} group=0 size=2 in=4000 out=4000 on=host wait={wait}");
        event("user_annotation", &name, 1, span, "")
    };
    let events = [
        call("all_reduce", 1, (0, 100)),
        call("broadcast", 0, (200, 50)),
        call("all_reduce", 0, (300, 50)),
        event("kernel", NCCL, 20, (20, 30), ""),
        event("kernel", "gemm", 7, (60, 10), ""),
    ];
    let header = r#""distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2},"#;
    let analysis = kineto(&events, header, &Options::default());
    let row = |collective: &str| {
        let mut rows = analysis.communication.iter().filter(|row| row.on == "cpu");
        rows.find(|row| row.collective == collective).unwrap()
    };
    let (reduce, broadcast) = (row("all_reduce"), row("broadcast"));
    assert_eq!((reduce.calls, reduce.untimed_calls), (2, 1));
    assert!(reduce.is_timed() && !broadcast.is_timed());
    assert_eq!((reduce.total_ns, reduce.exposed_ns), (100_000, 90_000));
    assert_eq!((broadcast.calls, broadcast.untimed_calls), (1, 1));
}

#[test]
fn copies_by_direction_and_memory() {
    let copy = |kind: &str, time, bytes: u64| {
        event("gpu_memcpy", &format!("Memcpy {kind}"), 9, time, &format!(r#", "bytes": {bytes}"#))
    };
    let events = [
        copy("HtoD (Pinned -> Device)", (0, 100), 3_000_000),
        copy("HtoD (Pinned -> Device)", (100, 100), 3_300_000),
        copy("HtoD (Pageable -> Device)", (300, 100), 500_000),
        copy("DtoD (Device -> Device)", (500, 10), 8_000_000),
        copy("DtoH (Device -> Host)", (600, 10), 0),
        copy("DtoD (Device -> Device)", (700, 20), 0),
        event("kernel", "gemm", 7, (150, 75), ""),
    ];
    let analysis = kineto(&events, "", &Options::default());
    let row = |kind: CopyKind, pinned: Option<bool>| -> &CopyRow {
        let mut rows = analysis.copies.iter();
        rows.find(|row| (row.kind, row.pinned) == (kind, pinned)).unwrap()
    };
    assert_eq!(analysis.copies.len(), 4);
    let pinned = row(CopyKind::HostToDevice, Some(true));
    assert_eq!((pinned.calls, pinned.bytes, pinned.total_ns), (2, Some(6_300_000), 200_000));
    assert_eq!(pinned.overlapped_ns, 50_000);
    assert_eq!(pinned.bandwidth_bytes_per_s, Some(31.5e9));
    assert_eq!(pinned.link.as_deref(), Some("PCIe 5.0 x16"));
    assert_eq!(pinned.peak_pct.unwrap().round(), 50.0);
    assert_eq!(row(CopyKind::HostToDevice, Some(false)).overlapped_ns, 0);
    let within = row(CopyKind::DeviceToDevice, None);
    assert_eq!(within.link.as_deref(), Some("device memory"));
    assert_eq!((within.calls, within.bytes, within.total_ns), (2, Some(8_000_000), 30_000));
    // 800 GB/s of 3,352 GB/s, read and written; the copy without a size does not count.
    assert_eq!(within.peak_pct.unwrap().round(), 48.0);
    let unsized_ = row(CopyKind::DeviceToHost, None);
    assert_eq!((unsized_.bytes, unsized_.bandwidth_bytes_per_s), (None, None));
    // Without ranges the whole trace is a stage, and its copies are the same.
    assert_eq!(analysis.stages[0].copies, analysis.copies);
    let sum: i64 = analysis.copies.iter().map(|row| row.total_ns).sum();
    assert_eq!(analysis.totals.memcpy_ns, Some(sum));
}

#[test]
fn copies_that_keep_the_gpu_busy_are_the_verdict() {
    let copies: Vec<String> = (0..10)
        .map(|at| {
            let time = (at * 1000, 990);
            let name = "Memcpy HtoD (Pinned -> Device)";
            event("gpu_memcpy", name, 9, time, r#", "bytes": 27423000"#)
        })
        .collect();
    let analysis = kineto(&copies, "", &Options::default());
    let words = verdict(&analysis.stages[0]);
    assert_eq!(words.label.as_str(), "copy-bound");
    assert!(words.why.ends_with("host-to-device copies: 274.2 MB at 27.7 GB/s"), "{}", words.why);
    let reason = analysis.reason(&About::Kernels).unwrap();
    assert!(reason.ends_with("only 10 copies and memory sets were recorded"), "{reason}");
}

#[test]
fn graphs_recorded_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.sqlite");
    let program = Program::run(&Spec { graphs: Graphs::Whole, ..Spec::simple(5_000) });
    nsys::write(&program, &path).unwrap();
    let analysis = analysis_of(&path, &Options::default());
    let events = &program.events.graphs;
    assert!(!events.is_empty());
    let row = &analysis.graphs[0];
    assert_eq!((analysis.graphs.len(), row.graph), (1, Some(17)));
    assert_eq!(row.launches, events.len() as u64);
    assert_eq!(row.total_ns, events.iter().map(|e| e.end - e.start).sum::<i64>());
    let of_stages = analysis.stages.iter().flat_map(|stage| &stage.graphs);
    let in_stages: u64 = of_stages.map(|row| row.launches).sum();
    assert!((1..=row.launches).contains(&in_stages), "{in_stages}");
}

/// One rank of a tensor-parallel job does a part of the model's work; without the size of that part there is no MFU.
#[test]
fn utilisation_of_one_rank() {
    let mut events = vec![
        r#"{"ph": "X", "cat": "user_annotation", "name": "prefill", "pid": 1, "tid": 1, "ts": 0.0, "dur": 900000.0}"#.to_owned(),
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 5.0, "dur": 5.0,
            "args": {"correlation": 9}}"#
            .to_owned(),
    ];
    events.push(event("kernel", "gemm", 7, (20, 800_000), r#", "correlation": 9"#));
    let options = Options {
        model: Some(model::preset("llama3_8b").unwrap()),
        tokens: model::Tokens {
            prompt: Some(1000),
            generated: Some(1),
            batch: Some(1),
            ..model::Tokens::default()
        },
        ..Options::default()
    };
    let job = |groups: &str| {
        format!(r#""distributedInfo": {{"rank": 0, "world_size": 8, "pg_config": [{groups}]}},"#)
    };
    let flops = |header: &str| {
        let analysis = kineto(&events, header, &options);
        let stage = analysis.stages.iter().find(|s| s.name == "prefill").unwrap();
        let why = analysis.reason(&About::StageMfu("prefill".into())).map(str::to_owned);
        (stage.mfu.as_ref().map(|mfu| mfu.flops), why)
    };
    let (whole, _) = flops("");
    let whole = whole.unwrap();
    let (unknown, why) = flops(&job(r#"{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8}"#));
    assert_eq!(unknown, None);
    assert!(why.unwrap().contains("rank 0 of a job with 8 ranks"));
    let (share, _) = flops(&job(r#"{"pg_name": "1", "pg_desc": "mesh_tp", "pg_size": 8}"#));
    assert!((share.unwrap() * 8.0 / whole - 1.0).abs() < 1e-9);
}

#[test]
fn fixtures_agree_with_nsys() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/h200");
    let analysis = analysis_of(&fixtures.join("dsocr2.sqlite.gz"), &Options::default());
    let sum = |kind: CopyKind| {
        let rows = analysis.copies.iter().filter(|row| row.kind == kind);
        rows.fold((0, 0), |sum, row| (sum.0 + row.total_ns, sum.1 + row.calls))
    };
    // As `nsys stats --report cuda_gpu_mem_time_sum` gives them.
    assert_eq!(sum(CopyKind::DeviceToDevice), (1_050_845, 1002));
    assert_eq!(sum(CopyKind::HostToDevice), (115_616, 73));
    assert_eq!(sum(CopyKind::DeviceToHost), (7_136, 4));
    assert!(analysis.communication.is_empty() && analysis.graphs.is_empty());
}
