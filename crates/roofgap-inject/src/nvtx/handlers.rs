//! The functions NVTX calls. Each only gathers its arguments; none lets a fault of ours into the program.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::wchar_t;

use super::sys::{self, Attributes, Function, NOT_TRACKED};
use super::text::{Wide, narrow};
use crate::collector::names::{self, Named};
use crate::collector::thread::{self, Event};
use roofgap_wire::{Message, Text};

type Handle = *mut c_void;

/// Runs `body`; a fault in it ends here.
fn guard<R: Default>(body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_default()
}

fn plain(text: &[u8]) -> Event<'_> {
    Event { domain: 0, category: 0, payload_kind: 0, payload: 0, message: Message::Inline(Text(text)) }
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
unsafe fn with_event<R>(domain: u32, attributes: *const Attributes, body: impl FnOnce(&Event<'_>) -> R) -> R {
    let mut event = Event { domain, category: 0, payload_kind: 0, payload: 0, message: Message::None };
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
    if (1..=sys::PAYLOAD_LAST).contains(&attributes.payload_kind) {
        event.payload_kind = attributes.payload_kind as u8;
        event.payload = attributes.payload;
    }
    match attributes.message_kind {
        sys::MESSAGE_ASCII => {
            // SAFETY: the kind says that it is a C string.
            event.message = Message::Inline(Text(unsafe { narrow(attributes.message) }));
            body(&event)
        }
        sys::MESSAGE_WIDE => {
            // SAFETY: the kind says that it is a wide string.
            let wide = unsafe { Wide::new(attributes.message.cast()) };
            event.message = Message::Inline(Text(wide.as_bytes()));
            body(&event)
        }
        sys::MESSAGE_REGISTERED => {
            event.message = Message::Registered(attributes.message as usize as u32);
            body(&event)
        }
        _ => body(&event),
    }
}

/// Declares handlers: their bodies run guarded, and may use what NVTX promises about its arguments.
macro_rules! handlers {
    ($( fn $name:ident ( $($arg:ident : $type:ty),* ) $(-> $out:ty)? $body:block )*) => {$(
        #[allow(unused_unsafe, reason = "some bodies need no promise")]
        unsafe extern "C" fn $name($($arg: $type),*) $(-> $out)? {
            // SAFETY: NVTX passes valid arguments to its functions and on to us.
            guard(move || unsafe { $body })
        }
    )*};
}

handlers! {
    fn mark_ex(attributes: *const Attributes) { with_event(0, attributes, thread::mark) }
    fn mark_a(text: *const c_char) { thread::mark(&plain(narrow(text))) }
    fn mark_w(text: *const wchar_t) { thread::mark(&plain(Wide::new(text).as_bytes())) }
    fn start_ex(attributes: *const Attributes) -> u64 { with_event(0, attributes, thread::start) }
    fn start_a(text: *const c_char) -> u64 { thread::start(&plain(narrow(text))) }
    fn start_w(text: *const wchar_t) -> u64 { thread::start(&plain(Wide::new(text).as_bytes())) }
    fn end(range: u64) { thread::end(range) }
    fn push_ex(attributes: *const Attributes) -> c_int { with_event(0, attributes, thread::push); NOT_TRACKED }
    fn push_a(text: *const c_char) -> c_int { thread::push(&plain(narrow(text))); NOT_TRACKED }
    fn push_w(text: *const wchar_t) -> c_int { thread::push(&plain(Wide::new(text).as_bytes())); NOT_TRACKED }
    fn pop() -> c_int { thread::pop(0); NOT_TRACKED }
    fn category_a(id: u32, text: *const c_char) { names::add(Named::Category { id, domain: 0 }, narrow(text)) }
    fn category_w(id: u32, text: *const wchar_t) {
        names::add(Named::Category { id, domain: 0 }, Wide::new(text).as_bytes());
    }
    fn thread_a(tid: u32, text: *const c_char) { names::add(Named::Thread { tid }, narrow(text)) }
    fn thread_w(tid: u32, text: *const wchar_t) { names::add(Named::Thread { tid }, Wide::new(text).as_bytes()) }

    fn domain_mark(domain: Handle, attributes: *const Attributes) {
        with_event(number(domain), attributes, thread::mark)
    }
    fn domain_start(domain: Handle, attributes: *const Attributes) -> u64 {
        with_event(number(domain), attributes, thread::start)
    }
    fn domain_end(_domain: Handle, range: u64) { thread::end(range) }
    fn domain_push(domain: Handle, attributes: *const Attributes) -> c_int {
        with_event(number(domain), attributes, thread::push);
        NOT_TRACKED
    }
    fn domain_pop(domain: Handle) -> c_int { thread::pop(number(domain)); NOT_TRACKED }
    fn domain_category_a(domain: Handle, id: u32, text: *const c_char) {
        names::add(Named::Category { id, domain: number(domain) }, narrow(text));
    }
    fn domain_category_w(domain: Handle, id: u32, text: *const wchar_t) {
        names::add(Named::Category { id, domain: number(domain) }, Wide::new(text).as_bytes());
    }
    fn register_a(domain: Handle, text: *const c_char) -> Answer {
        Answer(handle(names::add_string(number(domain), narrow(text))))
    }
    fn register_w(domain: Handle, text: *const wchar_t) -> Answer {
        Answer(handle(names::add_string(number(domain), Wide::new(text).as_bytes())))
    }
    fn domain_create_a(text: *const c_char) -> Answer { Answer(handle(names::add_domain(narrow(text)))) }
    fn domain_create_w(text: *const wchar_t) -> Answer {
        Answer(handle(names::add_domain(Wide::new(text).as_bytes())))
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

/// Returns the handlers of a module by their position in its table. Missing ones stay as they are.
pub fn of_module(module: u32) -> Vec<(usize, Function)> {
    match module {
        sys::MODULE_CORE => vec![
            (1, mark_ex as Function),
            (2, mark_a as Function),
            (3, mark_w as Function),
            (4, start_ex as Function),
            (5, start_a as Function),
            (6, start_w as Function),
            (7, end as Function),
            (8, push_ex as Function),
            (9, push_a as Function),
            (10, push_w as Function),
            (11, pop as Function),
            (12, category_a as Function),
            (13, category_w as Function),
            (14, thread_a as Function),
            (15, thread_w as Function),
        ],
        sys::MODULE_CORE2 => vec![
            (1, domain_mark as Function),
            (2, domain_start as Function),
            (3, domain_end as Function),
            (4, domain_push as Function),
            (5, domain_pop as Function),
            (8, domain_category_a as Function),
            (9, domain_category_w as Function),
            (10, register_a as Function),
            (11, register_w as Function),
            (12, domain_create_a as Function),
            (13, domain_create_w as Function),
        ],
        _ => Vec::new(),
    }
}
