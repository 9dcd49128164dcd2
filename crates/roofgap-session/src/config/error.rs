//! What can be wrong with a configuration.

use std::path::PathBuf;

use super::tree::Origin;

/// What is wrong with a configuration, where it stands, and what was probably meant.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("cannot read the configuration {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not the YAML that is understood here.
    #[error("cannot understand {}: {why}", file.display())]
    Yaml {
        /// The file.
        file: PathBuf,
        /// What is wrong, with its place.
        why: String,
    },
    /// The folder given does not exist or is not a folder.
    #[error("the configuration folder {} is not a folder", folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// A file of the folder belongs to no group.
    #[error("{} belongs to no group{}; groups are {}", file.display(), did_you_mean(nearest), known.join(", "))]
    UnknownGroup {
        /// The file.
        file: PathBuf,
        /// The group that was probably meant.
        nearest: Option<String>,
        /// All groups.
        known: Vec<String>,
    },
    /// There is no such key.
    #[error("there is no key {key}{} ({origin})", did_you_mean(nearest))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The key that was probably meant.
        nearest: Option<String>,
        /// Where it was written.
        origin: Box<Origin>,
    },
    /// There is no such option in the group.
    #[error("the group {group} has no option {option}{} ({origin}); it has {}", did_you_mean(nearest), known.join(", "))]
    UnknownOption {
        /// The group.
        group: String,
        /// The option as written.
        option: String,
        /// The option that was probably meant.
        nearest: Option<String>,
        /// All options.
        known: Vec<String>,
        /// Where it was chosen.
        origin: Box<Origin>,
    },
    /// An override is not written as one.
    #[error("cannot understand the override {text}: {why}")]
    Override {
        /// The override as written.
        text: String,
        /// What is wrong and how to write it.
        why: String,
    },
    /// A value is not of the kind that its key takes.
    #[error("{key} cannot be {value} ({origin}): {why}")]
    Value {
        /// The key.
        key: String,
        /// The value on one line.
        value: String,
        /// Where it came from.
        origin: String,
        /// What the key takes.
        why: String,
    },
    /// A preset built into the binary is broken; a bug.
    #[error("the built-in preset {file} is broken: {why}")]
    Builtin {
        /// The preset.
        file: String,
        /// What is wrong.
        why: String,
    },
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map(|name| format!(", did you mean {name}?"))
        .unwrap_or_default()
}
