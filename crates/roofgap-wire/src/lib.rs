//! The format of a native capture (`.rgcap`), shared by the collector that writes it and the readers.
//!
//! All numbers are little endian.
//!
//! ```text
//! file    = header frame*
//! header  = "RGCAP\0" version:u16 length:u32 pid:u32 opened_ns:u64 start_ticks:u64 status crc(bytes 0..32):u32
//!           (64 bytes; `status`, bytes 32..60, is rewritten in place when writing stops)
//! status  = code:u32 errno:u32 at_ns:u64 lost:u64 crc(the 24 bytes before):u32
//! frame   = "RGFR" sequence:u32 stored:u32 raw:u32 codec:u32 crc:u32 payload[stored]
//!           (crc over sequence..codec and the payload; codec 0 is plain, 1 an lz4 block of `raw` bytes)
//! payload = record*
//! record  = tag:u8 length:varint body[length]
//! ```
//!
//! Fields may be appended to a record and tags may be added without a new version: a reader takes the fields it knows
//! and skips unknown tags. Any other change needs a new version, which older readers reject. Version 2 marks a capture with
//! [`Window`] records, outside of which GPU work was not recorded; the collector writes version 1 until it needs one.
//! Names, launch shapes and streams are written before the first record that refers to them, so a file truncated at any
//! byte reads up to its last whole frame.
//!
//! The feature `account` adds [`account`], the schema of the workload account.
//!
//! ```
//! use roofgap_wire::{End, FrameBuilder, Header, Reader, Record};
//!
//! let mut capture = Header::new(42, 1_000, 7).encode().to_vec();
//! let mut frame = FrameBuilder::new();
//! frame.put(&Record::End(End { how: 1, at: 2_000 }));
//! capture.extend_from_slice(frame.close());
//!
//! let mut reader = Reader::open(capture.as_slice())?;
//! assert_eq!(reader.header().pid, 42);
//! assert_eq!(reader.next_frame()?.into_iter().flatten().count(), 1);
//! # Ok::<(), roofgap_wire::WireError>(())
//! ```

#[cfg(feature = "account")]
pub mod account;

mod field;
mod frame;
mod header;
mod record;

/// Beginnings of the names of calls that allocate or free memory, without `cuda` or `cu`.
pub const MEMORY_CALLS: [&str; 8] =
    ["Malloc", "Free", "HostAlloc", "HostRegister", "MemAlloc", "MemFree", "MemCreate", "MemMap"];

pub use field::Text;
pub use frame::{CutReason, Ending, FrameBuilder, MAX_RAW, Reader, Records};
pub use header::{
    HEADER_LEN, Header, MAGIC, Status, StopCode, VERSION, WITH_WINDOWS, WireError, looks_like, note_path,
    older_segment,
};
pub use record::{
    Call, CallName, Category, ClockPair, CounterMetric, CounterSample, Cupti, Device, Domain, End, EventKind,
    Flush, GraphLaunch, GraphNode, HEAD_MAX, Host, Kernel, LaunchShape, LauncherVariable, Loss, Memcpy,
    Memset, Message, NvtxEnd, NvtxEvent, NvtxPop, Process, Record, RecordHead, Registered, StackFrame,
    StackSample, StreamEntry, SyncCall, Synchronization, TextEntry, Thread, ThreadName, Window, WindowCause,
};
