//! The entry points for the CUDA driver and for NVTX. Either may be called first, and neither lets a panic through.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::collector::{gpu, session, thread, writer};
use crate::nvtx::attach;

/// Starts the recording; called by the CUDA driver of a program with `CUDA_INJECTION64_PATH`. Always returns success, so
/// that the program continues.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = catch_unwind(|| {
        if let Some(session) = session::start(writer::run)
            && session.gpu().is_none()
        {
            thread::register();
            gpu::start(session);
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
        session::start(writer::run).is_some() && unsafe { attach::attach(get_table) }
    }));
    c_int::from(attached.unwrap_or(false))
}
