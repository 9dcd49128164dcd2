//! Emits NVTX ranges of this program to an attached tool.
//!
//! NVTX has no library. A program loads the library in `NVTX_INJECTION64_PATH`, passes it tables of function slots, and calls
//! the functions that the tool puts there. That happens at the first range. Without a tool, a range costs one atomic load.
//! Texts are not registered, so nsys gates on them with `NSYS_NVTX_PROFILER_REGISTER_ONLY=0` only, which a session sets.

use crate::collector::lock;
use crate::nvtx::{Attributes, MODULE_CORE2, NVTX_VERSION};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};

/// Opens a range on this thread, in the default domain when `domain` is `None`.
pub fn push(domain: Option<&'static str>, name: &'static str) {
    type Push = extern "C" fn(*mut c_void, *const Attributes) -> c_int;
    if !attached() {
        return;
    }
    let (handle, text) = with_names(|names| (names.handle(domain), names.text(name)));
    // SAFETY: NVTX's type for the slot.
    if let Some(push) = unsafe { function::<Push>(DOMAIN_RANGE_PUSH_EX) } {
        // The attributes outlive the call, the text the process.
        push(handle, &Attributes::of_text(text.as_ptr()));
    }
}

/// Closes the innermost range of that domain on this thread.
pub fn pop(domain: Option<&'static str>) {
    type Pop = extern "C" fn(*mut c_void) -> c_int;
    if !attached() {
        return;
    }
    let handle = with_names(|names| names.handle(domain));
    // SAFETY: NVTX's type for the slot.
    if let Some(pop) = unsafe { function::<Pop>(DOMAIN_RANGE_POP) } {
        pop(handle);
    }
}

/// Returns true if a tool is attached. The first call loads it.
pub fn attached() -> bool {
    static ATTACHED: OnceLock<bool> = OnceLock::new();
    *ATTACHED.get_or_init(attach)
}

// Places of the functions used here in the second core table of NVTX 3, whose null domain is the default one.
const DOMAIN_RANGE_PUSH_EX: usize = 4;
const DOMAIN_RANGE_POP: usize = 5;
const DOMAIN_CREATE_A: usize = 12;

/// Length of each table, with its unused first entry: none, core, CUDA, OpenCL, CUDA runtime, core 2, sync.
const SIZES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
/// Length of the longest table.
const SLOTS: usize = 16;

type Slot = AtomicPtr<c_void>;

/// Slots for the functions of the tool. It may replace them later, so they are read on every call.
static SLOT_VALUES: [[Slot; SLOTS]; SIZES.len()] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS] }; SIZES.len()];

/// A table in the layout of NVTX: null, the addresses of the slots, null.
struct Tables([[*const Slot; SLOTS + 1]; SIZES.len()]);

// SAFETY: the pointers are to statics and are never written through from here.
unsafe impl Sync for Tables {}
// SAFETY: as above.
unsafe impl Send for Tables {}

fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| {
        let mut tables = Tables([[ptr::null(); SLOTS + 1]; SIZES.len()]);
        for ((table, slots), size) in tables.0.iter_mut().zip(&SLOT_VALUES).zip(SIZES) {
            for (entry, slot) in table.iter_mut().zip(slots).take(size).skip(1) {
                *entry = slot;
            }
        }
        tables
    })
}

/// Returns the function in a slot of the second core table, if a tool has filled it.
///
/// # Safety
/// `F` must be NVTX's type for the slot.
unsafe fn function<F>(place: usize) -> Option<F> {
    let function = SLOT_VALUES.get(MODULE_CORE2 as usize)?.get(place)?.load(Ordering::Acquire);
    // SAFETY: a function pointer is as wide as an object pointer.
    (!function.is_null()).then(|| unsafe { std::mem::transmute_copy(&function) })
}

#[repr(C)]
struct Callbacks {
    size: usize,
    get_module_function_table: extern "C" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}

extern "C" fn get_module_function_table(
    module: c_int,
    table: *mut *const *const Slot,
    size: *mut c_uint,
) -> c_int {
    let module = usize::try_from(module).unwrap_or_default();
    let (Some(slots), Some(&entries @ 1..)) = (tables().0.get(module), SIZES.get(module)) else {
        return 0;
    };
    // SAFETY: NVTX promises that each is null or the address of a variable of the tool.
    unsafe {
        if !size.is_null() {
            *size = entries as c_uint;
        }
        if !table.is_null() {
            *table = slots.as_ptr();
        }
    }
    1
}

