//! Provenance of a run: GPUs, machine, Python, git revision, environment variables.
//!
//! - `gpu`: GPUs and driver, from `nvidia-smi`
//! - `machine`: CPU, memory, operating system
//! - `python`: Python interpreter and package versions
//! - `revision`: git revision of a folder
//! - [`variables`]: environment variables on an allow-list

mod gpu;
mod machine;
mod python;
mod revision;
pub mod variables;

pub use gpu::{Gpu, GpuError, Gpus, visible_gpus};
pub use machine::Machine;
pub use python::{Python, PythonError};
pub use revision::Revision;
