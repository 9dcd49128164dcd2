//! Recordings of Nsight Systems: SQLite exports (`nsys export --type sqlite`), by looking at which tables and columns exist, and the
//! reports themselves, read as the same tables.

use crate::sqlite::{Database, Tables};
use crate::{Format, LossKind, ReadError, Source, SourceFormat, Trace};
use identity::{Identity, Strings};
use report::Report;
use std::path::Path;

mod activity;
mod graph_nodes;
mod host;
mod identity;
mod nvtx;
mod report;
mod waits;

#[cfg(test)]
mod tests;

pub const EXPORT: Format = Format {
    name: "nsys-sqlite",
    description: "an nsys report or its SQLite export",
    profiler: "nsys",
    is_timeline: true,
    endings: &[".sqlite"],
    gpu_work_advice: "; nsys records it with `--trace=cuda,nvtx`, in the processes that it starts",
    detect: |head| head.bytes.starts_with(b"SQLite format 3\0").into(),
    read: |file, input| file.unpacked(|path| read(path, &mut input.trace)),
    ..Format::DEFAULT
};

/// First bytes of every nsys report, followed by the version.
pub const REPORT_MAGIC: &[u8] = b"NVIDIA Tegra Profiler Report ";

pub const REPORT: Format = Format {
    name: "nsys-rep",
    endings: &[".nsys-rep", ".qdrep"],
    detect: |head| head.bytes.starts_with(REPORT_MAGIC).into(),
    read: |file, input| file.unpacked(|path| read_report(path, &mut input.trace)),
    ..EXPORT
};

/// Beginnings of table names of which an export has at least one beside its strings. Old exports without events have only tables
/// that describe the machine.
const SIGNS: [&str; 6] = [
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
    "NVTX_EVENTS",
    "CUPTI_ACTIVITY_KIND_",
    "OSRT_API",
    "TARGET_INFO_",
];

/// Most tables of another database that are listed.
const LISTED: usize = 5;

/// Returns true if a database with these tables is an nsys export.
fn looks_like(tables: &[&str]) -> bool {
    let is_sign = |table: &&str| SIGNS.iter().any(|sign| table.starts_with(sign));
    tables.contains(&"StringIds") && tables.iter().any(is_sign)
}

/// Names the database of another tool by its tables.
fn unrecognised(path: &Path, tables: &[&str]) -> ReadError {
    let found = if tables.is_empty() {
        "a SQLite file without tables".into()
    } else if tables.iter().any(|table| table.starts_with("rocpd_") || *table == "KERN") {
        "a profile of AMD's ROCm; for AMD GPUs, give a trace of the PyTorch profiler".into()
    } else if tables.iter().any(|table| table.starts_with("CUPTI_ACTIVITY_KIND_")) {
        "a profile of nvprof or the Visual Profiler, which is not read; record the program with nsys instead"
            .into()
    } else {
        let more = if tables.len() > LISTED { ", ..." } else { "" };
        format!("tables {}{more}", tables[..tables.len().min(LISTED)].join(", "))
    };
    ReadError::Unrecognised {
        path: path.to_path_buf(),
        expected: "an export of Nsight Systems (tables StringIds, NVTX_EVENTS, CUPTI_ACTIVITY_KIND_*)".into(),
        found,
    }
}

/// Opens a database that is an nsys export.
fn open(path: &Path) -> Result<Database, ReadError> {
    let db = Database::open(path)?;
    let tables: Vec<&str> = db.tables().collect();
    if looks_like(&tables) { Ok(db) } else { Err(unrecognised(path, &tables)) }
}

/// Reads an export into `trace`, of which it is the only timeline. The caller sorts.
pub fn read(path: &Path, trace: &mut Trace) -> Result<(), ReadError> {
    let db = open(path)?;
    trace.sources.push(source(&db, path)?);
    read_tables(&db, trace)?;
    name_unread(db.unread(), trace);
    Ok(())
}

/// Names the tables with rows that were not read.
fn name_unread(tables: Vec<(&str, u64)>, trace: &mut Trace) {
    for (table, rows) in tables.into_iter().filter(|(table, _)| !is_description(table)) {
        trace.losses.add_message(LossKind::TableNotRead, table, rows);
    }
}

