//! The program's own account of its run, as far as a session needs it.
//!
//! Programs of any age and language write it, so everything but the schema is optional here: what is missing is missing.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The schema that is understood.
pub const SCHEMA: &str = "roofgap.workload/1";

/// What the program said.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct Account {
    /// The schema.
    pub schema: String,
    /// What it ran on.
    #[serde(default)]
    pub device: Option<Device>,
    /// Each repeat, warm-ups included.
    #[serde(default)]
    pub repeats: Vec<Repeat>,
    /// Its own operators.
    #[serde(default)]
    pub operators: Vec<serde_json::Value>,
    /// Hash of the tokens it gave.
    #[serde(default)]
    pub token_hash: Option<String>,
}

/// What a program ran on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Device {
    /// `cpu` or `cuda`.
    #[serde(default)]
    pub kind: String,
}

/// One repeat.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct Repeat {
    /// Whether it is left out of the figures.
    #[serde(default)]
    pub warmup: bool,
    /// Its stages.
    #[serde(default)]
    pub stages: Vec<StageTime>,
}

/// A stage of a repeat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct StageTime {
    /// Its name.
    pub name: String,
    /// Its wall time.
    pub wall_ns: u64,
}

/// Why an account cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// There is none.
    #[error("the program wrote no account of its run to {}", path.display())]
    Absent {
        /// Where it should be.
        path: PathBuf,
    },
    /// It is not one.
    #[error("the account {} cannot be understood: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl Account {
    /// Read an account.
    pub fn read(path: &Path) -> Result<Self, AccountError> {
        let bytes = std::fs::read(path).map_err(|_| AccountError::Absent {
            path: path.to_owned(),
        })?;
        let malformed = |why: String| AccountError::Malformed {
            path: path.to_owned(),
            why,
        };
        let account: Account =
            serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        if account.schema == SCHEMA {
            Ok(account)
        } else {
            Err(malformed(format!(
                "its schema is {:?}, expected {SCHEMA:?}",
                account.schema
            )))
        }
    }

    /// The fastest measured time of each stage, in the order of first occurrence. The fastest, because what else runs on a
    /// machine only ever adds to a time.
    pub fn fastest(&self) -> Vec<(String, u64)> {
        let mut fastest: Vec<(String, u64)> = Vec::new();
        let measured = self.repeats.iter().filter(|repeat| !repeat.warmup);
        for stage in measured.flat_map(|repeat| &repeat.stages) {
            match fastest.iter_mut().find(|(name, _)| *name == stage.name) {
                Some((_, best)) => *best = (*best).min(stage.wall_ns),
                None => fastest.push((stage.name.clone(), stage.wall_ns)),
            }
        }
        fastest
    }
}

/// The price of watching, one stage.
#[derive(Debug, Clone, PartialEq)]
pub struct StageOverhead {
    /// The stage.
    pub stage: String,
    /// Watched over unwatched.
    pub ratio: f64,
}

/// Watched over unwatched time of each stage that both accounts have.
pub fn overhead(unwatched: &Account, watched: &Account) -> Vec<StageOverhead> {
    let base = unwatched.fastest();
    watched
        .fastest()
        .into_iter()
        .filter_map(|(stage, watched_ns)| {
            let (_, base_ns) = base.iter().find(|(name, ns)| *name == stage && *ns > 0)?;
            Some(StageOverhead {
                stage,
                ratio: watched_ns as f64 / *base_ns as f64,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(times: &[(bool, &str, u64)]) -> Account {
        let repeat = |(warmup, name, wall_ns): &(bool, &str, u64)| Repeat {
            warmup: *warmup,
            stages: vec![StageTime {
                name: (*name).to_owned(),
                wall_ns: *wall_ns,
            }],
        };
        Account {
            schema: SCHEMA.to_owned(),
            repeats: times.iter().map(repeat).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn overhead_is_of_the_fastest_measured_repeats() {
        let unwatched = account(&[
            (true, "decode", 1),
            (false, "decode", 120),
            (false, "decode", 100),
        ]);
        let watched = account(&[(false, "decode", 150), (false, "decode", 170), (false, "new", 5)]);
        let found = overhead(&unwatched, &watched);
        assert_eq!(
            found,
            [StageOverhead {
                stage: "decode".to_owned(),
                ratio: 1.5
            }]
        );
    }

    #[test]
    fn an_account_with_the_least_is_read_and_another_schema_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        assert!(matches!(Account::read(&path), Err(AccountError::Absent { .. })));
        std::fs::write(&path, r#"{"schema": "roofgap.workload/1", "future": 1}"#).unwrap();
        assert_eq!(Account::read(&path).unwrap().fastest(), []);
        for text in ["", "[]", r#"{"schema": "roofgap.workload/2"}"#, "\0"] {
            std::fs::write(&path, text).unwrap();
            assert!(
                matches!(Account::read(&path), Err(AccountError::Malformed { .. })),
                "{text:?}"
            );
        }
    }
}