extern "C" fn set_injection_version(_version: u32) {}

extern "C" fn get_export_table(id: u32) -> *const c_void {
    static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), get_module_function_table };
    static VERSION: VersionInfo = VersionInfo {
        size: size_of::<VersionInfo>(),
        version: NVTX_VERSION as u32,
        reserved: 0,
        set_injection_version,
    };
    match id {
        1 => ptr::from_ref(&CALLBACKS).cast(),
        3 => ptr::from_ref(&VERSION).cast(),
        _ => ptr::null(),
    }
}

fn attach() -> bool {
    let Some(path) = std::env::var_os("NVTX_INJECTION64_PATH") else {
        return false;
    };
    let Ok(path) = CString::new(path.into_encoded_bytes()) else {
        return false;
    };
    type Initialize = extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: loading the tool the user named runs its initialisers, which is what naming it means; the symbol has NVTX's type for it.
    // The library is never closed, because its functions stay in the slots.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
        if library.is_null() {
            return false;
        }
        let symbol = libc::dlsym(library, c"InitializeInjectionNvtx2".as_ptr());
        if symbol.is_null() {
            return false;
        }
        let initialize: Initialize = std::mem::transmute(symbol);
        initialize(get_export_table) != 0
    }
}

/// Handles of domains, and texts, valid for the life of the process.
#[derive(Default)]
struct Names {
    domains: HashMap<&'static str, Handle>,
    texts: HashMap<&'static str, &'static CStr>,
}

#[derive(Clone, Copy)]
struct Handle(*mut c_void);

// SAFETY: NVTX handles are opaque to us and may be used on any thread.
unsafe impl Send for Handle {}

impl Names {
    /// Returns the text with a trailing NUL, leaked because a tool may keep the pointer.
    fn text(&mut self, text: &'static str) -> &'static CStr {
        self.texts
            .entry(text)
            .or_insert_with(|| CString::new(text).map_or(c"?", |text| &*Box::leak(text.into_boxed_c_str())))
    }

    /// Returns the handle of a domain, null for the default one.
    fn handle(&mut self, domain: Option<&'static str>) -> *mut c_void {
        type Create = extern "C" fn(*const c_char) -> *mut c_void;
        let Some(domain) = domain else { return ptr::null_mut() };
        if let Some(handle) = self.domains.get(domain) {
            return handle.0;
        }
        let text = self.text(domain);
        // SAFETY: NVTX's type for the slot.
        let create = unsafe { function::<Create>(DOMAIN_CREATE_A) };
        let handle = create.map_or(ptr::null_mut(), |create| create(text.as_ptr()));
        self.domains.insert(domain, Handle(handle));
        handle
    }
}

fn with_names<T>(run: impl FnOnce(&mut Names) -> T) -> T {
    static NAMES: OnceLock<Mutex<Names>> = OnceLock::new();
    let names = NAMES.get_or_init(Mutex::default);
    run(&mut lock(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_laid_out_as_nvtx_has_them() {
        assert_eq!(size_of::<Attributes>(), 48);
        let mut table = ptr::null();
        let mut size = 0;
        assert_eq!(get_module_function_table(5, &mut table, &mut size), 1);
        assert_eq!(size, 16);
        // SAFETY: the table has seventeen entries.
        let entries = unsafe { std::slice::from_raw_parts(table, 17) };
        assert!(entries[0].is_null() && entries[16].is_null());
        assert!(entries[1..16].iter().all(|entry| !entry.is_null()));
        assert_eq!(get_module_function_table(0, &mut table, &mut size), 0);
        assert_eq!(get_module_function_table(7, &mut table, &mut size), 0);
        assert_eq!(get_module_function_table(-1, &mut table, &mut size), 0);
        assert!(get_export_table(2).is_null());
    }

    #[test]
    fn without_a_tool_nothing_happens() {
        if std::env::var_os("NVTX_INJECTION64_PATH").is_none() {
            assert!(!attached());
            push(Some("LLM"), "prefill");
            pop(Some("LLM"));
        }
    }
}
