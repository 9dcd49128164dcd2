//! The entry points for the CUDA driver, for NVTX and for the program itself. None lets a panic through.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::collector::{session, thread};
use crate::nvtx::attach;
use roofgap_wire::WindowCause;

/// Starts the recording; called by the CUDA driver of a program with `CUDA_INJECTION64_PATH`. Always returns success, so
/// that the program continues.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = catch_unwind(|| {
        if let Some(session) = session::start()
            && session.gpu().is_none()
        {
            thread::register();
            session.start_gpu();
        }
    });
    1
}

/// Attaches to an NVTX client of a program with `NVTX_INJECTION64_PATH`, on its first annotation. After the return value 0
/// the client runs without a tool.
///
/// # Safety
/// Only NVTX may call it, with the function that it documents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    get_table: Option<unsafe extern "C" fn(u32) -> *const std::ffi::c_void>,
) -> c_int {
    let attached = catch_unwind(AssertUnwindSafe(|| {
        let Some(get_table) = get_table else { return false };
        // SAFETY: as the caller promises.
        session::start().is_some() && unsafe { attach(get_table) }
    }));
    c_int::from(attached.unwrap_or(false))
}

/// Begins to record GPU work. Returns 0, or 1 if nothing is recorded in this process, or 2 if CUPTI or CUDA is not available.
/// A program calls it, as Python does through `ctypes`.
#[unsafe(no_mangle)]
pub extern "C" fn roofgap_arm() -> c_int {
    control(|session| if session.request().is_ok() { 0 } else { 2 })
}

/// Stops recording GPU work. Returns 0, or 1 if nothing is recorded in this process.
#[unsafe(no_mangle)]
pub extern "C" fn roofgap_disarm() -> c_int {
    control(|session| {
        session.withdraw(WindowCause::Request);
        0
    })
}

/// Writes the records of finished GPU work. Returns 0 once they are written, 1 if nothing is recorded in this process, or 2 if
/// that takes too long.
#[unsafe(no_mangle)]
pub extern "C" fn roofgap_flush() -> c_int {
    control(|session| if session.flush_now() { 0 } else { 2 })
}

fn control(run: impl FnOnce(&'static session::Session) -> c_int) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(|| session::current().map(run)));
    done.ok().flatten().unwrap_or(1)
}
