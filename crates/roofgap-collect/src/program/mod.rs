//! The profiled program as a command line.
//!
//! - `context`: environment of every profiled program, and the embedded model
//! - `engine`: serving engines, recognised from a command
//! - `hf`: a Hugging Face model, run by the driver
//! - `hydra`: a Python module configured by Hydra
//! - `user_command`: the command after `--`, with optional annotation of Python
//! - `scripts`: the Python files inside this binary

mod context;
mod engine;
mod hf;
mod hydra;
mod scripts;
mod user_command;

pub use context::{Phase, ProgramContext, embedded_command};
pub use engine::serving_engine;
pub use hf::{HfDriver, HfModel, OperatorOutputs};
pub use hydra::{HydraError, HydraModule};
pub use scripts::Scripts;
pub use user_command::{Annotation, UserCommand};
