//! The configuration of a session: built-in presets, a user's folder, a file and overrides, later ones winning.
//!
//! - [`compose`]: composes the layers into a typed [`Config`] that knows the origin of each value;
//! - [`settings`]: the typed values, with [`quantity`] for times and sizes;
//! - [`tree`], `yaml`, `layer`: untyped values, their YAML form, and the checks of one layer;
//! - `overrides`: the override syntax;
//! - `presets`: groups and options, see [`list`]; `original`: names and files of the original system;
//! - [`model`]: the model that a configuration names;
//! - [`traffic`]: the load on a server;
//! - `error`: the error types.

mod compose;
mod error;
mod layer;
pub mod model;
mod original;
mod overrides;
mod presets;
pub mod quantity;
pub mod settings;
pub mod traffic;
pub mod tree;
mod yaml;

pub use compose::{Choice, Composed, ConfigProps, Explained, compose};
pub use error::ConfigError;
pub use presets::{Group, PresetOption, list};
pub use quantity::Span;
pub use settings::Config;
pub use tree::Origin;
pub use yaml::{read as read_yaml, write as write_yaml};
