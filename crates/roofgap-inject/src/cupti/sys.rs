//! The raw shape of CUPTI: numbers, record layouts, function types.
//!
//! Only the beginning of each record is described. From CUPTI 11.8 to 13.4 (kernel records 8 to 13, copies 5 to 7, sets
//! 4 and 5, synchronisation 1 and 2, graph traces 1 and 2, devices 4 to 6) every field named here stands at the same
//! place, and versions only add fields behind them. The assertions below fix those places.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;

/// Succeeded.
pub(crate) const SUCCESS: u32 = 0;
/// Another profiler has subscribed already.
pub(crate) const MULTIPLE_SUBSCRIBERS: u32 = 39;

pub(crate) const KIND_MEMCPY: u32 = 1;
pub(crate) const KIND_MEMSET: u32 = 2;
pub(crate) const KIND_KERNEL: u32 = 3;
pub(crate) const KIND_DRIVER: u32 = 4;
pub(crate) const KIND_RUNTIME: u32 = 5;
pub(crate) const KIND_DEVICE: u32 = 8;
pub(crate) const KIND_CONCURRENT_KERNEL: u32 = 10;
pub(crate) const KIND_MEMCPY_PEER: u32 = 22;
pub(crate) const KIND_SYNCHRONIZATION: u32 = 38;
pub(crate) const KIND_GRAPH_TRACE: u32 = 51;

/// Callback domains, for the names of calls.
pub(crate) const DOMAIN_DRIVER: u32 = 1;
pub(crate) const DOMAIN_RUNTIME: u32 = 2;
/// Callback domain of contexts, streams, modules and graphs.
pub(crate) const DOMAIN_RESOURCE: u32 = 3;

/// A node was added to a graph.
pub(crate) const GRAPH_NODE_CREATED: u32 = 13;
/// A node was cloned, as a graph becomes executable.
pub(crate) const GRAPH_NODE_CLONED: u32 = 20;

/// Length of a buffer for times on the GPU, bytes (`size_t`).
pub(crate) const ATTR_DEVICE_BUFFER_SIZE: u32 = 0;
/// The buffers we hand out are zeroed already, so that CUPTI need not do it on the program's thread (`uint8_t`).
pub(crate) const ATTR_ZEROED_BUFFERS: u32 = 5;
/// Number of buffers for times on the GPU that are allocated with a context (`size_t`).
pub(crate) const ATTR_DEVICE_BUFFER_COUNT: u32 = 6;
/// Buffers for times on the GPU are in pinned host memory (`uint8_t`).
pub(crate) const ATTR_HOST_PINNED: u32 = 8;

pub(crate) type BufferRequested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(crate) type BufferCompleted = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

pub(crate) type GetVersion = unsafe extern "C" fn(*mut u32) -> u32;
pub(crate) type GetTimestamp = unsafe extern "C" fn(*mut u64) -> u32;
pub(crate) type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> u32;
pub(crate) type RegisterCallbacks = unsafe extern "C" fn(BufferRequested, BufferCompleted) -> u32;
pub(crate) type Enable = unsafe extern "C" fn(u32) -> u32;
pub(crate) type FlushAll = unsafe extern "C" fn(u32) -> u32;
pub(crate) type GetNextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;
pub(crate) type GetDropped = unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;
pub(crate) type SetAttribute = unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> u32;
pub(crate) type EnableCall = unsafe extern "C" fn(u32, u8) -> u32;
pub(crate) type GetCallbackName = unsafe extern "C" fn(u32, u32, *mut *const c_char) -> u32;
pub(crate) type GetResultString = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
pub(crate) type EnableCallback = unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> u32;
pub(crate) type SetFlag = unsafe extern "C" fn(u8) -> u32;
pub(crate) type GetGraphNodeId = unsafe extern "C" fn(*mut c_void, *mut u64) -> u32;

pub(crate) type SubscribeNamed =
    unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void, *mut SubscriberParams) -> u32;
pub(crate) type Unsubscribe = unsafe extern "C" fn(*mut c_void) -> u32;

/// Parameters of `cuptiSubscribe_v2`, as far as CUPTI 13.0 has them.
#[repr(C)]
pub(crate) struct SubscriberParams {
    pub(crate) size: usize,
    pub(crate) name: *const c_char,
    pub(crate) other_name: *mut c_char,
    pub(crate) other_length: usize,
}

/// A call is entered.
pub(crate) const SITE_ENTER: u32 = 0;
/// A call returns.
pub(crate) const SITE_EXIT: u32 = 1;

/// Arguments of a callback about a call.
#[repr(C)]
pub(crate) struct CallbackData {
    pub(crate) site: u32,
    _name: usize,
    _parameters: usize,
    pub(crate) result: *const u32,
    _symbol: usize,
    _context: usize,
    _context_id: u32,
    /// Ours to use between entry and exit.
    pub(crate) ours: *mut u64,
    pub(crate) correlation: u32,
}

/// Arguments of a callback about a resource.
#[repr(C)]
pub(crate) struct ResourceData {
    _context: usize,
    _handle: usize,
    /// For graphs, a [`GraphData`].
    pub(crate) descriptor: *const c_void,
}

/// A graph or a node of one.
#[repr(C)]
pub(crate) struct GraphData {
    _graph: usize,
    _original_graph: usize,
    pub(crate) node: *mut c_void,
    /// Set only for a clone.
    pub(crate) original_node: *mut c_void,
}

