//! Reports against the exports that nsys made of them.

use crate::input::TemporaryCopy;
use crate::{LossKind, OpKind, ReadError, Trace};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Everything that a trace says, without the numbers that stand for names. `devices` and `rank` leave out what older exports do not
/// have.
fn described(trace: &Trace, devices: bool, rank: bool) -> Vec<String> {
    let name = |id| trace.names.get(id);
    let process = |id: crate::ProcessId| {
        let process = trace.processes[id.index()];
        format!("{} {}", process.pid, name(process.name))
    };
    let thread = |id: crate::ThreadId| {
        let thread = trace.threads[id.index()];
        format!("{} {} of {}", thread.tid, name(thread.name), process(thread.process))
    };
    let device = |id: crate::DeviceId| devices.then(|| format!("{:?}", trace.devices[id.index()]));
    let mut lines = Vec::new();
    let ops = &trace.ops;
    for i in 0..ops.len() {
        lines.push(format!(
            "{:?} {} {} {} {:?} {} {} {} {:?} {} {:?}",
            ops.kind[i],
            ops.start[i],
            ops.end[i],
            name(ops.name[i]),
            device(ops.device[i]),
            ops.stream[i],
            process(ops.process[i]),
            ops.correlation[i],
            ops.shape_of(i),
            ops.graph_node(i),
            ops.transfers.get(&(i as u32)),
        ));
    }
    let calls = &trace.calls;
    for i in 0..calls.len() {
        lines.push(format!(
            "call {} {} {} {:?} {} {}",
            calls.start[i],
            calls.end[i],
            name(calls.name[i]),
            calls.class[i],
            thread(calls.thread[i]),
            calls.correlation[i]
        ));
    }
    for wait in &trace.waits {
        let (kind, stream, event) = (wait.kind, wait.stream, wait.event);
        lines.push(format!(
            "wait {} {kind:?} {stream:?} {:?} {event:?}",
            wait.correlation,
            wait.device.map(device)
        ));
    }
    for range in &trace.ranges.rows {
        let (domain, own) = (name(range.domain), name(range.name));
        let ends = (thread(range.thread), thread(range.end_thread));
        lines.push(format!(
            "range {} {} {domain} {own} {ends:?} {:?} {}",
            range.start, range.end, range.style, range.open
        ));
    }
    for mark in &trace.ranges.marks {
        lines.push(format!(
            "mark {} {} {} {}",
            mark.at,
            name(mark.domain),
            name(mark.name),
            thread(mark.thread)
        ));
    }
    let frame = |id| {
        let frame = trace.stacks.frame(id);
        format!("{} {}", name(frame.function), name(frame.file))
    };
    for span in &trace.stacks.spans {
        lines.push(format!("span {} {} {} {}", span.start, span.end, thread(span.thread), frame(span.frame)));
    }
    for sample in &trace.stacks.samples {
        let mut line = format!("sample {} {}", sample.at, thread(sample.thread));
        let mut at = sample.stack;
        while let Some((caller, own)) = at.index().checked_sub(1).map(|i| trace.stacks.stacks()[i]) {
            write!(line, " < {}", frame(own)).unwrap();
            at = caller;
        }
        lines.push(line);
    }
    for sampled in &trace.sampled {
        for (i, window) in sampled.windows.iter().enumerate() {
            let values: Vec<_> = sampled.metrics.iter().map(|(metric, values)| (metric, values[i])).collect();
            lines.push(format!("sampled {:?} {window:?} {values:?}", device(sampled.device)));
        }
    }
    for stack in trace.graph_nodes.stacks() {
        lines.push(format!("graph node in {:?}", stack.iter().map(|id| name(*id)).collect::<Vec<_>>()));
    }
    for loss in trace.losses.iter() {
        // Older exports have no diagnostics, and both name what is not read in their own way.
        use LossKind::{EventUnknown, TableNotRead, ToolError, ToolNote, ToolWarning};
        if ![EventUnknown, TableNotRead, ToolError, ToolNote, ToolWarning].contains(&loss.kind) {
            lines.push(format!("loss {} {}", loss.kind.id(), loss.count));
        }
    }
    lines.push(format!("{:?}", trace.distributed.as_ref().filter(|_| rank)));
    lines.sort_unstable();
    lines
}

