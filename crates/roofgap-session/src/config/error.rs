//! Errors of a configuration.

use std::path::PathBuf;

use super::tree::Origin;

/// Error of a configuration, with its origin and the most similar known name.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file is not readable.
    #[error("cannot read the configuration {}", file.display())]
    Read {
        /// File.
        file: PathBuf,
        /// System error.
        source: std::io::Error,
    },
    /// A file is not supported YAML.
    #[error("cannot parse {}: {why}", file.display())]
    Yaml {
        /// File.
        file: PathBuf,
        /// Reason, with the line.
        why: String,
    },
    /// The configuration folder is missing.
    #[error("the configuration folder {} is not a folder", folder.display())]
    NoFolder {
        /// Folder.
        folder: PathBuf,
    },
    /// A file of the configuration folder belongs to no group.
    #[error("{} belongs to no group{}; groups are {}", file.display(), did_you_mean(nearest), known.join(", "))]
    UnknownGroup {
        /// File.
        file: PathBuf,
        /// Most similar group.
        nearest: Option<String>,
        /// All groups.
        known: Vec<String>,
    },
    /// The key is unknown.
    #[error("there is no key {key}{} ({origin})", did_you_mean(nearest))]
    UnknownKey {
        /// Key as written.
        key: String,
        /// Most similar key.
        nearest: Option<String>,
        /// Origin.
        origin: Box<Origin>,
    },
    /// The option is unknown.
    #[error("the group {group} has no option {option}{} ({origin}); it has {}", did_you_mean(nearest), known.join(", "))]
    UnknownOption {
        /// Group.
        group: String,
        /// Option as written.
        option: String,
        /// Most similar option.
        nearest: Option<String>,
        /// All options.
        known: Vec<String>,
        /// Origin.
        origin: Box<Origin>,
    },
    /// An override is malformed.
    #[error("cannot parse the override {text}: {why}")]
    Override {
        /// Override as written.
        text: String,
        /// Reason and correct form.
        why: String,
    },
    /// A value does not suit its key.
    #[error("{key} cannot be {value} ({origin}): {why}")]
    Value {
        /// Key.
        key: String,
        /// Value on one line.
        value: String,
        /// Origin.
        origin: String,
        /// Expected value.
        why: String,
    },
    /// A built-in preset is broken; a bug.
    #[error("the built-in preset {file} is broken: {why}")]
    Builtin {
        /// Preset.
        file: String,
        /// Reason.
        why: String,
    },
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map(|name| format!(", did you mean {name}?"))
        .unwrap_or_default()
}
