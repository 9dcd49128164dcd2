//! Reading values of a configuration with checks: it is untrusted input.

use serde_json::{Map, Value};

/// A configuration without a usable architecture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not a JSON object.
    #[error("{0} is not an object: expected the content of a config.json")]
    NotAnObject(String),
    /// A size that is needed.
    #[error("{path} has no {key}: without it the work of the model cannot be counted")]
    Missing {
        /// Object that was searched.
        path: String,
        /// The key.
        key: String,
    },
    /// A size that is not one.
    #[error("{path}.{key} is {found}: expected a whole number from {least} to {most}")]
    OutOfRange {
        /// Object of the key.
        path: String,
        /// The key.
        key: String,
        /// Value found.
        found: String,
        /// Least that makes sense.
        least: u64,
        /// Most that makes sense.
        most: u64,
    },
    /// A model whose work follows other rules.
    #[error(
        "model type {model_type:?} is not understood ({why}): give the sizes of a supported one, or a preset"
    )]
    Unsupported {
        /// As the configuration says.
        model_type: String,
        /// Reason.
        why: String,
    },
}

/// Largest size taken from a configuration: products of two stay exact, nothing overflows.
const MOST: u64 = 1 << 24;

/// An object of the configuration and where it stands.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    pub fn new(value: &'a Value, path: &str) -> Result<Self, ConfigError> {
        let map = value.as_object().ok_or_else(|| ConfigError::NotAnObject(path.to_owned()))?;
        Ok(Self { map, path: path.to_owned() })
    }

    /// A nested object.
    pub fn object(&self, key: &str) -> Option<Fields<'a>> {
        let map = self.map.get(key)?.as_object()?;
        Some(Fields { map, path: format!("{}.{key}", self.path) })
    }

    /// The names of all its values.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.map.keys().map(String::as_str)
    }

    pub fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    /// The first key of the object for which `wanted` holds.
    pub fn has_any(&self, keys: &[&'static str]) -> Option<&'static str> {
        keys.iter().copied().find(|key| self.has(key))
    }

    pub fn text(&self, key: &str) -> Option<String> {
        self.map.get(key)?.as_str().map(str::to_owned)
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        self.map.get(key)?.as_bool()
    }

    pub fn number(&self, key: &str) -> Option<f64> {
        self.map.get(key)?.as_f64()
    }

    pub fn list(&self, key: &str) -> Option<&'a [Value]> {
        self.map.get(key)?.as_array().map(Vec::as_slice)
    }

    /// A list of sizes.
    pub fn sizes(&self, key: &str) -> Result<Option<Vec<u64>>, ConfigError> {
        let Some(list) = self.list(key) else {
            return Ok(None);
        };
        list.iter().map(|value| self.checked(key, value, 0)).collect::<Result<_, _>>().map(Some)
    }

    /// The first of these keys that is there, as a size of at least 1. A list of equal sides counts as one.
    pub fn size(&self, keys: &[&str]) -> Result<Option<u64>, ConfigError> {
        self.at_least(keys, 1)
    }

    /// The same, where 0 means "none".
    pub fn size_or_zero(&self, keys: &[&str]) -> Result<Option<u64>, ConfigError> {
        self.at_least(keys, 0)
    }

    /// A size that has to be there.
    pub fn need(&self, keys: &[&str]) -> Result<u64, ConfigError> {
        self.size(keys)?.ok_or_else(|| ConfigError::Missing {
            path: self.path.clone(),
            key: keys.first().copied().unwrap_or_default().to_owned(),
        })
    }

    fn at_least(&self, keys: &[&str], least: u64) -> Result<Option<u64>, ConfigError> {
        for key in keys {
            match self.map.get(*key) {
                None | Some(Value::Null) => {}
                Some(Value::Array(sides)) => {
                    if let Some(first) = sides.first() {
                        return self.checked(key, first, least).map(Some);
                    }
                }
                Some(value) => return self.checked(key, value, least).map(Some),
            }
        }
        Ok(None)
    }

    fn checked(&self, key: &str, value: &Value, least: u64) -> Result<u64, ConfigError> {
        let whole = value.as_u64().or_else(|| {
            value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0 && *n <= MOST as f64).map(|n| n as u64)
        });
        whole.filter(|n| (least..=MOST).contains(n)).ok_or_else(|| ConfigError::OutOfRange {
            path: self.path.clone(),
            key: key.to_owned(),
            found: value.to_string(),
            least,
            most: MOST,
        })
    }
}
