//! Processes, threads and devices behind the packed ids of an export.

use crate::model::launched_job;
use crate::sqlite::{Tables, ints};
use crate::{Device, DeviceId, Distributed, NameId, ProcessId, ReadError, ThreadId, Trace};
use rustc_hash::FxHashMap;

/// The bits of a `globalTid` that name the process (hardware, virtual machine and process id).
pub const PROCESS_BITS: u64 = !0x00FF_FFFF;

/// Process and thread ids of one export, made as rows mention them.
#[derive(Debug, Default)]
pub struct Identity {
    processes: FxHashMap<u64, ProcessId>,
    threads: FxHashMap<u64, ThreadId>,
    devices: FxHashMap<(u32, u32), DeviceId>,
    process_names: FxHashMap<u64, String>,
    thread_names: FxHashMap<u64, String>,
    gpus: FxHashMap<u32, Device>,
    /// (pid, CUDA number) to the GPU's number, where the capture tells them apart.
    visible: FxHashMap<(u32, u32), u32>,
}

impl Identity {
    /// Reads the small tables that describe processes, threads and GPUs.
    pub fn read(db: &impl Tables, strings: &Strings, trace: &Trace) -> Result<Self, ReadError> {
        let mut identity = Self::default();
        db.each("PROCESSES", &["globalPid", "name"], |row| {
            if let (Some(pid), Some(name)) = (row[0].int(), row[1].text()) {
                identity.process_names.insert(pid as u64 & PROCESS_BITS, name.into_owned());
            }
        })?;
        db.each("ThreadNames", &["globalTid", "nameId"], |row| {
            if let Some([tid, id]) = ints(row)
                && let Some(name) = strings.get(id)
            {
                identity.thread_names.insert(tid as u64, trace.names.get(name).to_owned());
            }
        })?;
        identity.read_gpus(db)?;
        db.each("TARGET_INFO_CUDA_DEVICE", &["pid", "cudaId", "gpuId"], |row| {
            let number = |i: usize| row[i].int().and_then(|v| u32::try_from(v).ok());
            if let (Some(pid), Some(cuda), Some(gpu)) = (number(0), number(1), number(2)) {
                identity.visible.insert((pid, cuda), gpu);
            }
        })?;
        Ok(identity)
    }

    /// Reads what the export says of each GPU.
    fn read_gpus(&mut self, db: &impl Tables) -> Result<(), ReadError> {
        const COLUMNS: &str = "id name totalMemory memoryBandwidth clockRate smCount l2CacheSize uuid";
        // The table of early 2021; its clock and bandwidth are in other units, which no export says.
        const EARLY: &str = "deviceId name globalMemorySize - - numMultiprocessors l2CacheSize uuid \
                             computeCapabilityMajor computeCapabilityMinor";
        let (table, early) = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU");
        let is_new = db.has_column(table, "computeMajor");
        let capability = if is_new { ["computeMajor", "computeMinor"] } else { ["smMajor", "smMinor"] };
        self.read_gpu_table(db, table, &COLUMNS.split(' ').chain(capability).collect::<Vec<_>>())?;
        self.read_gpu_table(db, early, &EARLY.split(' ').collect::<Vec<_>>())
    }

    fn read_gpu_table(&mut self, db: &impl Tables, table: &str, columns: &[&str]) -> Result<(), ReadError> {
        db.each(table, columns, |row| {
            let positive = |i: usize| row[i].int().filter(|v| *v > 0).map(|v| v as u64);
            let Some(number) = row[0].int().and_then(|v| u32::try_from(v).ok()) else {
                return;
            };
            let device = Device {
                number,
                name: row[1].text().map(|t| t.into_owned()).filter(|t| !t.is_empty()),
                memory_bytes: positive(2).map(memory_bytes),
                bandwidth_bytes_per_s: positive(3),
                clock_hz: positive(4),
                sms: positive(5).map(saturated),
                l2_bytes: positive(6),
                uuid: row[7].text().map(|t| t.into_owned()).filter(|t| !t.is_empty()),
                compute_capability: positive(8)
                    .map(|major| (saturated(major), saturated(row[9].int().unwrap_or(0).max(0) as u64))),
            };
            self.gpus.entry(number).or_insert(device);
        })
    }

    /// Returns the process of rows that name none, if there are any.
    pub fn unnamed_process(&self) -> Option<ProcessId> {
        self.processes.get(&0).copied()
    }

    /// Returns the process of a packed id, whose lower bits are ignored.
    pub fn process(&mut self, global: u64, trace: &mut Trace) -> ProcessId {
        let key = global & PROCESS_BITS;
        *self.processes.entry(key).or_insert_with(|| {
            let name = self.process_names.get(&key).map_or("", String::as_str);
            trace.add_process(pid_of(key), name)
        })
    }

