//! Writes rows to the tables of an export.

use super::strings;
use crate::event::{CallKind, Range, TransferKind};
use crate::names;
use crate::program::Program;
use rusqlite::{Connection, params};
use std::path::Path;

/// Error of writing an export.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file exists; it is not overwritten.
    #[error("{0} exists already; name another file")]
    Exists(String),
    /// SQLite failed.
    #[error("cannot write an export to {path}: {source}")]
    Sqlite {
        /// The file.
        path: String,
        /// Error of SQLite.
        source: rusqlite::Error,
    },
}

/// Writes a program as an nsys export.
pub fn write(program: &Program, path: &Path) -> Result<(), WriteError> {
    if path.exists() {
        return Err(WriteError::Exists(path.display().to_string()));
    }
    fill(program, path).map_err(|source| WriteError::Sqlite { path: path.display().to_string(), source })
}

fn fill(program: &Program, path: &Path) -> rusqlite::Result<()> {
    let db = Connection::open(path)?;
    db.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; BEGIN",
    )?;
    db.execute_batch(include_str!("schema.sql"))?;
    target(program, &db)?;
    calls(program, &db)?;
    kernels(program, &db)?;
    transfers(program, &db)?;
    ranges(program, &db)?;
    db.execute_batch("COMMIT")
}

/// First process id.
const FIRST_PID: i64 = 2771;

fn pid(process: u16) -> i64 {
    FIRST_PID + i64::from(process)
}

/// Packs a process id as nsys does; the lowest bits are for the thread.
fn global_pid(process: u16) -> i64 {
    1 << 48 | pid(process) << 24
}

fn global_tid(process: u16, thread: u16) -> i64 {
    // The first thread has the id of the process.
    global_pid(process) | (pid(process) + 1000 * i64::from(thread))
}

/// Writes the description of the machine: strings, processes, threads, GPUs, streams.
fn target(program: &Program, db: &Connection) -> rusqlite::Result<()> {
    let mut string = db.prepare("INSERT INTO StringIds VALUES (?, ?)")?;
    for (id, text) in strings::all().iter().enumerate() {
        string.execute(params![id as i64, text])?;
    }
    let spec = &program.spec;
    let last = program.events.kernels.iter().map(|k| k.end).max().unwrap_or(0);
    db.execute("INSERT INTO ANALYSIS_DETAILS VALUES (?, ?, 0, ?)", params![1i64 << 48, last, last])?;
    db.execute(
        "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1763164800000000000, '2025-11-15 00:00:00', '2025-11-15 00:00:00')",
        [],
    )?;
    for device in 0..spec.devices.max(1) {
        db.execute(
            "INSERT INTO TARGET_INFO_GPU (vmId, id, name, busLocation, isDiscrete, l2CacheSize, totalMemory, memoryBandwidth, \
             clockRate, smCount, uuid, chipName, cuDevice, computeMajor, computeMinor, smMajor, smMinor) \
             VALUES (?1, ?2, 'NVIDIA H200', ?3, 1, 62914560, 150109880320, 4814304000000, 1980000000, 132, ?4, 'GH100', ?2, 9, 0, 9, 0)",
            params![
                1i64 << 48,
                device,
                format!("0000:00:{:02x}.0", 6 + device),
                format!("3745ee84-1287-3523-c09c-{device:012x}")
            ],
        )?;
    }
    for process in 0..spec.processes.max(1) as u16 {
        db.execute(
            "INSERT INTO PROCESSES VALUES (?, ?, 'python3')",
            params![global_pid(process), pid(process)],
        )?;
        for thread in 0..strings::THREADS.len() {
            db.execute(
                "INSERT INTO ThreadNames VALUES (?, 20, ?)",
                params![strings::thread(thread), global_tid(process, thread as u16)],
            )?;
        }
        for device in 0..spec.devices.max(1) {
            db.execute(
                "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?1, ?1, ?2)",
                params![device, pid(process)],
            )?;
            db.execute(
                "INSERT INTO TARGET_INFO_CUDA_CONTEXT_INFO VALUES (7, 0, 1, ?, ?, ?, 0, 0)",
                params![pid(process), device, 1 + device],
            )?;
            for stream in 0..spec.streams.max(1) {
                db.execute(
                    "INSERT INTO TARGET_INFO_CUDA_STREAM VALUES (?, 0, 1, ?, ?, 0, 2)",
                    params![7 + stream, pid(process), 1 + device],
                )?;
            }
        }
    }
    Ok(())
}

