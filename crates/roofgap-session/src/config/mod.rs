//! Configuration: presets in the binary, a user's folder over them, overrides on the command line.
//!
//! - [`compose`] puts the layers together and gives a typed [`Config`] with the origin of each value;
//! - [`list`] names the groups and their options;
//! - [`Settings`](settings) are the typed values, [`tree`] the untyped ones.

mod compose;
mod error;
mod layer;
mod nearest;
mod overrides;
mod presets;
pub mod quantity;
pub mod settings;
pub mod tree;
mod yaml;

pub use compose::{Choice, Composed, ConfigProps, Explained, compose};
pub use error::ConfigError;
pub use presets::{Group, OptionSource, PresetOption, list};
pub use settings::Config;
pub use tree::Origin;
pub use yaml::{read as read_yaml, write as write_yaml};
