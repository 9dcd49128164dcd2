//! The plain reader: the whole document as a tree, one event after the other.

use super::snapshot::{Shape, Snapshot, op_line, thread_line};
use super::*;
use crate::Ns;
use proptest::prelude::*;
use serde_json::{Value, json};

/// What a document of one process holds. Only for times below 2^52 ns after which a tree of floating-point numbers is wrong.
pub fn expected(document: &Value) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let base = document.get("baseTimeNanoseconds").and_then(Value::as_i64).unwrap_or(0);
    for device in document.get("deviceProperties").and_then(Value::as_array).into_iter().flatten() {
        let number = |key: &str| device.get(key).and_then(Value::as_u64);
        snapshot.devices.push(format!(
            "{} {:?} {:?} {:?} {:?}",
            number("id").unwrap(),
            device.get("name").and_then(Value::as_str),
            number("computeMajor").zip(number("computeMinor")),
            number("numSms"),
            number("totalGlobalMem")
        ));
    }
    let events = document.get("traceEvents").unwrap_or(document).as_array().unwrap();
    let calls = |e: &&Value| matches!(e["cat"].as_str(), Some("cuda_runtime" | "cuda_driver"));
    let pid = events.iter().find(calls).and_then(|e| e["pid"].as_u64()).unwrap_or(0);
    let work = |e: &&Value| matches!(e["cat"].as_str(), Some("kernel" | "gpu_memcpy" | "gpu_memset"));
    let mut used: Vec<u64> =
        events.iter().filter(work).map(|e| e["args"]["device"].as_u64().unwrap_or(0)).collect();
    used.sort_unstable();
    used.dedup();
    let only =
        document["deviceProperties"].as_array().filter(|described| described.len() == 1 && used.len() == 1);
    let only = only.and_then(|described| described[0]["id"].as_u64());
    for event in events {
        let ns = |key: &str| (event[key].as_f64().unwrap_or(0.0) * 1000.0).round() as Ns;
        let time = (base + ns("ts"), base + ns("ts") + ns("dur"));
        let name = event["name"].as_str().unwrap_or_default();
        let args = &event["args"];
        let number = |key: &str| args[key].as_u64().unwrap_or(0);
        let thread = format!("{}/{}", event["pid"], event["tid"]);
        let kind = match event["cat"].as_str() {
            Some("kernel") => "Kernel",
            Some("gpu_memcpy") => "Copy",
            Some("gpu_memset") => "Set",
            Some("cuda_runtime" | "cuda_driver") => {
                let line = thread_line(time, name, &thread);
                snapshot.calls.push(format!("{line} {}", number("correlation")));
                continue;
            }
            Some("cpu_op") => {
                snapshot.cpu_ops.push(thread_line(time, name, &thread));
                continue;
            }
            Some("user_annotation") => {
                let (domain, name) = name.split_once('@').unwrap_or(("", name));
                snapshot.ranges.push(format!("{domain}@{}", thread_line(time, name, &thread)));
                continue;
            }
            _ => continue,
        };
        let triple = |key: &str| [0, 1, 2].map(|i| args[key][i].as_u64().unwrap_or(0) as u32);
        let shape: Shape = (
            triple("grid"),
            triple("block"),
            number("registers per thread") as u32,
            number("shared memory") as u32,
        );
        snapshot.ops.push(op_line(
            kind,
            time,
            name,
            (only.unwrap_or_else(|| number("device")) as u32, number("stream") as u32),
            (number("correlation") as u32, pid as u32),
            shape,
            (number("bytes"), number("graph node id")),
        ));
    }
    snapshot
}

