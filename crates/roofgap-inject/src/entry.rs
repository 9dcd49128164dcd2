//! The two doors: the CUDA driver's and NVTX's. Both may open, in either order; neither lets a fault through.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::collector::{gpu, session, thread, writer};
use crate::nvtx::attach;

/// Called by the CUDA driver while it starts up in a program that has `CUDA_INJECTION64_PATH`. The answer is always that
/// all is well: the program runs on, recorded or not.
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

/// Called by each NVTX client of a program that has `NVTX_INJECTION64_PATH`, on its first annotation. The answer 0 makes
/// the client run as if there were no tool.
///
/// # Safety
/// Only NVTX may call it, with the function it documents.
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
