//! The raw shape of CUPTI: numbers, record layouts, function types.
//!
//! Only the beginning of each record is described. From CUPTI 11.8 to 13.4 (kernel records 8 to 13, copies 5 to 7, sets
//! 4 and 5, graph traces 1 and 2, devices 4 to 6) every field named here stands at the same
//! place, and versions only add fields behind them. The assertions below fix those places.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;

/// Succeeded.
pub const SUCCESS: u32 = 0;
/// Another profiler has subscribed already.
pub const MULTIPLE_SUBSCRIBERS: u32 = 39;

pub const KIND_MEMCPY: u32 = 1;
pub const KIND_MEMSET: u32 = 2;
pub const KIND_KERNEL: u32 = 3;
pub const KIND_DRIVER: u32 = 4;
pub const KIND_RUNTIME: u32 = 5;
pub const KIND_DEVICE: u32 = 8;
pub const KIND_CONCURRENT_KERNEL: u32 = 10;
pub const KIND_MEMCPY_PEER: u32 = 22;
pub const KIND_GRAPH_TRACE: u32 = 51;

/// Callback domains, for the names of calls.
pub const DOMAIN_DRIVER: u32 = 1;
pub const DOMAIN_RUNTIME: u32 = 2;
/// Callback domain of contexts, streams, modules and graphs.
pub const DOMAIN_RESOURCE: u32 = 3;

/// A node was added to a graph.
pub const GRAPH_NODE_CREATED: u32 = 13;
/// A node was cloned, as a graph becomes executable.
pub const GRAPH_NODE_CLONED: u32 = 20;

/// The buffers we hand out are zeroed already, so that CUPTI need not do it on the program's thread (`uint8_t`).
pub const ATTR_ZEROED_BUFFERS: u32 = 5;

pub type BufferRequested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub type BufferCompleted = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
pub type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

pub type GetVersion = unsafe extern "C" fn(*mut u32) -> u32;
pub type GetResultString = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;

/// Parameters of `cuptiSubscribe_v2`, as far as CUPTI 13.0 has them.
#[repr(C)]
pub struct SubscriberParams {
    pub size: usize,
    pub name: *const c_char,
    pub other_name: *mut c_char,
    pub other_length: usize,
}

/// A call is entered.
pub const SITE_ENTER: u32 = 0;
/// A call returns.
pub const SITE_EXIT: u32 = 1;

/// Arguments of a callback about a call.
#[repr(C)]
pub struct CallbackData {
    pub site: u32,
    _name: usize,
    /// The arguments of the call, one behind the other.
    pub parameters: *const usize,
    pub result: *const u32,
    _symbol: usize,
    pub context: *mut c_void,
    pub context_id: u32,
    /// Ours to use between entry and exit.
    pub ours: *mut u64,
    pub correlation: u32,
}

/// Arguments of a callback about a resource.
#[repr(C)]
pub struct ResourceData {
    _context: usize,
    _handle: usize,
    /// For graphs, a [`GraphData`].
    pub descriptor: *const c_void,
}

/// A graph or a node of one.
#[repr(C)]
pub struct GraphData {
    _graph: usize,
    _original_graph: usize,
    pub node: *mut c_void,
    /// Set only for a clone.
    pub original_node: *mut c_void,
}

/// A kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelRecord {
    pub kind: u32,
    _cache: [u8; 2],
    pub registers: u16,
    _partitioned: [u32; 2],
    pub start: u64,
    pub end: u64,
    _completed: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub static_shared: u32,
    pub dynamic_shared: u32,
    pub local: u32,
    _local_total: u32,
    pub correlation: u32,
    _grid_id: u64,
    pub name: *const c_char,
    _reserved: usize,
    _queued: u64,
    _submitted: u64,
    _launch: [u8; 4],
    _shared_executed: u32,
    pub node: u64,
    _limit: u32,
    pub graph: u32,
}

/// A copy within a device, or between it and the host.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CopyRecord {
    _record: u32,
    pub kind: u8,
    pub from: u8,
    pub to: u8,
    pub flags: u8,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
    _runtime_correlation: u32,
    _pad: u32,
    _reserved: usize,
    pub node: u64,
    pub graph: u32,
}

/// A copy between devices.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeerCopyRecord {
    _record: u32,
    pub kind: u8,
    pub from: u8,
    pub to: u8,
    pub flags: u8,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    _ends: [u32; 4],
    pub correlation: u32,
    _reserved: usize,
    pub node: u64,
    pub graph: u32,
}

/// A memory set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SetRecord {
    _kind: u32,
    _value: u32,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
    _flags: u16,
    pub memory: u16,
    _pad: u32,
    _reserved: usize,
    pub node: u64,
    pub graph: u32,
}

/// A graph that ran as a whole.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GraphRecord {
    _kind: u32,
    pub correlation: u32,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub graph: u32,
    pub context: u32,
    pub stream: u32,
}

/// A call of the runtime or the driver.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CallRecord {
    pub kind: u32,
    pub number: u32,
    pub start: u64,
    pub end: u64,
    _process: u32,
    pub thread: u32,
    pub correlation: u32,
    pub result: u32,
}

/// A device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceRecord {
    _kind: u32,
    _flags: u32,
    /// In kilobytes a second.
    pub bandwidth: u64,
    pub memory: u64,
    _constant: u32,
    pub l2: u32,
    _warp: u32,
    pub clock_khz: u32,
    _engines: u32,
    pub sms: u32,
    _limits: [u32; 14],
    pub major: u32,
    pub minor: u32,
    pub id: u32,
    _ecc: u32,
    pub uuid: [u8; 16],
    pub name: *const c_char,
    pub visible: u8,
}

/// Fixes the places of fields, and the most bytes of a record.
macro_rules! layouts {
    ($($record:ident $(<= $size:literal)? { $($field:ident: $at:literal),* })*) => {
        const _: () = {
            assert!(size_of::<usize>() == 8);
            $($(assert!(size_of::<$record>() <= $size);)?
            $(assert!(offset_of!($record, $field) == $at);)*)*
        };
    };
}

layouts! {
    CallbackData { parameters: 16, result: 24, context: 40, context_id: 48, ours: 56, correlation: 64 }
    ResourceData { descriptor: 16 }
    GraphData { node: 16, original_node: 24 }
    KernelRecord <= 200 {
        registers: 6, start: 16, device: 40, grid: 52, static_shared: 76, correlation: 92, name: 104, node: 144, graph: 156
    }
    CopyRecord <= 88 { bytes: 8, device: 32, correlation: 44, node: 64, graph: 72 }
    PeerCopyRecord <= 96 { stream: 40, correlation: 60, node: 72, graph: 80 }
    SetRecord <= 88 { correlation: 44, memory: 50, node: 64, graph: 72 }
    GraphRecord <= 48 { device: 24, stream: 36 }
    CallRecord <= 40 { thread: 28, result: 36 }
    DeviceRecord <= 176 { sms: 44, major: 104, id: 112, uuid: 120, name: 136, visible: 144 }
}