#[test]
fn the_real_trace_is_read_as_the_plain_reader_reads_it() {
    let text = fixture_text();
    let expected = expected(&serde_json::from_slice(&text).unwrap());
    assert_eq!(expected.ops.len(), 1679 + 4);
    assert_eq!(expected.calls.len(), 1475 + 306);
    assert_eq!(expected.cpu_ops.len(), 5984);
    assert_eq!(expected.devices.len(), 1);
    let mut trace = Trace::default();
    crate::kineto::read(&fixture(), &mut trace).unwrap();
    assert_eq!(Snapshot::of(&trace), expected);
    let losses: Vec<&str> = trace.losses.iter().map(|loss| loss.kind.id()).collect();
    assert_eq!(losses, ["profiler_record_shapes"]);
    assert_eq!(trace.names.get(trace.processes[0].name), "python3");
    assert_eq!(trace.names.get(trace.threads[0].name), "thread 1628 (python3)");
    assert_eq!(trace.sources[0].schema_version.as_deref(), Some("1"));
    for (block, threads) in [(777, 1), (4096, 2), (65_536, 3), (1 << 20, 1), (64 << 20, 2)] {
        assert_eq!(
            Snapshot::of(&read_bytes(&text, block, threads).unwrap()),
            expected,
            "in blocks of {block}"
        );
    }
}

#[test]
fn a_piece_of_the_real_trace_is_the_same_in_blocks_of_any_size() {
    let text = String::from_utf8(fixture_text()).unwrap();
    // The first operators, and what stands around the first kernel.
    let ends: Vec<usize> = text.match_indices("\n  },").map(|(i, _)| i + 5).collect();
    let kernel = text.find(r#""cat": "kernel""#).unwrap();
    let around = ends.partition_point(|&end| end < kernel);
    let (from, to) = (ends[around - 8], ends[around + 8]);
    let piece = format!("{}{}],\n  \"traceName\": \"piece\"\n}}", &text[..ends[5]], &text[from..to - 1]);
    let expected = expected(&serde_json::from_str(&piece).unwrap());
    assert!(!expected.ops.is_empty() && !expected.calls.is_empty() && !expected.cpu_ops.is_empty());
    for block in (1..64).chain((64..piece.len() + 2).step_by(13)) {
        let found = Snapshot::of(&read_bytes(piece.as_bytes(), block, 2).unwrap());
        assert_eq!(found, expected, "in blocks of {block}");
    }
}

/// The profiler gives a call the id of the operator that made it. Operators are told by nesting in time instead, for which
/// the ids need not be kept; on a real trace both say the same of every call.
#[test]
fn nesting_in_time_says_what_external_ids_say() {
    let document: Value = serde_json::from_slice(&fixture_text()).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let ids = |categories: &[&str]| -> Vec<Option<u64>> {
        let kept = events.iter().filter(|e| e["cat"].as_str().is_some_and(|c| categories.contains(&c)));
        kept.map(|e| e["args"]["External id"].as_u64()).collect()
    };
    let (call_ids, op_ids) = (ids(&["cuda_runtime", "cuda_driver"]), ids(&["cpu_op"]));
    let mut trace = Trace::default();
    crate::kineto::read(&fixture(), &mut trace).unwrap();
    let (calls, ops) = (&trace.calls, &trace.cpu_ops);
    assert_eq!((call_ids.len(), op_ids.len()), (calls.len(), ops.len()));
    for (i, id) in call_ids.iter().enumerate() {
        let around = |&op: &usize| {
            ops.thread[op] == calls.thread[i]
                && ops.start[op] <= calls.start[i]
                && calls.end[i] <= ops.end[op]
        };
        let innermost = (0..ops.len()).filter(around).max_by_key(|&op| ops.start[op]);
        assert_eq!(innermost.and_then(|op| op_ids[op]), *id);
    }
}

/// Names that are hard on a scanner of text.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,12}",
        Just("void k<{lambda()#1}>(int, \"x\")".to_owned()),
        Just("}, {\"ph\": \"X\"}, {\"".to_owned()),
        Just("back\\slash \\\" \n\t\u{1f600} ]}".to_owned()),
        any::<String>(),
    ]
    .prop_filter("an @ is for ranges", |name| !name.contains('@'))
}

