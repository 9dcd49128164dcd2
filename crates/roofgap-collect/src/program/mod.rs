//! The profiled program as a command line.
//!
//! - `context`: environment of every profiled program, and the embedded model
//! - `hf`: a Hugging Face model, run by the driver
//! - `hydra`: a Python module configured by Hydra
//! - `hydra_config`: the configuration that such a module composes
//! - `launcher`: launchers of ranks, recognised from a command
//! - `user_command`: the command after `--`, with optional annotation of Python
//! - `scripts`: the Python files inside this binary

mod context;
mod hf;
mod hydra;
mod hydra_config;
mod launcher;
mod scripts;
mod user_command;

pub use context::{Phase, ProgramContext, embedded_command};
pub use hf::{HfDriver, HfModel, OperatorOutputs};
pub use hydra::{AcceptedOverrides, HydraError, HydraModule};
pub use hydra_config::ComposedConfig;
pub use launcher::launcher;
pub use scripts::Scripts;
pub use user_command::{Annotation, UserCommand};