fn calls(program: &Program, db: &Connection) -> rusqlite::Result<()> {
    let mut row = db.prepare("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, 0, NULL)")?;
    for call in &program.events.calls {
        row.execute(params![
            call.start,
            call.end,
            i64::from(call.kind == CallKind::DriverLaunch),
            global_tid(call.process, call.thread),
            call.correlation,
            strings::call(call.kind)
        ])?;
    }
    let mut row = db.prepare(
        "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (?, ?, 0, 1, NULL, 7, ?, ?, NULL, 3, 4294967295, 4294967295)",
    )?;
    for call in program.events.calls.iter().filter(|c| c.kind == CallKind::Synchronize) {
        row.execute(params![call.start + 200, call.end - 200, call.correlation, global_pid(call.process)])?;
    }
    Ok(())
}

fn kernels(program: &Program, db: &Connection) -> rusqlite::Result<()> {
    let mut row = db.prepare(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES \
         (?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, 1, 1, ?, ?, ?, ?, ?, 1, 1, 0, ?, 0, 250871808, ?, ?, ?, 0)",
    )?;
    for kernel in &program.events.kernels {
        let Some(kind) = names::kinds().get(usize::from(kernel.name)) else {
            continue;
        };
        let [demangled, short, mangled] = strings::kernel(kernel.name);
        row.execute(params![
            kernel.start,
            kernel.end,
            kernel.device,
            1 + kernel.device,
            kernel.stream,
            kernel.correlation,
            global_pid(kernel.process),
            demangled,
            short,
            mangled,
            kind.registers,
            kind.grid[0],
            kind.grid[1],
            kind.grid[2],
            kind.block,
            kind.dynamic_shared,
            kernel.number,
            if kind.dynamic_shared > 0 { 233_472 } else { 32_768 },
            (kernel.node != 0).then_some(kernel.node as i64),
        ])?;
    }
    Ok(())
}

fn transfers(program: &Program, db: &Connection) -> rusqlite::Result<()> {
    let mut row = db.prepare(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, \
         copyKind, srcKind, dstKind, copyCount) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
    )?;
    for copy in &program.events.copies {
        let (kind, from, to) = match copy.kind {
            TransferKind::ToDevice => (1, 1, 2),
            _ => (2, 2, 0),
        };
        row.execute(params![
            copy.start,
            copy.end,
            copy.device,
            1 + copy.device,
            copy.stream,
            copy.correlation,
            global_pid(copy.process),
            copy.bytes as i64,
            kind,
            from,
            to
        ])?;
    }
    let mut row = db.prepare(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET (start, end, deviceId, contextId, streamId, correlationId, globalPid, value, \
         bytes, memKind) VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, 2)",
    )?;
    for set in &program.events.sets {
        row.execute(params![
            set.start,
            set.end,
            set.device,
            1 + set.device,
            set.stream,
            set.correlation,
            global_pid(set.process),
            set.bytes as i64
        ])?;
    }
    let mut row =
        db.prepare("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, ?, ?, NULL, ?, ?, ?, 17, 18)")?;
    for graph in &program.events.graphs {
        row.execute(params![
            graph.start,
            graph.end,
            graph.device,
            1 + graph.device,
            graph.stream,
            graph.correlation,
            global_pid(graph.process)
        ])?;
    }
    Ok(())
}

/// Id of domain `LLM` in every process.
const LLM: i64 = 1;

fn ranges(program: &Program, db: &Connection) -> rusqlite::Result<()> {
    let mut row = db.prepare(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, color, text, globalTid, textId, domainId) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for process in 0..program.spec.processes.max(1) as u16 {
        let tid = global_tid(process, 0);
        row.execute(params![16_000_000_000i64, None::<i64>, 75, None::<i64>, "LLM", tid, None::<i64>, LLM])?;
    }
    for range in &program.events.ranges {
        let &Range { start, end, llm, name, process, thread, .. } = range;
        let id = if llm { strings::range(name) } else { None };
        let text = id.is_none().then_some(name);
        let tid = global_tid(process, thread);
        row.execute(params![start, end, 59, id.map(|_| 255), text, tid, id, if llm { LLM } else { 0 }])?;
    }
    Ok(())
}