fn event() -> impl Strategy<Value = Value> {
    let time = (0u64..1 << 40, 0u64..1 << 20).prop_map(|(ts, dur)| (ts as f64 / 1000.0, dur as f64 / 1000.0));
    let arguments = (0u32..50, 0u32..4, prop::array::uniform3(0u32..9), name());
    (0..9, name(), time, arguments, 1u32..4).prop_map(|(kind, name, (ts, dur), (correlation, stream, grid, odd), tid)| {
        let on_thread = |category: &str, name: &str| {
            json!({"ph": "X", "cat": category, "name": name, "pid": 77, "tid": tid, "ts": ts, "dur": dur,
                   "args": {"External id": 5, "nested": [{"a": 1}, {"b": [odd]}, {}], "correlation": correlation}})
        };
        let on_device = |category: &str| {
            json!({"args": {"odd": odd, "device": 1, "stream": stream, "correlation": correlation, "bytes": 4096,
                            "grid": grid, "block": [32, 1, 1], "registers per thread": 40, "shared memory": 1024,
                            "graph node id": 7, "blocks per SM": 0.5},
                   "ph": "X", "ts": ts, "dur": dur, "name": name, "cat": category, "pid": 1, "tid": stream})
        };
        match kind {
            0 => on_thread("cpu_op", &name),
            1 => on_thread("cuda_runtime", &name),
            2 => on_thread("cuda_driver", &name),
            3 => on_thread("user_annotation", &format!("LLM@{name}.")),
            4 => on_device("kernel"),
            5 => on_device("gpu_memcpy"),
            6 => on_device("gpu_memset"),
            7 => json!({"ph": "s", "id": 3, "cat": "ac2g", "name": "ac2g", "ts": ts, "pid": 77, "tid": tid}),
            _ => json!({"ph": "M", "name": "process_name", "pid": 77, "args": {"name": odd}}),
        }
    })
}

/// A document with at least one call, so that operations have a process.
fn document() -> impl Strategy<Value = (Value, bool)> {
    (prop::collection::vec(event(), 0..12), 0i64..1 << 50, any::<bool>(), any::<bool>()).prop_map(
        |(mut events, base, pretty, outermost)| {
            events.push(
                json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 77, "tid": 1,
                               "ts": 1, "dur": 2, "args": {"correlation": 1}}),
            );
            let document = match outermost {
                true => Value::Array(events),
                false => json!({"schemaVersion": 1, "odd": {"traceEvents": [{}]},
                                "deviceProperties": [{"id": 1, "name": "GPU", "numSms": 3}],
                                "traceEvents": events, "zBase": [], "baseTimeNanoseconds": base}),
            };
            (document, pretty)
        },
    )
}

pub fn write((document, pretty): &(Value, bool)) -> String {
    match pretty {
        true => serde_json::to_string_pretty(document).unwrap(),
        false => document.to_string(),
    }
}

proptest! {
    #[test]
    fn any_division_gives_the_same(document in document(), block in 1usize..400, threads in 1usize..4) {
        let text = write(&document);
        let trace = read_bytes(text.as_bytes(), block, threads).unwrap();
        let mut found = Snapshot::of(&trace);
        let expected = expected(&document.0);
        if expected.devices.is_empty() {
            found.devices.clear();
        }
        prop_assert_eq!(&found, &expected);
        let packed = read_bytes(&gzip(text.as_bytes()), block, threads).unwrap();
        prop_assert_eq!(&Snapshot::of(&packed), &Snapshot::of(&trace));
    }

    #[test]
    fn a_cut_anywhere_is_an_error(document in document(), block in 1usize..400, cut in any::<prop::sample::Index>()) {
        let text = write(&document);
        let text = &text.as_bytes()[..cut.index(text.len())];
        prop_assert!(read_bytes(text, block, 2).is_err());
    }

    #[test]
    fn a_changed_byte_is_answered_alike_in_any_division(
        document in document(), block in 1usize..400, at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut text = write(&document).into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let result = read_bytes(&text, block, 2);
        let divided_otherwise = read_bytes(&text, 1 << 20, 1);
        prop_assert_eq!(result.is_ok(), divided_otherwise.is_ok());
        if let (Ok(a), Ok(b)) = (&result, &divided_otherwise) {
            prop_assert_eq!(Snapshot::of(a), Snapshot::of(b));
        }
    }
}
