//! The configuration of a session: built-in presets, a user's folder, a file and overrides, later ones winning.
//!
//! - [`compose`]: composes the layers into a typed [`Config`] that knows the origin of each value;
//! - [`settings`]: the typed values, with [`quantity`] for times and sizes;
//! - `tree`: untyped values, their YAML form, and the checks of one layer;
//! - `overrides`: the override syntax;
//! - `presets`: groups and options, see [`list`]; `original`: names and files of the original system;
//! - [`model`]: the model that a configuration names;
//! - [`traffic`]: the load on a server.

mod compose;
pub mod model;
mod original;
mod overrides;
mod presets;
pub mod quantity;
pub mod settings;
pub mod traffic;
mod tree;

pub use compose::{Choice, Composed, ConfigProps, Explained, compose};
pub use presets::{Group, PresetOption, list};
pub use quantity::Span;
pub use settings::Config;
pub use tree::{Origin, read_yaml, to_yaml};

use roofgap_base::error::Error;
use std::path::PathBuf;

/// Error of a configuration, with its origin and the most similar known name.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file is not readable.
    #[error("cannot read the configuration {}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    /// A file is not supported YAML.
    #[error("cannot parse {}: {why}", file.display())]
    Yaml { file: PathBuf, why: String },
    /// The configuration folder is missing.
    #[error("the configuration folder {} is not a folder", folder.display())]
    NoFolder { folder: PathBuf },
    /// The key is unknown.
    #[error("there is no key {key}{} ({origin})", did_you_mean(nearest))]
    UnknownKey { key: String, nearest: Option<String>, origin: Box<Origin> },
    /// The option is unknown.
    #[error("the group {group} has no option {option}{} ({origin}); it has {}", did_you_mean(nearest), known.join(", "))]
    UnknownOption {
        group: String,
        option: String,
        nearest: Option<String>,
        known: Vec<String>,
        origin: Box<Origin>,
    },
    /// An override is malformed.
    #[error("cannot parse the override {text}: {why}")]
    Override { text: String, why: String },
    /// A value does not suit its key.
    #[error("{key} cannot be {value} ({origin}): {why}")]
    Value { key: String, value: String, origin: String, why: String },
    /// A built-in preset is broken; a bug.
    #[error("the built-in preset {file} is broken: {why}")]
    Builtin { file: String, why: String },
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        let hint = match error {
            ConfigError::UnknownKey { .. } => {
                "`roofgap config show` prints every key; those of a Hydra module go into workload.overrides='[KEY=VALUE]'"
            }
            _ => "`roofgap config list` shows every group and option",
        };
        Self::of(error).with_hint(hint)
    }
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(", did you mean {name}?")).unwrap_or_default()
}
