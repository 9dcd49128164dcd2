//! The timeline for Perfetto. As JSON it is valid, complete and nested, with arrows that begin and end inside slices; in Perfetto's own
//! format it has the same operations.

use crate::fixtures::{Case, PLAIN, fixture, fixture_with_stages, made};
use roofgap_report::ExportError;
use roofgap_report::export::timeline::{self, Format};
use roofgap_trace::vitals::{GpuState, GpuVitals};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

fn events(case: &Case) -> Vec<Value> {
    let mut bytes = Vec::new();
    timeline::write(case.bundle(), &case.trace, Format::Chrome, &mut bytes).unwrap();
    let mut document: Value = serde_json::from_slice(&bytes).unwrap();
    match document["traceEvents"].take() {
        Value::Array(events) => events,
        other => panic!("{other}"),
    }
}

fn phase<'a>(events: &'a [Value], phase: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |e| e["ph"] == phase)
}

/// Nanoseconds of a time in microseconds.
fn ns(value: &Value) -> i64 {
    (value.as_f64().unwrap() * 1000.0).round() as i64
}

fn track(event: &Value) -> (u64, u64) {
    (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())
}

#[test]
fn every_event_of_a_capture_is_there() {
    let case = fixture(&["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"]);
    let events = events(&case);
    let of = |category: &str| phase(&events, "X").filter(|e| e["cat"] == category).count();
    assert_eq!(of("kernel") as u64, case.analysis.totals.kernel_count);
    assert_eq!(of("cuda"), case.trace.calls.len());
    assert_eq!(of("stage"), 2);
    let total: i64 = phase(&events, "X").filter(|e| e["cat"] == "kernel").map(|e| ns(&e["dur"])).sum();
    assert_eq!(total, case.analysis.totals.kernel_ns);
    let named: Vec<_> = phase(&events, "M").filter(|e| e["name"] == "thread_name").map(track).collect();
    assert!(phase(&events, "X").all(|e| named.contains(&track(e))), "every track has a name");
    assert!(phase(&events, "C").any(|e| e["name"].as_str().unwrap().starts_with("DRAM %")));
}

#[test]
fn slices_of_a_track_nest() {
    let case = fixture(&["h200/dsocr2.sqlite.gz"]);
    let mut tracks: BTreeMap<(u64, u64), Vec<(i64, i64)>> = BTreeMap::new();
    let all = events(&case);
    for event in phase(&all, "X") {
        let start = ns(&event["ts"]);
        let list = tracks.entry(track(event)).or_default();
        list.push((start, start + ns(&event["dur"])));
    }
    for (track, mut slices) in tracks {
        slices.sort_by_key(|s| (s.0, std::cmp::Reverse(s.1)));
        let mut open: Vec<i64> = Vec::new();
        for (start, end) in slices {
            while open.last().is_some_and(|e| *e <= start) {
                open.pop();
            }
            assert!(open.last().is_none_or(|e| end <= *e), "{track:?}: {start} to {end} crosses another");
            open.push(end);
        }
    }
}

#[test]
fn arrows_lead_from_a_call_to_its_operation() {
    let case = made(PLAIN);
    let events = events(&case);
    let ends: BTreeMap<u64, &Value> = phase(&events, "f").map(|e| (e["id"].as_u64().unwrap(), e)).collect();
    let holds = |flow: &Value, category: &str| {
        phase(&events, "X").any(|s| {
            let (start, at) = (ns(&s["ts"]), ns(&flow["ts"]));
            s["cat"] == category && track(s) == track(flow) && start <= at && at <= start + ns(&s["dur"])
        })
    };
    assert_eq!(ends.len(), case.trace.ops.len());
    for begin in phase(&events, "s") {
        let end = ends[&begin["id"].as_u64().unwrap()];
        assert!(holds(begin, "cuda"));
        assert!(holds(end, "kernel") || holds(end, "memcpy"));
        assert!(ns(&begin["ts"]) <= ns(&end["ts"]));
    }
}

#[test]
fn power_and_clock_are_counters() {
    let mut case = made(PLAIN);
    let at = |at| GpuState { at, watts: Some(650.0), sm_mhz: Some(1980.0), ..GpuState::default() };
    let (first, last) = case.trace.span().unwrap();
    let states = [first - 1, first, last].map(at).to_vec();
    case.trace.vitals.push(GpuVitals { states, ..GpuVitals::default() });
    let events = events(&case);
    for (name, value) in [("power, W", 650.0), ("SM clock, MHz", 1980.0)] {
        let own: Vec<&Value> = phase(&events, "C").filter(|event| event["name"] == name).collect();
        assert!(own.len() == 2 && own.iter().all(|event| event["args"]["value"] == value), "{own:?}");
    }
}

