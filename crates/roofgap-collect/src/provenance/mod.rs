//! Where a run was made: the facts of `env.json` and `inputs.yaml`.
//!
//! - [`environment`]: all of it, as `env.json`
//! - [`gpu`]: the GPUs and the driver
//! - [`machine`]: processor, memory, operating system
//! - [`python`]: the Python and the packages that matter
//! - [`revision`]: the state of a folder under git
//! - [`variables`]: environment variables, by an allow-list
//! - [`inputs`]: files that went in, with size and hash

pub mod environment;
pub mod gpu;
pub mod inputs;
pub mod machine;
pub mod python;
pub mod revision;
pub mod variables;

pub use environment::{Environment, ToolFacts};
pub use gpu::{Gpu, Gpus};
pub use inputs::InputFile;
pub use machine::Machine;
pub use python::Python;
pub use revision::Revision;