/// A kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelRecord {
    pub(crate) kind: u32,
    _cache: [u8; 2],
    pub(crate) registers: u16,
    _partitioned: [u32; 2],
    pub(crate) start: u64,
    pub(crate) end: u64,
    _completed: u64,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) local: u32,
    _local_total: u32,
    pub(crate) correlation: u32,
    _grid_id: u64,
    pub(crate) name: *const c_char,
    _reserved: usize,
    _queued: u64,
    _submitted: u64,
    _launch: [u8; 4],
    _shared_executed: u32,
    pub(crate) node: u64,
    _limit: u32,
    pub(crate) graph: u32,
}

/// A copy within a device, or between it and the host.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CopyRecord {
    _record: u32,
    pub(crate) kind: u8,
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) flags: u8,
    pub(crate) bytes: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) correlation: u32,
    _runtime_correlation: u32,
    _pad: u32,
    _reserved: usize,
    pub(crate) node: u64,
    pub(crate) graph: u32,
}

/// A copy between devices.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PeerCopyRecord {
    _record: u32,
    pub(crate) kind: u8,
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) flags: u8,
    pub(crate) bytes: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    _ends: [u32; 4],
    pub(crate) correlation: u32,
    _reserved: usize,
    pub(crate) node: u64,
    pub(crate) graph: u32,
}

/// A memory set.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SetRecord {
    _kind: u32,
    _value: u32,
    pub(crate) bytes: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) correlation: u32,
    _flags: u16,
    pub(crate) memory: u16,
    _pad: u32,
    _reserved: usize,
    pub(crate) node: u64,
    pub(crate) graph: u32,
}

/// A wait.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SyncRecord {
    _kind: u32,
    pub(crate) what: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) correlation: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    _event: u32,
}

/// A graph that ran as a whole.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GraphRecord {
    _kind: u32,
    pub(crate) correlation: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) device: u32,
    pub(crate) graph: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
}

/// A call of the runtime or the driver.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CallRecord {
    pub(crate) kind: u32,
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    _process: u32,
    pub(crate) thread: u32,
    pub(crate) correlation: u32,
    pub(crate) result: u32,
}

/// A device.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceRecord {
    _kind: u32,
    _flags: u32,
    /// In kilobytes a second.
    pub(crate) bandwidth: u64,
    pub(crate) memory: u64,
    _constant: u32,
    pub(crate) l2: u32,
    _warp: u32,
    pub(crate) clock_khz: u32,
    _engines: u32,
    pub(crate) sms: u32,
    _limits: [u32; 14],
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) id: u32,
    _ecc: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) name: *const c_char,
    pub(crate) visible: u8,
}

const _: () = {
    assert!(size_of::<usize>() == 8);
    assert!(offset_of!(CallbackData, result) == 24);
    assert!(offset_of!(CallbackData, ours) == 56);
    assert!(offset_of!(CallbackData, correlation) == 64);
    assert!(offset_of!(ResourceData, descriptor) == 16);
    assert!(offset_of!(GraphData, node) == 16);
    assert!(offset_of!(GraphData, original_node) == 24);
    assert!(offset_of!(KernelRecord, registers) == 6);
    assert!(offset_of!(KernelRecord, start) == 16);
    assert!(offset_of!(KernelRecord, device) == 40);
    assert!(offset_of!(KernelRecord, grid) == 52);
    assert!(offset_of!(KernelRecord, static_shared) == 76);
    assert!(offset_of!(KernelRecord, correlation) == 92);
    assert!(offset_of!(KernelRecord, name) == 104);
    assert!(offset_of!(KernelRecord, node) == 144);
    assert!(offset_of!(KernelRecord, graph) == 156);
    assert!(size_of::<KernelRecord>() <= 200);
    assert!(offset_of!(CopyRecord, bytes) == 8);
    assert!(offset_of!(CopyRecord, device) == 32);
    assert!(offset_of!(CopyRecord, correlation) == 44);
    assert!(offset_of!(CopyRecord, node) == 64);
    assert!(offset_of!(CopyRecord, graph) == 72);
    assert!(size_of::<CopyRecord>() <= 88);
    assert!(offset_of!(PeerCopyRecord, stream) == 40);
    assert!(offset_of!(PeerCopyRecord, correlation) == 60);
    assert!(offset_of!(PeerCopyRecord, node) == 72);
    assert!(offset_of!(PeerCopyRecord, graph) == 80);
    assert!(size_of::<PeerCopyRecord>() <= 96);
    assert!(offset_of!(SetRecord, correlation) == 44);
    assert!(offset_of!(SetRecord, memory) == 50);
    assert!(offset_of!(SetRecord, node) == 64);
    assert!(offset_of!(SetRecord, graph) == 72);
    assert!(size_of::<SetRecord>() <= 88);
    assert!(offset_of!(SyncRecord, correlation) == 24);
    assert!(offset_of!(SyncRecord, stream) == 32);
    assert!(size_of::<SyncRecord>() <= 40);
    assert!(offset_of!(GraphRecord, device) == 24);
    assert!(offset_of!(GraphRecord, stream) == 36);
    assert!(size_of::<GraphRecord>() <= 48);
    assert!(offset_of!(CallRecord, thread) == 28);
    assert!(size_of::<CallRecord>() == 40);
    assert!(offset_of!(DeviceRecord, sms) == 44);
    assert!(offset_of!(DeviceRecord, major) == 104);
    assert!(offset_of!(DeviceRecord, id) == 112);
    assert!(offset_of!(DeviceRecord, uuid) == 120);
    assert!(offset_of!(DeviceRecord, name) == 136);
    assert!(offset_of!(DeviceRecord, visible) == 144);
    assert!(size_of::<DeviceRecord>() <= 176);
};
