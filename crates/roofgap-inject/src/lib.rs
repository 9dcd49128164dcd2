//! The library that records a timeline from inside the profiled program.
//!
//! The CUDA driver (`CUDA_INJECTION64_PATH`) or NVTX (`NVTX_INJECTION64_PATH`) loads it. It writes the timeline of the process to
//! a file in `ROOFGAP_NATIVE_DIR`, in the format of `roofgap_wire`, and does nothing when that variable is not set.
//! When the program closes the descriptor of that file, the recording ends with a note beside it (`<capture>.log`).
//!
//! | module | content |
//! |---|---|
//! | [`emit`] | NVTX ranges of our own program |
//! | [`entry`] | entry points for the driver and NVTX |
//! | `cupti` | CUPTI, loaded at run time |
//! | `nvtx` | annotations of the program |
//! | `collector` | the recording and its writer thread |
//!
//! Environment variables:
//!
//! | variable | meaning |
//! |---|---|
//! | `ROOFGAP_NATIVE_DIR` | existing folder for the captures, one file per process: `<pid>-<start>.rgcap` |
//! | `ROOFGAP_NATIVE_COPIES` | `0` leaves out copies and sets on the GPU (their calls stay) |
//! | `ROOFGAP_NATIVE_GRAPH` | `node` records each kernel of a graph, `graph` a launch as a whole |
//! | `ROOFGAP_NATIVE_CALLS` | method of recording CUDA calls: `activity`, `callbacks` or `all`; default: the best available |
//! | `ROOFGAP_NATIVE_FLUSH_MS` | interval of CUPTI flushes, ms; default 1000, 0 for none |
//! | `ROOFGAP_NATIVE_MAX_MB` | size limit of a file, MB; default 4096 |
//! | `CUPTI_LIBRARY` | path of CUPTI, instead of a search |
//!
//! This is the only crate with `unsafe`.

#![cfg_attr(
    target_os = "linux",
    allow(unsafe_code, reason = "C interfaces of CUPTI, NVTX and the system")
)]

#[cfg(target_os = "linux")]
mod collector;
#[cfg(target_os = "linux")]
mod cupti;
#[cfg(target_os = "linux")]
pub mod emit;
#[cfg(target_os = "linux")]
pub mod entry;
#[cfg(target_os = "linux")]
mod nvtx;
