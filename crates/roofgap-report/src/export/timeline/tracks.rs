//! Assigns events to tracks. Track numbers are generated, because thread and stream numbers can repeat.

use super::{Track, Writer};
use crate::export::FreeLines;
use roofgap_trace::{ThreadId, Trace};
use std::collections::BTreeMap;
use std::io;

/// First number of the program's processes.
const FIRST_PROCESS: u32 = 1_000;
/// First number of the processes that stand for devices.
const FIRST_DEVICE: u32 = 1_000_000;
/// First number of the tracks of calls; the tracks of ranges are below.
const FIRST_CALLS: u32 = 10_000_000;
/// First number of the tracks of streams.
const FIRST_STREAM: u32 = 20_000_000;

/// Returns the process that stands for a device.
pub fn device(index: usize) -> u32 {
    FIRST_DEVICE + index as u32
}

/// Device, process, stream, and a line for each of its concurrent operations.
type StreamLine = (u16, u32, u32, u32);

/// The tracks of a trace.
pub struct Tracks {
    threads: Vec<u32>,
    streams: Vec<StreamLine>,
    /// Position in `streams`, by row of the operations.
    of_op: Vec<u32>,
}

impl Tracks {
    /// Assigns every thread and GPU operation to a track.
    pub fn of(trace: &Trace) -> Self {
        let ops = &trace.ops;
        let mut ends: BTreeMap<(u16, u32, u32), FreeLines> = BTreeMap::new();
        let mut lines: BTreeMap<StreamLine, Vec<u32>> = BTreeMap::new();
        for row in 0..ops.len() {
            let key = (ops.device[row].0, ops.process[row].0, ops.stream[row]);
            let line = ends.entry(key).or_default().assign(ops.start[row], ops.end[row]);
            let rows = lines.entry((key.0, key.1, key.2, line as u32)).or_default();
            rows.push(row as u32);
        }
        let mut of_op = vec![0; ops.len()];
        for (at, rows) in lines.values().enumerate() {
            for &row in rows {
                of_op[row as usize] = at as u32;
            }
        }
        Self {
            threads: trace.threads.iter().map(|t| t.process.0).collect(),
            streams: lines.into_keys().collect(),
            of_op,
        }
    }

    /// Returns the track of a thread's ranges and operators.
    pub fn thread(&self, thread: ThreadId) -> Option<Track> {
        let process = self.threads.get(thread.index())?;
        Some(Track { pid: FIRST_PROCESS + process, tid: FIRST_PROCESS + thread.0 })
    }

    /// Returns the track of a thread's calls.
    pub fn calls(&self, thread: ThreadId) -> Option<Track> {
        let track = self.thread(thread)?;
        Some(Track { tid: FIRST_CALLS + thread.0, ..track })
    }

    /// Returns the track of a GPU operation.
    pub fn operation(&self, row: usize) -> Option<Track> {
        let at = *self.of_op.get(row)?;
        self.stream(at)
    }

    fn stream(&self, at: u32) -> Option<Track> {
        let stream = self.streams.get(at as usize)?;
        Some(Track { pid: device(stream.0 as usize), tid: FIRST_STREAM + at })
    }

    /// Writes the names of all processes and tracks.
    pub fn describe(&self, trace: &Trace, writer: &mut dyn Writer) -> io::Result<()> {
        for (at, process) in trace.processes.iter().enumerate() {
            let name = match trace.names.get(process.name) {
                "" => "process",
                name => name,
            };
            let order = 1 + at as i64;
            writer.process(FIRST_PROCESS + at as u32, &format!("{name} {}", process.pid), order)?;
        }
        for (at, thread) in trace.threads.iter().enumerate() {
            let name = match trace.names.get(thread.name) {
                "" => "thread",
                name => name,
            };
            let number = thread.tid.to_string();
            // Some tools include the number in the name.
            let name = if name.contains(&number) { name.to_owned() } else { format!("{name} {number}") };
            let id = ThreadId(at as u32);
            if let (Some(own), Some(calls)) = (self.thread(id), self.calls(id)) {
                writer.thread(own, &name, 2 * at as i64)?;
                writer.thread(calls, &format!("{name}: CUDA calls"), 2 * at as i64 + 1)?;
            }
        }
        for (at, gpu) in trace.devices.iter().enumerate() {
            let name = gpu.name.as_deref().unwrap_or("unknown");
            writer.process(device(at), &format!("GPU {}: {name}", gpu.number), 1_000_000 + at as i64)?;
        }
        for (at, stream) in self.streams.iter().enumerate() {
            let pid = trace.processes.get(stream.1 as usize).filter(|_| trace.processes.len() > 1);
            let pid = pid.map(|p| format!(" of {}", p.pid)).unwrap_or_default();
            let line = if stream.3 == 0 { String::new() } else { format!(" ({})", stream.3 + 1) };
            if let Some(track) = self.stream(at as u32) {
                writer.stream(track, &format!("stream {}{pid}{line}", stream.2), at as i64)?;
            }
        }
        Ok(())
    }
}