/// Reads a report into `trace`, as [`read`] does an export.
fn read_report(path: &Path, trace: &mut Trace) -> Result<(), ReadError> {
    let report = Report::open(path)?;
    let mut source = Source::new(path, SourceFormat::NsysReport);
    source.tool_version = report.version();
    trace.sources.push(source);
    report.losses(trace);
    read_tables(&report, trace)
}

fn read_tables(db: &impl Tables, trace: &mut Trace) -> Result<(), ReadError> {
    let mut strings = Strings::default();
    db.each("StringIds", &["id", "value"], |row| {
        if let (Some(id), Some(text)) = (row[0].int(), row[1].text()) {
            strings.insert(id, trace.names.intern(&text));
        }
    })?;
    db.each("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |row| {
        trace.utc_offset = row[0].int().unwrap_or(trace.utc_offset);
    })?;
    let mut who = Identity::read(db, &strings, trace)?;
    activity::kernels(db, &strings, &mut who, trace)?;
    activity::transfers_and_graphs(db, &mut who, trace)?;
    activity::samples(db, &who, trace)?;
    activity::calls(db, &strings, &mut who, trace)?;
    waits::waits(db, &who, trace)?;
    nvtx::ranges(db, &strings, &mut who, trace)?;
    host::stacks(db, &strings, &who, trace)?;
    diagnostics(db, !trace.ops.is_empty(), trace)?;
    if let Some(job) = identity::distributed(db)? {
        trace.distributed = Some(job);
    }
    place_unnamed(&who, trace);
    close_open_ranges(trace);
    graph_nodes::graph_nodes(db, &mut who, trace)?;
    if !trace.ops.is_empty() && trace.calls.is_empty() {
        trace.losses.add(LossKind::NoRuntime, 1);
    }
    Ok(())
}

/// Tells whether a table describes the machine, the recording or other rows, or repeats them: nothing is lost without it.
fn is_description(table: &str) -> bool {
    // A line ends with `*` where it is the beginning of a name.
    include_str!("descriptions.txt").lines().any(|line| match line.strip_suffix('*') {
        Some(beginning) => table.starts_with(beginning),
        None => table == line,
    })
}

/// Keeps the errors and warnings that nsys wrote into the report. `has_work` tells whether it has GPU work.
fn diagnostics(db: &impl Tables, has_work: bool, trace: &mut Trace) -> Result<(), ReadError> {
    // Values of `ENUM_DIAGNOSTIC_SEVERITY_LEVEL`.
    const WARNING: i64 = 2;
    const ERROR: i64 = 3;
    db.each("DIAGNOSTIC_EVENT", &["severity", "text"], |row| {
        let text = row[1].text().unwrap_or_default();
        let kind = match row[0].int() {
            Some(WARNING) if is_about_graphics(&text) => return,
            Some(WARNING | ERROR) if is_note(&text, has_work) => LossKind::ToolNote,
            Some(WARNING) => LossKind::ToolWarning,
            Some(ERROR) => LossKind::ToolError,
            _ => return,
        };
        trace.losses.add_message(kind, &text, 1);
    })
}

/// Tells whether a diagnostic is about missing events of a graphics API. nsys records some by default, and no number here is about
/// them.
fn is_about_graphics(text: &str) -> bool {
    const APIS: [&str; 7] = ["OpenGL", "Vulkan", "DX11", "DX12", "DX9", "OpenXR", "WDDM"];
    let text = text.trim();
    let subject = ["No ", "Not all "].iter().find_map(|start| text.strip_prefix(start));
    let subject = subject.unwrap_or(text);
    let after = APIS.iter().find_map(|api| subject.strip_prefix(api));
    after.is_some_and(|rest| rest.starts_with(" events") || rest.starts_with(" profiling"))
}

/// Tells whether a diagnostic is about something that no number of this capture needs. A process without CUDA is one beside those
/// whose work was recorded.
fn is_note(text: &str, has_work: bool) -> bool {
    // With work of a GPU in the capture, these are about one process of several.
    const OF_A_PROCESS: [&str; 2] = ["No CUDA events", "CUDA profiling might have not been started"];
    let text = text.trim();
    let is_listed = include_str!("notes.txt").lines().any(|line| {
        let (beginning, part) = line.split_once(" ... ").unwrap_or((line, ""));
        text.starts_with(beginning) && text.contains(part)
    });
    is_listed || has_work && OF_A_PROCESS.iter().any(|beginning| text.starts_with(beginning))
}

