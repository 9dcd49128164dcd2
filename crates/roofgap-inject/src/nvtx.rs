//! NVTX annotations of the program: [`attach`] puts the functions that NVTX calls into the tables of one NVTX client. Each shared object
//! of the program that uses NVTX is a client of its own and calls us once. The raw interface (version 2 libraries and version 3 headers
//! alike) and the texts that the program passes are below.

use crate::collector::annotations::{self, Named};
use libc::wchar_t;
use roofgap_wire::{EventKind, Message, NvtxEvent, Text};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Attaches to the client; whether any function was put in place.
///
/// # Safety
/// `get_table` must be the function that NVTX passed to the entry point.
pub unsafe fn attach(get_table: GetExportTable) -> bool {
    // SAFETY: as the caller promises; the answer is null or a table that says how long it is.
    unsafe {
        let callbacks = get_table(TABLE_CALLBACKS).cast::<Callbacks>();
        if callbacks.is_null() || (*callbacks).size < size_of::<Callbacks>() {
            return false;
        }
        let Some(get) = (*callbacks).get_table else {
            return false;
        };
        let mut placed = 0;
        for module in [MODULE_CORE, MODULE_CORE2] {
            let (mut table, mut length): (*mut *mut Function, c_uint) = (ptr::null_mut(), 0);
            if get(module, &raw mut table, &raw mut length) == 0 || table.is_null() {
                continue;
            }
            for (at, function) in of_module(module) {
                if at >= length as usize {
                    continue;
                }
                let place = *table.add(at);
                if !place.is_null() {
                    *place = function;
                    placed += 1;
                }
            }
        }
        placed > 0
    }
}

type Handle = *mut c_void;

/// Runs `body`; a fault in it ends here.
fn guard<R: Default>(body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_default()
}

/// Makes an event without what its thread adds to it: kind, thread, time and range.
fn event(domain: u32, message: Message<'_>) -> NvtxEvent<'_> {
    let kind = EventKind::Mark;
    NvtxEvent { kind, tid: 0, domain, at: 0, range: 0, category: 0, payload_kind: 0, payload: 0, message }
}

fn plain(text: &[u8]) -> NvtxEvent<'_> {
    event(0, Message::Inline(Text(text)))
}

/// Handles are numbers that travel as pointers.
fn number(handle: Handle) -> u32 {
    handle as usize as u32
}

fn handle(number: u32) -> Handle {
    number as usize as Handle
}