#[test]
fn hostile_names_stay_names() {
    let name = "</script>\"\\\u{0}\u{2028}\n";
    let case = made([name, PLAIN[1], PLAIN[2]]);
    assert!(phase(&events(&case), "X").any(|e| e["name"] == name));
}

#[test]
fn a_file_is_written_whole_and_packed_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let case = made(PLAIN);
    let (plain, packed) = (dir.path().join("t.json"), dir.path().join("t.json.gz"));
    timeline::save(case.bundle(), &plain).unwrap();
    timeline::save(case.bundle(), &packed).unwrap();
    let mut text = Vec::new();
    let file = std::fs::File::open(&packed).unwrap();
    flate2::read::GzDecoder::new(file).read_to_end(&mut text).unwrap();
    assert_eq!(text, std::fs::read(&plain).unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
    let summary = fixture(&["h200/llama4_cuda_gpu_kern_sum.csv.gz"]);
    let error = timeline::save(summary.bundle(), &plain).unwrap_err();
    assert!(matches!(error, ExportError::Nothing { .. }), "{error}");
    let error = timeline::save(case.bundle(), &dir.path().join("no/such/folder.json")).unwrap_err();
    assert!(error.to_string().contains("folder.json"), "{error}");
}

#[test]
fn a_requested_stage_of_warmups_is_in_the_trace_and_in_the_page() {
    let case = fixture_with_stages(&["h200/llama4.sqlite.gz"], &["warm=*@warmup*"]);
    let warm = case.analysis.stages.iter().find(|s| s.name == "warm").unwrap();
    let events = events(&case);
    let slices = phase(&events, "X").filter(|e| e["cat"] == "stage" && e["name"] == "warm");
    assert_eq!(slices.count() as u64, warm.instances);
    let page = roofgap_report::page::render(case.bundle());
    let (_, stage) = page.split_once("{\"name\":\"warm\",\"at\":[[").unwrap();
    let (instances, _) = stage.split_once("]]").unwrap();
    assert_eq!(instances.split("],[").count() as u64, warm.instances);
}

#[test]
fn a_mark_before_the_first_event_is_at_zero() {
    let mut case = fixture(&["h200/llama4.sqlite.gz"]);
    let first = case.trace.span().unwrap().0;
    let mark = roofgap_trace::Mark {
        at: first - 1_500_250,
        domain: case.trace.names.intern(""),
        name: case.trace.names.intern("early"),
        thread: case.trace.ranges.rows[0].thread,
    };
    case.trace.ranges.marks.push(mark);
    let events = events(&case);
    let mark = phase(&events, "i").find(|e| e["name"] == "early").unwrap();
    assert_eq!(ns(&mark["ts"]), 0);
    let timed = events.iter().filter(|e| e["ph"] != "M");
    let starts: Vec<i64> = timed.map(|e| ns(&e["ts"])).collect();
    assert!(starts.iter().all(|start| *start >= 0));
    assert!(starts.contains(&1_500_250));
}

/// Fields of a message of protocol buffers: number and content.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (own, rest) = bytes.split_at(length);
    *bytes = rest;
    own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                fields.push((key >> 3, Field::Number(varint(&mut bytes))));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            other => panic!("wire type {other}"),
        };
        let (own, rest) = bytes.split_at(length);
        bytes = rest;
        fields.push((key >> 3, Field::Bytes(own)));
    }
    fields
}

fn number(message: &[u8], field: u64) -> Option<u64> {
    fields(message).into_iter().find_map(|(found, value)| match value {
        Field::Number(value) if found == field => Some(value),
        _ => None,
    })
}

fn messages(message: &[u8], field: u64) -> Vec<&[u8]> {
    let own = fields(message).into_iter().filter_map(|(found, value)| match value {
        Field::Bytes(bytes) if found == field => Some(bytes),
        _ => None,
    });
    own.collect()
}

