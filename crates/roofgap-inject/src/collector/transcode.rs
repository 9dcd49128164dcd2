//! Converts records of CUPTI to records of the capture: pointers become ids, and repeated values are written once.

use std::ffi::{CStr, c_char};

use super::gpu;
use crate::cupti::{Api, sys};
use roofgap_wire::{
    Call, CallName, Device, FrameBuilder, GraphLaunch, Kernel, LaunchShape, Memcpy, Memset, Record,
    StreamEntry, Text, TextEntry,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// Number of records converted before the rings are drained again.
const AT_ONCE: usize = 1024;

/// Largest number of names or shapes that are kept. A program that never repeats itself then uses no more memory.
const MOST: usize = 1 << 18;

/// State of the conversion.
#[derive(Default)]
pub struct Transcoder {
    texts: FxHashMap<Box<[u8]>, u32>,
    by_address: FxHashMap<usize, (u32, Box<[u8]>)>,
    /// Launch shapes without their ids.
    shapes: FxHashMap<LaunchShape, u32>,
    streams: FxHashMap<[u32; 3], u32>,
    call_names: FxHashSet<u32>,
    devices: Vec<u32>,
    /// Encoded descriptions of the devices.
    device_records: Vec<u8>,
    /// Ids given so far; they stay unique when a table is cleared.
    next_text: u32,
    next_shape: u32,
    devices_used: Vec<u32>,
    devices_asked: usize,
    /// Number of kernels without times.
    pub untimed: u64,
    /// Number of records of an unexpected kind.
    pub strange: u64,
}

/// Writes a record of a stream: the fields common to all, then the given ones.
macro_rules! stream_record {
    ($self:ident, $frame:ident, $record:ident, $kind:ident { $($field:ident),* }) => {{
        let stream_id = $self.stream_id($record.device, $record.context, $record.stream, $frame);
        $frame.put(&Record::$kind($kind {
            stream_id,
            correlation: $record.correlation,
            graph: $record.graph,
            start: $record.start,
            end: $record.end,
            $($field: $record.$field),*
        }));
    }};
}

impl Transcoder {
    /// Converts the next records of a buffer after `last`; returns the last one converted, null at the end.
    ///
    /// # Safety
    /// `buffer` must be one CUPTI completed with `valid` bytes, and `last` null or what this returned before.
    pub unsafe fn some(
        &mut self,
        api: &Api,
        (buffer, valid): (*mut u8, usize),
        last: *mut u8,
        frame: &mut FrameBuilder,
    ) -> *mut u8 {
        let mut record = last;
        for _ in 0..AT_ONCE {
            // SAFETY: as the caller promises, and `record` is null or came from the line itself.
            unsafe {
                record = api.next_record(buffer, valid, record);
                if record.is_null() {
                    break;
                }
                self.record(api, record, frame);
            }
        }
        record
    }

    /// Converts the record at `record`.
    ///
    /// # Safety
    /// It must point to a record of CUPTI, whose first word is its kind.
    unsafe fn record(&mut self, api: &Api, record: *const u8, frame: &mut FrameBuilder) {
        // SAFETY: every record begins with its kind, and the layouts in `sys` are the beginnings of those kinds.
        unsafe {
            match record.cast::<u32>().read_unaligned() {
                sys::KIND_CONCURRENT_KERNEL | sys::KIND_KERNEL => {
                    self.kernel(&record.cast::<sys::KernelRecord>().read_unaligned(), frame);
                }
                sys::KIND_RUNTIME | sys::KIND_DRIVER => {
                    self.call(api, &record.cast::<sys::CallRecord>().read_unaligned(), frame);
                }
                sys::KIND_MEMCPY => {
                    let record = record.cast::<sys::CopyRecord>().read_unaligned();
                    stream_record!(self, frame, record, Memcpy { node, bytes, kind, from, to, flags });
                }
                sys::KIND_MEMCPY_PEER => {
                    let record = record.cast::<sys::PeerCopyRecord>().read_unaligned();
                    stream_record!(self, frame, record, Memcpy { node, bytes, kind, from, to, flags });
                }
                sys::KIND_MEMSET => {
                    let record = record.cast::<sys::SetRecord>().read_unaligned();
                    stream_record!(self, frame, record, Memset { node, bytes, memory });
                }
                sys::KIND_GRAPH_TRACE => {
                    let record = record.cast::<sys::GraphRecord>().read_unaligned();
                    stream_record!(self, frame, record, GraphLaunch {});
                }
                sys::KIND_DEVICE => self.device(&record.cast::<sys::DeviceRecord>().read_unaligned(), frame),
                _ => self.strange += 1,
            }
        }
    }

    fn kernel(&mut self, record: &sys::KernelRecord, frame: &mut FrameBuilder) {
        if record.start == 0 || record.end == 0 {
            self.untimed += 1;
        }
        let shape = self.shape(record, frame);
        let stream_id = self.stream_id(record.device, record.context, record.stream, frame);
        frame.put(&Record::Kernel(Kernel {
            shape,
            stream_id,
            correlation: record.correlation,
            graph: record.graph,
            start: record.start,
            end: record.end,
            node: record.node,
        }));
    }

    fn shape(&mut self, record: &sys::KernelRecord, frame: &mut FrameBuilder) -> u32 {
        let name = self.text(record.name, frame);
        let shape = LaunchShape {
            id: 0,
            name,
            grid: record.grid,
            block: record.block,
            registers: u32::from(record.registers),
            static_shared: record.static_shared,
            dynamic_shared: record.dynamic_shared,
            local: record.local,
        };
        if self.shapes.len() >= MOST {
            self.shapes.clear();
        }
        let next_shape = &mut self.next_shape;
        *self.shapes.entry(shape).or_insert_with(|| {
            let id = *next_shape;
            *next_shape = id.wrapping_add(1);
            frame.put(&Record::LaunchShape(LaunchShape { id, ..shape }));
            id
        })
    }

    /// Returns the id of a text. An unloaded module may leave its address to another text, so the content is compared.
    fn text(&mut self, address: *const c_char, frame: &mut FrameBuilder) -> u32 {
        let text: &[u8] = if address.is_null() {
            b"(no name)"
        } else {
            // SAFETY: CUPTI keeps the names of the kernels it reports.
            unsafe { CStr::from_ptr(address) }.to_bytes()
        };
        if let Some((id, known)) = self.by_address.get(&(address as usize))
            && **known == *text
        {
            return *id;
        }
        if self.texts.len() >= MOST || self.by_address.len() >= MOST {
            self.texts.clear();
            self.by_address.clear();
            self.shapes.clear();
        }
        let next_text = &mut self.next_text;
        let id = *self.texts.entry(text.into()).or_insert_with(|| {
            let next = *next_text;
            *next_text = next.wrapping_add(1);
            frame.put(&Record::TextEntry(TextEntry { id: next, text: Text(text) }));
            next
        });
        self.by_address.insert(address as usize, (id, text.into()));
        id
    }

    fn stream_id(&mut self, device: u32, context: u32, stream: u32, frame: &mut FrameBuilder) -> u32 {
        let next = self.streams.len() as u32;
        let used = &mut self.devices_used;
        *self.streams.entry([device, context, stream]).or_insert_with(|| {
            if !used.contains(&device) {
                used.push(device);
            }
            frame.put(&Record::StreamEntry(StreamEntry { id: next, device, context, stream }));
            next
        })
    }

    fn call(&mut self, api: &Api, record: &sys::CallRecord, frame: &mut FrameBuilder) {
        let domain = match record.kind {
            sys::KIND_DRIVER => sys::DOMAIN_DRIVER,
            _ => sys::DOMAIN_RUNTIME,
        };
        let number = gpu::call_key(domain, record.number);
        if self.call_names.insert(number)
            && let Some(name) = api.call_name(domain, record.number)
        {
            frame.put(&Record::CallName(CallName { api: number, name: Text(name) }));
        }
        frame.put(&Record::Call(Call {
            api: number,
            thread: record.thread,
            correlation: record.correlation,
            result: record.result,
            start: record.start,
            end: record.end,
        }));
    }

    fn device(&mut self, record: &sys::DeviceRecord, frame: &mut FrameBuilder) {
        if self.devices.contains(&record.id) {
            return;
        }
        self.devices.push(record.id);
        let name: &[u8] = if record.name.is_null() {
            b""
        } else {
            // SAFETY: CUPTI keeps the names of devices.
            unsafe { CStr::from_ptr(record.name) }.to_bytes()
        };
        let device = Record::Device(Device {
            id: record.id,
            visible: record.visible,
            source: 0,
            major: record.major,
            minor: record.minor,
            sms: record.sms,
            clock_khz: record.clock_khz,
            l2_bytes: u64::from(record.l2),
            memory_bytes: record.memory,
            bandwidth: record.bandwidth.saturating_mul(1_000),
            name: Text(name),
            uuid: Text(&record.uuid),
        });
        device.encode(&mut self.device_records);
        frame.put(&device);
    }

    /// Writes everything again that later records refer to, for a new file.
    pub fn define_again(&mut self, api: &Api, mut put: impl FnMut(&Record<'_>)) {
        for (text, &id) in &self.texts {
            put(&Record::TextEntry(TextEntry { id, text: Text(text) }));
        }
        for (shape, &id) in &self.shapes {
            put(&Record::LaunchShape(LaunchShape { id, ..*shape }));
        }
        for (&[device, context, stream], &id) in &self.streams {
            put(&Record::StreamEntry(StreamEntry { id, device, context, stream }));
        }
        for &number in &self.call_names {
            let (domain, plain) = gpu::split_call_key(number);
            if let Some(name) = api.call_name(domain, plain) {
                put(&Record::CallName(CallName { api: number, name: Text(name) }));
            }
        }
        self.devices_asked = 0;
    }

    /// Returns the encoded descriptions of the devices that CUPTI gave.
    pub fn device_records(&self) -> &[u8] {
        &self.device_records
    }

    /// Describes the devices in use through the driver. CUPTI describes all devices of the machine by its own numbers, while
    /// work carries the number that the program sees.
    pub fn describe_devices(&mut self, frame: &mut FrameBuilder) {
        while let Some(id) = self.devices_used.get(self.devices_asked).copied() {
            self.devices_asked += 1;
            gpu::describe_device(id, |record| frame.put(&record));
        }
    }
}
