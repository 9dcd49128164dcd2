//! What is profiled, as a command line.
//!
//! - [`setting`]: what every profiled program is told through its environment
//! - [`embedded`]: the model inside this binary
//! - [`python`]: a Hugging Face model through the driver, and annotation of other Python programs
//! - [`hydra`]: a Python module configured by Hydra
//! - [`verbatim`]: whatever stands after `--`

pub mod embedded;
pub mod hydra;
pub mod python;
pub mod setting;
pub mod verbatim;

pub use hydra::Hydra;
pub use python::{Annotation, HfDriver};
pub use setting::{Phase, Setting};
pub use verbatim::Verbatim;