#[test]
fn perfettos_own_format_has_every_operation_and_every_slice() {
    let case = fixture(&["h200/llama4.sqlite.gz"]);
    let mut bytes = Vec::new();
    timeline::write(case.bundle(), &case.trace, Format::Perfetto, &mut bytes).unwrap();
    let (mut names, mut tracks) = (BTreeMap::new(), std::collections::BTreeSet::new());
    let mut kernels: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    let mut open: BTreeMap<u64, i64> = BTreeMap::new();
    let (mut operations, mut begun) = (0, 0);
    for packet in messages(&bytes, 1) {
        for entry in messages(packet, 12).into_iter().flat_map(|data| messages(data, 24)) {
            names.insert(number(entry, 1).unwrap(), std::str::from_utf8(messages(entry, 2)[0]).unwrap());
        }
        tracks.extend(messages(packet, 60).into_iter().map(|track| number(track, 1).unwrap()));
        for stage in messages(packet, 53) {
            operations += 1;
            assert!(names[&number(stage, 13).unwrap()].starts_with("stream "));
            let row = kernels.entry(names[&number(stage, 14).unwrap()]).or_default();
            (row.0, row.1) = (row.0 + 1, row.1 + number(stage, 2).unwrap());
            if !messages(stage, 21).is_empty() {
                assert_eq!(messages(messages(stage, 21)[0], 1).len(), 1, "a launch has a grid");
            }
        }
        for event in messages(packet, 11) {
            let track = number(event, 11).unwrap();
            assert!(tracks.contains(&track), "a track is described before its first event");
            let change = match number(event, 9).unwrap() {
                1 => 1,
                2 => -1,
                _ => 0,
            };
            begun += usize::from(change == 1);
            *open.entry(track).or_default() += change;
        }
    }
    assert_eq!(operations, case.trace.ops.len());
    for kernel in &case.analysis.kernels {
        assert_eq!(kernels[kernel.name.as_str()], (kernel.calls as usize, kernel.total_ns as u64));
    }
    assert!(open.values().all(|level| *level == 0), "every slice ends");
    let slices = phase(&events(&case), "X")
        .filter(|e| !["kernel", "memcpy", "memset"].contains(&e["cat"].as_str().unwrap()))
        .count();
    let overlapping = phase(&events(&case), "b").count();
    assert_eq!(begun, slices + overlapping);
}

#[test]
fn perfettos_own_format_is_read_back() {
    for capture in ["h200/llama4.sqlite.gz", "vllm/vllm_dense_graph.sqlite.gz"] {
        let case = fixture(&[capture]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timeline.pftrace.gz");
        timeline::save(case.bundle(), &path).unwrap();
        let read = roofgap_trace::read(&[path]).unwrap().trace;
        let first = |trace: &roofgap_trace::Trace| trace.span().unwrap().0;
        let operations = |trace: &roofgap_trace::Trace| {
            let (ops, first) = (&trace.ops, first(trace));
            let mut rows: Vec<_> = (0..ops.len())
                .map(|i| {
                    let shape = ops.shape_of(i);
                    let bytes = ops.transfers.get(&(i as u32)).map_or(0, |transfer| transfer.bytes);
                    let name = trace.names.get(ops.name[i]).to_owned();
                    let place = (trace.devices[ops.device[i].index()].name.clone(), ops.stream[i]);
                    (
                        ops.start[i] - first,
                        ops.end[i] - first,
                        name,
                        ops.kind[i],
                        place,
                        ops.correlation[i],
                        shape.grid,
                        shape.block,
                        bytes,
                    )
                })
                .collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(operations(&case.trace), operations(&read), "{capture}");
        let calls = |trace: &roofgap_trace::Trace| {
            let (calls, first) = (&trace.calls, first(trace));
            let row = |i: usize| {
                (
                    calls.start[i] - first,
                    calls.end[i] - first,
                    trace.names.get(calls.name[i]).to_owned(),
                    calls.correlation[i],
                )
            };
            let mut rows: Vec<_> = (0..calls.len()).map(row).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(calls(&case.trace).len(), calls(&read).len(), "{capture}");
        let ranges = |trace: &roofgap_trace::Trace| {
            let first = first(trace);
            let text = |id| trace.names.get(id).to_owned();
            let mut rows: Vec<_> =
                trace.ranges.rows.iter().map(|r| (r.start - first, r.end - first, text(r.name))).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(ranges(&case.trace), ranges(&read), "{capture}");
        // One wait of the second capture has no call.
        let waits = |trace: &roofgap_trace::Trace| -> Vec<_> {
            let called =
                trace.waits.iter().filter(|wait| trace.calls.correlation.contains(&wait.correlation));
            called.map(|w| (w.correlation, w.kind, w.stream, w.device, w.event)).collect()
        };
        assert_eq!(waits(&case.trace), waits(&read), "{capture}");
        assert_eq!(waits(&read).len(), if capture.starts_with("vllm") { 56 } else { 1 });
    }
}

#[test]
fn the_name_of_a_file_tells_its_format() {
    let of = |name: &str| Format::of(std::path::Path::new(name));
    assert_eq!([of("a.json"), of("a.json.gz"), of("pftrace")], [Format::Chrome; 3]);
    assert_eq!([of("a.pftrace"), of("x/a.pftrace.gz"), of("a.perfetto-trace")], [Format::Perfetto; 3]);
}