/// Calls `body` with what the attributes say.
///
/// # Safety
/// `attributes` must be null or point to attributes as NVTX defines them.
unsafe fn with_event<R>(
    domain: u32,
    attributes: *const Attributes,
    body: impl FnOnce(&NvtxEvent<'_>) -> R,
) -> R {
    let mut event = event(domain, Message::None);
    if attributes.is_null() {
        return body(&event);
    }
    // SAFETY: the first word of the attributes says how long they are; shorter ones are of no version we know.
    let attributes = unsafe {
        if usize::from((*attributes).size) < size_of::<Attributes>() {
            return body(&event);
        }
        *attributes
    };
    event.category = attributes.category;
    if (1..=PAYLOAD_LAST).contains(&attributes.payload_kind) {
        event.payload_kind = attributes.payload_kind as u8;
        event.payload = attributes.payload;
    }
    let wide;
    event.message = match attributes.message_kind {
        // SAFETY: the kind says that it is a C string.
        MESSAGE_ASCII => Message::Inline(Text(unsafe { narrow(attributes.message) })),
        MESSAGE_WIDE => {
            // SAFETY: the kind says that it is a wide string.
            wide = unsafe { Wide::new(attributes.message.cast()) };
            Message::Inline(Text(wide.as_bytes()))
        }
        MESSAGE_REGISTERED => Message::Registered(attributes.message as usize as u32),
        _ => Message::None,
    };
    body(&event)
}

/// Declares the handlers of modules, each with its position in the table of its module; a handler of texts has two, for narrow and wide
/// ones. Their bodies run guarded, and may use what NVTX promises about its arguments.
macro_rules! handlers {
    ($($module:ident {
        $( $at:literal fn $name:ident ( $($arg:ident : $type:ty),* ) $(-> $out:ty)? $body:block )*
        $( ($narrow_at:literal, $wide_at:literal) fn $of_text:ident [$text:ident] ( $($before:ident : $before_type:ty),* ) $(-> $answer:ty)? $with_text:block )*
    })*) => {
        $($(
            #[allow(unused_unsafe, reason = "some bodies need no promise")]
            unsafe extern "C" fn $name($($arg: $type),*) $(-> $out)? {
                // SAFETY: NVTX passes valid arguments to its functions and on to us.
                guard(move || unsafe { $body })
            }
        )*
        $(
            unsafe extern "C" fn $of_text<T: RawText>($($before: $before_type,)* text: *const T) $(-> $answer)? {
                // SAFETY: NVTX passes texts that end.
                guard(move || unsafe { T::with(text, |$text| $with_text) })
            }
        )*)*

        /// Returns the handlers of a module by their position in its table. Missing ones stay as they are.
        pub fn of_module(module: u32) -> Vec<(usize, Function)> {
            match module {
                $($module => vec![
                    $(($at, $name as Function),)*
                    $(($narrow_at, $of_text::<c_char> as Function), ($wide_at, $of_text::<wchar_t> as Function),)*
                ],)*
                _ => Vec::new(),
            }
        }
    };
}

handlers! {
    MODULE_CORE {
        1 fn mark_ex(attributes: *const Attributes) { with_event(0, attributes, annotations::mark) }
        4 fn start_ex(attributes: *const Attributes) -> u64 { with_event(0, attributes, annotations::start) }
        7 fn end(range: u64) { annotations::end(range) }
        8 fn push_ex(attributes: *const Attributes) -> c_int {
            with_event(0, attributes, annotations::push);
            NOT_TRACKED
        }
        11 fn pop() -> c_int { annotations::pop(0); NOT_TRACKED }
        (2, 3) fn mark[text]() { annotations::mark(&plain(text)) }
        (5, 6) fn start[text]() -> u64 { annotations::start(&plain(text)) }
        (9, 10) fn push[text]() -> c_int { annotations::push(&plain(text)); NOT_TRACKED }
        (12, 13) fn category[text](id: u32) { annotations::add_name(Named::Category { id, domain: 0 }, text) }
        (14, 15) fn thread[text](tid: u32) { annotations::add_name(Named::Thread { tid }, text) }
    }
    MODULE_CORE2 {
        1 fn domain_mark(domain: Handle, attributes: *const Attributes) {
            with_event(number(domain), attributes, annotations::mark)
        }
        2 fn domain_start(domain: Handle, attributes: *const Attributes) -> u64 {
            with_event(number(domain), attributes, annotations::start)
        }
        3 fn domain_end(_domain: Handle, range: u64) { annotations::end(range) }
        4 fn domain_push(domain: Handle, attributes: *const Attributes) -> c_int {
            with_event(number(domain), attributes, annotations::push);
            NOT_TRACKED
        }
        5 fn domain_pop(domain: Handle) -> c_int { annotations::pop(number(domain)); NOT_TRACKED }
        (8, 9) fn domain_category[text](domain: Handle, id: u32) {
            annotations::add_name(Named::Category { id, domain: number(domain) }, text)
        }
        (10, 11) fn register[text](domain: Handle) -> Answer { Answer(handle(annotations::add_string(number(domain), text))) }
        (12, 13) fn domain_create[text]() -> Answer { Answer(handle(annotations::add_domain(text))) }
    }
}

/// A letter of a C string: narrow or wide.
trait RawText: Sized {
    /// Calls `body` with the text as UTF-8.
    ///
    /// # Safety
    /// `text` must be null or end in a NUL of its kind.
    unsafe fn with<R>(text: *const Self, body: impl FnOnce(&[u8]) -> R) -> R;
}

impl RawText for c_char {
    unsafe fn with<R>(text: *const Self, body: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: as the caller promises.
        body(unsafe { narrow(text) })
    }
}

impl RawText for wchar_t {
    unsafe fn with<R>(text: *const Self, body: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: as the caller promises.
        body(unsafe { Wide::new(text) }.as_bytes())
    }
}

/// A handle as an answer: null when something went wrong.
#[repr(transparent)]
struct Answer(Handle);

impl Default for Answer {
    fn default() -> Self {
        Self(std::ptr::null_mut())
    }
}

/// Version of NVTX whose structures these are.
pub const NVTX_VERSION: u16 = 3;

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
    version: u16,
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

impl Attributes {
    /// Attributes with a text alone.
    pub fn of_text(message: *const c_char) -> Self {
        // SAFETY: every field may be zero.
        let none: Self = unsafe { std::mem::zeroed() };
        let (size, message_kind) = (size_of::<Self>() as u16, MESSAGE_ASCII);
        Self { version: NVTX_VERSION, size, message_kind, message, ..none }
    }
}

const _: () = {
    assert!(offset_of!(Attributes, payload) == 24);
    assert!(offset_of!(Attributes, message_kind) == 32);
    assert!(offset_of!(Attributes, message) == 40);
    assert!(size_of::<Attributes>() == 48);
};

/// The longest text that is kept.
pub const LONGEST: usize = 4096;

/// Returns the bytes of a C string.
///
/// # Safety
/// `text` must be null or end in NUL and live through `'a`.
pub unsafe fn narrow<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: as the caller promises; nothing beyond the NUL is looked at.
    unsafe {
        let length = libc::strnlen(text, LONGEST);
        std::slice::from_raw_parts(text.cast(), length)
    }
}

