//! The raw interface of NVTX (version 2 libraries and version 3 headers alike).

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

/// `nvtxRangePush` and `Pop` answer this where nobody counts levels, which is also what they answer without a tool.
pub const NOT_TRACKED: c_int = -2;

pub const TABLE_CALLBACKS: u32 = 1;
pub const MODULE_CORE: u32 = 1;
pub const MODULE_CORE2: u32 = 5;

pub const MESSAGE_ASCII: i32 = 1;
pub const MESSAGE_WIDE: i32 = 2;
pub const MESSAGE_REGISTERED: i32 = 3;

/// The highest payload kind whose value stands in the attributes themselves.
pub const PAYLOAD_LAST: i32 = 6;

pub type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;
pub type Function = *const c_void;

/// Table of a client's functions.
#[repr(C)]
pub struct Callbacks {
    pub size: usize,
    pub get_table: Option<unsafe extern "C" fn(u32, *mut *mut *mut Function, *mut c_uint) -> c_int>,
}

/// Attributes of an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attributes {
    _version: u16,
    pub size: u16,
    pub category: u32,
    _color_kind: i32,
    _color: u32,
    pub payload_kind: i32,
    _reserved: i32,
    pub payload: u64,
    pub message_kind: i32,
    _pad: i32,
    pub message: *const c_char,
}

const _: () = {
    assert!(offset_of!(Attributes, payload) == 24);
    assert!(offset_of!(Attributes, message_kind) == 32);
    assert!(offset_of!(Attributes, message) == 40);
    assert!(size_of::<Attributes>() == 48);
};
