//! Facts of a GPU from the driver, by the device number of the program.

use std::ffi::{CStr, c_char, c_int, c_void};

use roofgap_wire::{Device, Record, Text};

type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type DeviceName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type DeviceMemory = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
type DeviceUuid = unsafe extern "C" fn(*mut u8, c_int) -> c_int;
type DeviceAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;

const CLOCK_KHZ: c_int = 13;
const MULTIPROCESSORS: c_int = 16;
const MEMORY_CLOCK_KHZ: c_int = 36;
const MEMORY_BUS_BITS: c_int = 37;
const L2_BYTES: c_int = 38;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

/// Queries the driver that the program has loaded and passes the record to `take`; does nothing on failure.
pub fn describe(id: u32, take: impl FnOnce(Record<'_>)) {
    // SAFETY: only looks whether the library is loaded already.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if driver.is_null() {
        return;
    }
    let symbol = |name: &CStr| {
        // SAFETY: the library is loaded.
        let found = unsafe { libc::dlsym(driver, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let (Some(get), Some(name), Some(memory), Some(attribute)) = (
        symbol(c"cuDeviceGet"),
        symbol(c"cuDeviceGetName"),
        symbol(c"cuDeviceTotalMem_v2"),
        symbol(c"cuDeviceGetAttribute"),
    ) else {
        return;
    };
    // SAFETY: these are the driver's own functions with the signatures it has had since CUDA 4. Each writes what its
    // pointer says and nothing else; a driver that is shutting down answers with an error.
    unsafe {
        let get = std::mem::transmute::<*mut c_void, DeviceGet>(get);
        let name = std::mem::transmute::<*mut c_void, DeviceName>(name);
        let memory = std::mem::transmute::<*mut c_void, DeviceMemory>(memory);
        let attribute = std::mem::transmute::<*mut c_void, DeviceAttribute>(attribute);
        let mut device = 0;
        let mut text = [0 as c_char; 256];
        if get(&raw mut device, id as c_int) != 0 || name(text.as_mut_ptr(), 255, device) != 0 {
            return;
        }
        let mut uuid = [0u8; 16];
        let known = symbol(c"cuDeviceGetUuid").is_some_and(|ask| {
            std::mem::transmute::<*mut c_void, DeviceUuid>(ask)(uuid.as_mut_ptr(), device) == 0
        });
        let mut bytes = 0usize;
        memory(&raw mut bytes, device);
        let ask = |what: c_int| {
            let mut value = 0;
            if attribute(&raw mut value, what, device) == 0 { value.max(0) as u32 } else { 0 }
        };
        // Two transfers a clock: the figure the specification sheets use.
        let bandwidth = u64::from(ask(MEMORY_CLOCK_KHZ)) * 1_000 * 2 * u64::from(ask(MEMORY_BUS_BITS)) / 8;
        take(Record::Device(Device {
            id,
            visible: 1,
            source: 1,
            major: ask(MAJOR),
            minor: ask(MINOR),
            sms: ask(MULTIPROCESSORS),
            clock_khz: ask(CLOCK_KHZ),
            l2_bytes: u64::from(ask(L2_BYTES)),
            memory_bytes: bytes as u64,
            bandwidth,
            name: Text(CStr::from_ptr(text.as_ptr()).to_bytes()),
            uuid: Text(if known { &uuid } else { &[] }),
        }));
    }
}
