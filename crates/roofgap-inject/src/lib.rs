//! The library that runs inside the profiled program, and the file format it writes.
//!
//! Loaded by the CUDA driver (`CUDA_INJECTION64_PATH`) and by NVTX (`NVTX_INJECTION64_PATH`), it records the timeline of
//! the process into one file in the folder named by `ROOFGAP_NATIVE_DIR`, and does nothing where that is not set.
//!
//! | module | holds |
//! |---|---|
//! | [`wire`] | the file format: the only part that readers use |
//! | [`emit`] | NVTX ranges that our own program opens |
//! | [`entry`] | the functions that the driver and NVTX call |
//! | `cupti` | CUPTI, opened while the program runs |
//! | `nvtx` | the program's own annotations |
//! | `collector` | the recording itself, and the thread that writes it |
//!
//! The environment it listens to:
//!
//! | variable | means |
//! |---|---|
//! | `ROOFGAP_NATIVE_DIR` | the folder, which must exist; one file a process, `<pid>-<start>.rgcap` |
//! | `ROOFGAP_NATIVE_COPIES` | `0` leaves out copies and sets as they ran on the GPU (their calls stay) |
//! | `ROOFGAP_NATIVE_GRAPH` | `node` records each kernel of a graph, `graph` a launch as one |
//! | `ROOFGAP_NATIVE_CALLS` | `activity`, `callbacks` or `all`: how CUDA calls are recorded; the best way by default |
//! | `ROOFGAP_NATIVE_FLUSH_MS` | how often CUPTI is asked for what it has finished; 1000, 0 for never |
//! | `ROOFGAP_NATIVE_MAX_MB` | the size a file may reach; 4096 |
//! | `CUPTI_LIBRARY` | the CUPTI to use, where the search would find another |
//!
//! This is the one crate that speaks to C, and the only one with `unsafe`.

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
