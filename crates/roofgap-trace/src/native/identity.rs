//! Threads and devices behind the numbers of a capture.
//!
//! Rows are pushed with the numbers of the capture in place of ids and corrected at the end, because the records that
//! explain the numbers may come after the rows that use them.

use crate::{Device, DeviceId, LossKind, ProcessId, ThreadId, Trace};
use roofgap_base::text::hex;
use roofgap_wire as wire;
use rustc_hash::FxHashMap;

/// Threads and devices of one process.
#[derive(Debug, Default)]
pub struct Identity {
    /// By pthread handle: since when it means which thread.
    handles: FxHashMap<u32, Vec<(u64, u32)>>,
    names: FxHashMap<u32, (bool, String)>,
    threads: FxHashMap<u32, ThreadId>,
    /// By the number the program uses.
    seen_by_program: FxHashMap<u32, Device>,
    /// All of the machine's.
    of_machine: Vec<Device>,
}

impl Identity {
    pub fn see_thread(&mut self, thread: &wire::Thread) {
        self.handles.entry(thread.handle).or_default().push((thread.at, thread.tid));
    }

    /// Names a thread. A name from the program replaces the operating system's.
    pub fn name_thread(&mut self, name: &wire::ThreadName<'_>) {
        let given = name.given != 0;
        let known = self.names.get(&name.tid).is_some_and(|known| known.0 && !given);
        if !known {
            let text = name.name.to_str().into_owned();
            self.names.insert(name.tid, (given, text));
        }
    }

    pub fn see_device(&mut self, device: &wire::Device<'_>) {
        let some = |value: u64| (value > 0).then_some(value);
        let name = device.name.to_str().into_owned();
        let facts = Device {
            number: device.id,
            name: (!name.is_empty()).then_some(name),
            compute_capability: (device.major > 0).then_some((device.major, device.minor)),
            sms: (device.sms > 0).then_some(device.sms),
            memory_bytes: some(device.memory_bytes),
            bandwidth_bytes_per_s: some(device.bandwidth),
            clock_hz: some(u64::from(device.clock_khz) * 1_000),
            l2_bytes: some(device.l2_bytes),
            uuid: uuid(device.uuid.0),
        };
        // The driver numbers devices as the program sees them; CUPTI numbers those of the machine.
        match device.source {
            1 => drop(self.seen_by_program.insert(device.id, facts)),
            _ => self.of_machine.push(facts),
        }
    }

    /// Returns the facts of the device that the program calls `number`.
    pub fn device(&self, number: u32) -> Option<Device> {
        let Some(told) = self.seen_by_program.get(&number) else {
            return self.of_machine.iter().find(|device| device.number == number).cloned();
        };
        let same = |device: &&Device| device.uuid.is_some() && device.uuid == told.uuid;
        let more = self.of_machine.iter().find(same).cloned().unwrap_or_default();
        Some(Device {
            number,
            name: told.name.clone().or(more.name),
            compute_capability: told.compute_capability.or(more.compute_capability),
            sms: told.sms.or(more.sms),
            memory_bytes: told.memory_bytes.or(more.memory_bytes),
            bandwidth_bytes_per_s: told.bandwidth_bytes_per_s.or(more.bandwidth_bytes_per_s),
            clock_hz: told.clock_hz.or(more.clock_hz),
            l2_bytes: told.l2_bytes.or(more.l2_bytes),
            uuid: told.uuid.clone(),
        })
    }

    /// Returns the thread of a thread id.
    pub fn thread(&mut self, process: ProcessId, tid: u32, trace: &mut Trace) -> ThreadId {
        *self.threads.entry(tid).or_insert_with(|| {
            let name = self.names.get(&tid).map_or("", |name| name.1.as_str());
            trace.add_thread(process, tid, name)
        })
    }

    /// Puts thread ids in place of the handles in the calls from row `first` on.
    pub fn settle_threads(&mut self, process: ProcessId, first: usize, trace: &mut Trace) {
        for seen in self.handles.values_mut() {
            seen.sort_unstable();
        }
        let mut column = std::mem::take(&mut trace.calls.thread);
        for (row, thread) in column.iter_mut().enumerate().skip(first) {
            let start = trace.calls.start.get(row).map_or(0, |&start| start.max(0) as u64);
            let tid = self.tid_of(thread.0, start);
            *thread = self.thread(process, tid, trace);
        }
        trace.calls.thread = column;
    }

    /// Returns the thread of a handle at a time: the last one registered before it, else the first. A thread without annotations
    /// has only its handle, which serves as its id.
    fn tid_of(&self, handle: u32, at: u64) -> u32 {
        let Some(seen) = self.handles.get(&handle) else {
            return handle;
        };
        let before = seen.partition_point(|entry| entry.0 <= at);
        seen.get(before.saturating_sub(1)).map_or(handle, |entry| entry.1)
    }

    /// Puts device ids in place of the numbers in the operations from row `first` on. Returns the ids by number.
    pub fn settle_devices(&self, first: usize, trace: &mut Trace) -> FxHashMap<u16, DeviceId> {
        let mut column = std::mem::take(&mut trace.ops.device);
        let mut known: FxHashMap<u16, (DeviceId, bool)> = FxHashMap::default();
        let mut unknown = 0;
        for device in column.iter_mut().skip(first) {
            let number = device.0;
            let (id, described) = *known.entry(number).or_insert_with(|| {
                let number = u32::from(number);
                let facts = self.device(number);
                let described = facts.is_some();
                let bare = || Device { number, ..Device::default() };
                (trace.add_device(facts.unwrap_or_else(bare)), described)
            });
            *device = id;
            unknown += u64::from(!described);
        }
        trace.ops.device = column;
        trace.losses.add(LossKind::OpNoDevice, unknown);
        known.into_iter().map(|(number, (id, _))| (number, id)).collect()
    }
}

/// Formats a UUID as the tools print it; `None` unless it has sixteen bytes and is not zero.
fn uuid(bytes: &[u8]) -> Option<String> {
    if bytes.len() != 16 || bytes.iter().all(|&byte| byte == 0) {
        return None;
    }
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| bytes.get(part).map(hex).unwrap_or_default());
    Some(parts.join("-"))
}