/// Gives work that names no process to the one process that made calls, where there is only one.
fn place_unnamed(who: &Identity, trace: &mut Trace) {
    let launching = &trace.calls.process;
    if let (Some(unnamed), Some(&first)) = (who.unnamed_process(), launching.first())
        && launching.iter().all(|process| *process == first)
    {
        let work = trace.ops.process.iter_mut();
        work.filter(|process| **process == unnamed).for_each(|process| *process = first);
    }
}

/// Lets ranges that were never closed end with the last event of this export.
fn close_open_ranges(trace: &mut Trace) {
    let ranges = &mut trace.ranges.rows;
    if ranges.iter().all(|range| !range.open) {
        return;
    }
    let closed = ranges.iter().map(|r| if r.open { r.start } else { r.end });
    let end = trace.ops.end.iter().chain(&trace.calls.end).copied().chain(closed).max();
    for range in ranges.iter_mut().filter(|r| r.open) {
        range.end = end.unwrap_or(range.start).max(range.start);
    }
}

fn source(db: &Database, path: &Path) -> Result<Source, ReadError> {
    let mut source = Source::new(path, SourceFormat::NsysSqlite);
    for table in ["META_DATA_EXPORT", "EXPORT_META_DATA"] {
        db.each(table, &["name", "value"], |row| {
            let (Some(name), Some(value)) = (row[0].text(), row[1].text()) else {
                return;
            };
            match &*name {
                "EXPORT_PRODUCT_VERSION" => source.tool_version = Some(value.into_owned()),
                "EXPORT_SCHEMA_VERSION" => source.schema_version = Some(value.into_owned()),
                _ => {}
            }
        })?;
    }
    // A report may be exported by a later version than the one that recorded it.
    if let Some(recorded) = recording_version(db)?
        && !source.tool_version.as_deref().is_some_and(|exporter| exporter.starts_with(&recorded))
    {
        source.tool_version = Some(recorded);
    }
    Ok(source)
}

/// Returns the version of nsys that recorded the report, from the folder that it ran from.
fn recording_version(db: &Database) -> Result<Option<String>, ReadError> {
    let mut version = None;
    db.each("TARGET_INFO_SYSTEM_ENV", &["name", "value"], |row| {
        if let (Some("TargetInstallDir"), Some(folder)) = (row[0].text().as_deref(), row[1].text()) {
            version = version.take().or_else(|| version_in_path(&folder));
        }
    })?;
    if version.is_none() {
        // nsys names the libraries that it loads.
        db.each("DIAGNOSTIC_EVENT", &["text"], |row| {
            if let Some(text) = row[0].text() {
                version = version.take().or_else(|| version_in_path(&text));
            }
        })?;
    }
    Ok(version)
}

/// Finds the version in a path such as `/opt/nvidia/nsight-systems/2023.4.4/target-linux-x64`.
fn version_in_path(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("nsight-systems")?;
    let rest = rest.strip_prefix("-cli").unwrap_or(rest);
    let rest = rest.strip_prefix(['/', '-', '\\'])?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let version = rest.get(..end.unwrap_or(rest.len()))?;
    let parts: Vec<&str> = version.split('.').collect();
    let numbers = parts.iter().all(|part| part.parse::<u32>().is_ok());
    (numbers && parts.len() >= 2 && parts[0].len() == 4).then(|| version.to_owned())
}

#[cfg(test)]
mod version_tests {
    use super::version_in_path;

    #[test]
    fn the_folder_of_nsys_has_its_version() {
        let version = |text: &str| version_in_path(text);
        let recorded = Some("2023.4.4".to_owned());
        assert_eq!(version("/opt/nvidia/nsight-systems/2023.4.4/target-linux-x64"), recorded);
        assert_eq!(
            version(
                "Loaded CUPTI library: /opt/nvidia/nsight-systems-cli/2023.4.4/target-linux-x64/libcupti.so.12.3"
            ),
            recorded
        );
        assert_eq!(version("/usr/local/cuda-12.3/nsight-systems-2023.4.4/bin"), recorded);
        for other in [
            "/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64",
            "/opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/libcupti.so.13.0",
            "/opt/nsight-systems/12.3/bin",
            "nsight-systems/2023",
        ] {
            assert_eq!(version(other), None, "{other}");
        }
    }
}
