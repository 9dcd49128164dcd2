//! What is profiled, as a command line.
//!
//! - [`setting`]: what every profiled program is told through its environment
//! - [`embedded`]: the model inside this binary
//! - [`hf`]: a Hugging Face model through the driver
//! - [`hydra`]: a Python module configured by Hydra
//! - [`verbatim`]: whatever stands after `--`
//! - [`annotation`]: ranges added to a Python program without touching it
//! - [`scripts`]: the Python this binary carries

pub mod annotation;
pub mod embedded;
pub mod hf;
pub mod hydra;
pub mod scripts;
pub mod setting;
pub mod verbatim;

pub use annotation::Annotation;
pub use hf::{HfDriver, HfModel};
pub use hydra::Hydra;
pub use scripts::Scripts;
pub use setting::{Phase, Setting};
pub use verbatim::Verbatim;
