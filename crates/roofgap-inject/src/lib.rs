//! The library that runs inside the profiled program, and the file format it writes.
//!
//! Loaded by the CUDA driver (`CUDA_INJECTION64_PATH`) and by NVTX (`NVTX_INJECTION64_PATH`), it records the timeline of
//! the process into one file in the folder named by `ROOFGAP_NATIVE_DIR`, and does nothing where that is not set.
//!
//! | module | holds |
//! |---|---|
//! | [`wire`] | the file format: the only part that readers use |

pub mod wire;