fn read(path: &Path) -> Trace {
    crate::read(&[path.to_path_buf()]).unwrap_or_else(|error| panic!("{error}")).trace
}

/// Fails with the first lines that only one of two traces has.
fn assert_same(report: &Path, export: &Path) {
    let (own, other) = (read(report), read(export));
    let copy =
        export.extension().is_some_and(|end| end == "gz").then(|| TemporaryCopy::unpack(export).unwrap());
    let database = crate::sqlite::Database::open(copy.as_ref().map_or(export, |copy| copy.path())).unwrap();
    let has = |table| database.tables().any(|name| name == table);
    let (devices, rank) = (has("TARGET_INFO_CUDA_DEVICE"), has("META_DATA_CAPTURE") && report.is_file());
    let (ours, theirs) = (described(&own, devices, rank), described(&other, devices, rank));
    if ours != theirs {
        let only = |a: &[String], b: &[String]| -> Vec<String> {
            a.iter().filter(|line| b.binary_search(line).is_err()).take(3).cloned().collect()
        };
        panic!(
            "{}: {} and {} lines\nreport: {:#?}\nexport: {:#?}",
            report.display(),
            ours.len(),
            theirs.len(),
            only(&ours, &theirs),
            only(&theirs, &ours)
        );
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/nsys-report").join(name)
}

/// Compares the reports of `ROOFGAP_TEST_NSYS_REPORTS`, or else the fixtures, with the exports that lie beside them. A report
/// without one need only be readable.
#[test]
fn a_report_is_as_its_export() {
    let others = std::env::var_os("ROOFGAP_TEST_NSYS_REPORTS");
    let mut folders = vec![others.map_or_else(|| fixture(""), PathBuf::from)];
    let (mut compared, mut failed) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if !path.extension().is_some_and(|end| end == "nsys-rep" || end == "qdrep") {
                continue;
            }
            let exports = ["sqlite", "sqlite.gz"].map(|end| path.with_extension(end));
            let export = exports.iter().find(|export| export.is_file());
            let same = std::panic::catch_unwind(|| match export {
                Some(export) => assert_same(&path, export),
                None => drop(read(&path)),
            });
            compared += usize::from(export.is_some());
            if same.is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(compared > 0);
}

#[test]
fn folders_of_tables_are_refused_by_name() {
    for (table, named) in [("StringIds.arrow", "an Arrow export"), ("StringIds.parquet", "a Parquet export")]
    {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(table), b"").unwrap();
        let error = crate::read(&[folder.path().to_path_buf()]).unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("nsys export --type sqlite"), "{error}");
    }
}

#[test]
fn nothing_of_a_report_is_lost() {
    let trace = read(&fixture("llama4.nsys-rep"));
    let count = |kind| trace.ops.kind.iter().filter(|own| **own == kind).count();
    assert_eq!((count(OpKind::Kernel), trace.calls.len(), trace.ranges.rows.len()), (587, 1293, 21));
    assert_eq!(trace.devices[0].name.as_deref(), Some("NVIDIA H200"));
    assert_eq!(trace.sampled[0].windows.len(), 149);
    assert_eq!(trace.distributed.as_ref().and_then(|job| job.rank.zip(job.world_size)), Some((0, 2)));
    let trace = read(&fixture("vllm_graph.nsys-rep"));
    assert_eq!(trace.ops.kind.iter().filter(|kind| **kind == OpKind::Kernel).count(), 776);
    assert!(trace.ops.graph_node.iter().filter(|node| **node != 0).count() > 600);
    assert!(!trace.graph_nodes.is_empty());
    let unread: Vec<_> = trace.losses.messages(LossKind::EventUnknown).collect();
    assert_eq!(unread, [("calls: cuDNN", 1)]);
    let trace = read(&fixture("nsys-2023.4.4-cpu-nvtx.nsys-rep"));
    assert_eq!((trace.ranges.rows.len(), trace.ranges.marks.len()), (28, 1));
    assert_eq!(trace.losses.count(LossKind::RangeCrossThread), 1);
}

