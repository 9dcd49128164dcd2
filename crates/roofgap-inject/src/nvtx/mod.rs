//! NVTX annotations of the program: [`sys`] is the raw interface, [`handlers`] has the functions that NVTX calls, [`attach`] puts them
//! into the tables of one NVTX client. Each shared object of the program that uses NVTX is a client of its own and calls us once.

mod handlers;
mod sys;
mod text;

use std::ffi::c_uint;
use std::ptr;

use handlers::of_module;
use sys::{Callbacks, Function, GetExportTable};

/// Attaches to the client; whether any function was put in place.
///
/// # Safety
/// `get_table` must be the function that NVTX passed to the entry point.
pub unsafe fn attach(get_table: GetExportTable) -> bool {
    // SAFETY: as the caller promises; the answer is null or a table that says how long it is.
    unsafe {
        let callbacks = get_table(sys::TABLE_CALLBACKS).cast::<Callbacks>();
        if callbacks.is_null() || (*callbacks).size < size_of::<Callbacks>() {
            return false;
        }
        let Some(get) = (*callbacks).get_table else {
            return false;
        };
        let mut placed = 0;
        for module in [sys::MODULE_CORE, sys::MODULE_CORE2] {
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