/// A wide text as UTF-8, without allocating.
pub struct Wide {
    bytes: [u8; 512],
    length: usize,
}

impl Wide {
    /// # Safety
    /// `text` must be null or end in a wide NUL.
    pub unsafe fn new(text: *const wchar_t) -> Self {
        let mut wide = Self { bytes: [0; 512], length: 0 };
        if text.is_null() {
            return wide;
        }
        for at in 0.. {
            // SAFETY: stops at the NUL.
            let unit = unsafe { *text.add(at) };
            if unit == 0 {
                break;
            }
            let letter = char::from_u32(unit as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            let Some(place) = wide.bytes.get_mut(wide.length..wide.length + letter.len_utf8()) else {
                break;
            };
            letter.encode_utf8(place);
            wide.length += letter.len_utf8();
        }
        wide
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_texts_become_utf8() {
        let text: Vec<wchar_t> = "d\u{e9}code \u{1f680}\0".chars().map(|letter| letter as wchar_t).collect();
        // SAFETY: it ends in NUL.
        let wide = unsafe { Wide::new(text.as_ptr()) };
        assert_eq!(wide.as_bytes(), "d\u{e9}code \u{1f680}".as_bytes());
    }

    #[test]
    fn long_and_missing_texts_are_no_trouble() {
        let mut text: Vec<wchar_t> = vec!['\u{e9}' as wchar_t; 2000];
        text.push(0);
        // SAFETY: it ends in NUL.
        let wide = unsafe { Wide::new(text.as_ptr()) };
        assert!(std::str::from_utf8(wide.as_bytes()).is_ok());
        let mut text = vec![b'a'; 2 * LONGEST];
        text.push(0);
        // SAFETY: null is allowed, and the other ends in NUL.
        unsafe {
            assert!(Wide::new(std::ptr::null()).as_bytes().is_empty());
            assert!(narrow(std::ptr::null()).is_empty());
            assert_eq!(narrow(text.as_ptr().cast()).len(), LONGEST);
        }
    }
}