#[test]
fn the_version_is_in_the_report() {
    for (name, version) in [("nsys-2022.4.2-cpu-nvtx", "2022.4.2.1"), ("llama4", "2023.4.4.54")] {
        let trace = read(&fixture(&format!("{name}.nsys-rep")));
        assert_eq!(trace.sources[0].tool_version.as_deref(), Some(version));
        assert_eq!(trace.sources[0].format, crate::SourceFormat::NsysReport);
    }
}

/// Reads a report of which the bytes were changed.
fn read_changed(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Result<Trace, ReadError> {
    let mut bytes = std::fs::read(fixture(name)).unwrap();
    change(&mut bytes);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    crate::read(&[file.path().to_path_buf()]).map(|input| input.trace)
}

/// Replaces the last occurrence of some bytes by as many others.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let at = bytes.windows(from.len()).rposition(|window| window == from).unwrap();
    bytes[at..at + from.len()].copy_from_slice(to);
}

#[test]
fn a_report_that_breaks_off_is_refused() {
    let name = "nsys-2022.4.2-cpu-nvtx.nsys-rep";
    let length = std::fs::metadata(fixture(name)).unwrap().len() as usize;
    for cut in (40..length).step_by(97).chain([length - 1, length - 8, length - 16]) {
        let error = read_changed(name, |bytes| bytes.truncate(cut)).unwrap_err();
        assert!(
            matches!(&error, ReadError::Damaged { what, .. } if what.contains("breaks off")),
            "{cut}: {error}"
        );
    }
}

#[test]
fn damage_is_an_error_or_another_trace() {
    let mut refused = 0;
    for name in ["nsys-2022.4.2-cpu-nvtx.nsys-rep", "llama4.nsys-rep"] {
        let length = std::fs::metadata(fixture(name)).unwrap().len() as usize;
        for at in (0..length).step_by(length / 30).chain(length - 100..length) {
            for bits in [0x01, 0x80] {
                refused += usize::from(read_changed(name, |bytes| bytes[at] ^= bits).is_err());
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn a_lost_event_is_noticed() {
    // The number of events in the header: 1908 of a llama, as a varint behind the tag of field 1.
    let error =
        read_changed("llama4.nsys-rep", |bytes| replace(bytes, &[0x08, 0xf4, 0x0e], &[0x08, 0xf5, 0x0e]));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the number of events"), "{error}");
}

#[test]
fn an_unknown_part_is_named() {
    let changed = |from: &[u8], to: &[u8]| {
        let error = read_changed("llama4.nsys-rep", |bytes| replace(bytes, from, to)).unwrap_err();
        assert!(matches!(error, ReadError::UnknownReport { .. }), "{error}");
        error.to_string()
    };
    assert!(changed(b"\x0a\x03lz4", b"\x0a\x03zst").contains("the compression `zst`"));
    assert!(changed(b"QDTEXT00", b"QDTEXT01").contains("another form"));
    assert!(changed(b"Raw Sampling Data", b"Raw Sampling Blob").contains("no section `Raw Sampling Data`"));
    assert!(changed(b"UI Data", b"UI Blob").contains("nsys export"));
}

/// The fields of a message, in the wire format.
fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    fields
        .iter()
        .flat_map(|(number, bytes)| [&[number << 3 | 2, bytes.len() as u8], *bytes].concat())
        .collect()
}

#[test]
fn events_of_newer_versions_are_named() {
    use super::messages::{Route, route};
    let name = |event: &[u8]| match route(event) {
        Ok((Route::Unread(kind), _)) => kind.name(),
        _ => panic!("{event:?}"),
    };
    // Tags of fields above 15 have two bytes.
    let field = |number: u16, bytes: &[u8]| {
        let tag = number << 3 | 2;
        [&[tag as u8 | 0x80, (tag >> 7) as u8, bytes.len() as u8], bytes].concat()
    };
    assert_eq!(name(&field(140, &[])), "events of kind 140");
    assert_eq!(name(&field(123, &[])), "events: GPU memory usage");
    assert_eq!(name(&field(107, &field(108, &[]))), "GPU events of kind 108");
    assert_eq!(name(&field(108, &[6 << 3, 120])), "calls of kind 120");
    let whole_graph = field(107, &field(107, &[1 << 3, 5]));
    assert!(matches!(route(&whole_graph), Ok((Route::Row(super::messages::RowKind::Graph), _))));
    assert!(route(&message(&[(1, b"x")])[..2]).is_err());
}