    /// Returns the process of a packed id if a row before mentioned it.
    pub fn known_process(&self, global: u64) -> Option<ProcessId> {
        self.processes.get(&(global & PROCESS_BITS)).copied()
    }

    /// Returns the thread of a packed id.
    pub fn thread(&mut self, global: u64, trace: &mut Trace) -> ThreadId {
        if let Some(&id) = self.threads.get(&global) {
            return id;
        }
        let process = self.process(global, trace);
        let name = self.thread_names.get(&global).map_or("", String::as_str);
        let id = trace.add_thread(process, (global & 0x00FF_FFFF) as u32, name);
        self.threads.insert(global, id);
        id
    }

    /// Returns the thread of a packed id if a row before mentioned it.
    pub fn known_thread(&self, global: u64) -> Option<ThreadId> {
        self.threads.get(&global).copied()
    }

    /// Returns the device that a process calls `number`. Processes may see the same GPUs under different numbers.
    pub fn device(&mut self, global_pid: u64, number: u32, trace: &mut Trace) -> DeviceId {
        let pid = pid_of(global_pid);
        if let Some(&id) = self.devices.get(&(pid, number)) {
            return id;
        }
        let gpu = self.visible.get(&(pid, number)).copied().unwrap_or(number);
        let id = trace.add_device(self.gpu(gpu));
        self.devices.insert((pid, number), id);
        id
    }

    /// Returns the device that a process calls `number` if a row before mentioned it.
    pub fn known_device(&self, global_pid: u64, number: u32) -> Option<DeviceId> {
        self.devices.get(&(pid_of(global_pid), number)).copied()
    }

    /// Returns the facts of a GPU of the machine.
    pub fn gpu(&self, number: u32) -> Device {
        self.gpus.get(&number).cloned().unwrap_or(Device { number, ..Device::default() })
    }
}

/// Returns a count; the largest one for one that is larger, which the limits of the trace leave out.
fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the bytes of a memory size. The first exports gave it in MiB, without saying so.
fn memory_bytes(size: u64) -> u64 {
    if size < 1 << 20 { size << 20 } else { size }
}

fn pid_of(global: u64) -> u32 {
    ((global >> 24) & 0x00FF_FFFF) as u32
}

/// Reads the rank that the launcher gave to the recorded program; `None` without one.
pub fn distributed(db: &impl Tables) -> Result<Option<Distributed>, ReadError> {
    // A row has one variable, with its value in quotes, or all of them, separated by zeros.
    let mut variables: FxHashMap<String, u32> = FxHashMap::default();
    db.each("META_DATA_CAPTURE", &["name", "value"], |row| {
        let (Some(name), Some(value)) = (row[0].text(), row[1].text()) else {
            return;
        };
        if !name.ends_with("ENVIRONMENT_VARIABLE") {
            return;
        }
        for (name, value) in value.split('\0').filter_map(|variable| variable.split_once('=')) {
            if let Ok(number) = value.trim_matches('"').parse() {
                variables.entry(name.to_owned()).or_insert(number);
            }
        }
    })?;
    Ok(launched_job(|name| variables.get(name).copied()))
}

/// Ids are nearly always numbered from 0 without holes, so they are positions in a list; a map takes the others.
#[derive(Debug, Default)]
pub struct Strings {
    list: Vec<Option<NameId>>,
    others: FxHashMap<i64, NameId>,
}

/// A hole in the numbering up to which the list goes on.
const MOST_MISSING: usize = 4096;

impl Strings {
    pub fn insert(&mut self, id: i64, name: NameId) {
        match usize::try_from(id) {
            Ok(at) if at < self.list.len() + MOST_MISSING => {
                if at >= self.list.len() {
                    self.list.resize(at + 1, None);
                }
                self.list[at] = Some(name);
            }
            _ => _ = self.others.insert(id, name),
        }
    }

    pub fn get(&self, id: i64) -> Option<NameId> {
        match usize::try_from(id).ok().and_then(|at| self.list.get(at)) {
            Some(Some(name)) => Some(*name),
            _ => self.others.get(&id).copied(),
        }
    }
}

#[cfg(test)]
mod strings_tests {
    use super::*;

    #[test]
    fn ids_may_be_any_number() {
        let mut strings = Strings::default();
        for (name, id) in [0, 3, -5, i64::MAX, 1 << 40, 4100, 10_000, 9_000].into_iter().enumerate() {
            strings.insert(id, NameId(name as u32));
        }
        let name_of = |id| strings.get(id).map(|n: NameId| n.0);
        assert_eq!([0, 3, -5, i64::MAX].map(name_of), [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!([1 << 40, 4100, 10_000, 9_000].map(name_of), [Some(4), Some(5), Some(6), Some(7)]);
        assert_eq!([1, 2, -1, 5000, i64::MIN].map(name_of), [None; 5]);
    }
}
