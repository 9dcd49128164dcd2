//! The format of a native capture (`.rgcap`): what the collector writes and the reader reads.
//!
//! It is the only thing the two share. Everything is little endian.
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
//! A record may grow at its end and new tags may appear without a new version: a reader takes the fields it knows
//! and skips tags it does not. The version changes when that is not enough, and a reader refuses what it cannot know.
//! Names (kernel names, launch shapes, places) are written before the first record that refers to them, so a file cut
//! at any byte reads up to its last whole frame.

mod format;
mod frame;
mod header;
mod nvtx;
mod reader;
mod record;

pub use format::{MAGIC, VERSION, looks_like};
pub use frame::{FrameBuilder, MAX_RAW};
pub use header::{HEADER_LEN, Header, Status, StopCode};
pub use nvtx::{
    EventHead, EventKind, HEAD_MAX, Message, encode_call, encode_event, encode_pop, encode_range_end,
    encode_thread,
};
pub use reader::{Cut, Ending, How, Reader, Records, WireError};
pub use record::{
    Call, CallName, Category, ClockPair, Copy, Cupti, Device, Domain, End, Flush, GraphLaunch, Kernel,
    LaunchShape, Loss, NvtxEnd, NvtxEvent, NvtxPop, Place, Process, Record, Registered, Set, Sync, Text,
    TextEntry, Thread, ThreadName,
};
