//! The configuration of a session: built-in presets, a user's folder, a file and overrides, later ones winning.
//!
//! - [`compose`]: composes the layers into a typed [`Config`] that knows the origin of each value;
//! - [`settings`]: the typed values, with [`quantity`] for times and sizes;
//! - `tree`: untyped values by dotted key, their YAML form, and the checks of one layer;
//! - `overrides`: the override syntax;
//! - `presets`: groups and options, see [`list`]; `original`: names and files of the original system;
//! - [`model`]: the model that a configuration names.

mod compose;
pub mod model;
mod original;
mod overrides;
mod presets;
pub mod quantity;
pub mod settings;
mod tree;

pub use compose::{Composed, ConfigProps, compose};
pub use presets::{Group, PresetOption, list};
pub use quantity::Span;
pub use settings::Config;
pub use tree::{Origin, read_yaml, to_yaml};

use roofgap_base::error::Error;

/// Makes the error of a configuration.
fn failed(message: String) -> Error {
    Error::new(message).with_hint("`roofgap config list` shows every group and option")
}
