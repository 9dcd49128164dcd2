//! Reasons for values that are null or empty.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A reason for a value that is null or empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The part of the analysis, as a path into the JSON such as `stages.decode.mfu`.
    pub about: About,
    /// The reason, as a sentence without a full stop.
    pub why: String,
}

impl Reason {
    /// Gives a reason for a part of the analysis.
    pub fn new(about: About, why: impl Into<String>) -> Self {
        Self { about, why: why.into() }
    }
}

/// The part of an analysis that a reason is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum About {
    /// `sources`
    Sources,
    /// `stages`
    Stages,
    /// `stages.NAME`
    Stage(String),
    /// `stages.NAME.mfu`
    StageMfu(String),
    /// `stages.NAME.mbu`
    StageMbu(String),
    /// `stages.NAME.tokens_per_s`
    StageTokens(String),
    /// `kernels`
    Kernels,
    /// `operators`
    Operators,
    /// `counters`
    Counters,
    /// `overhead`
    Overhead,
    /// Any other path.
    Other(String),
}

impl fmt::Display for About {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sources => out.write_str("sources"),
            Self::Stages => out.write_str("stages"),
            Self::Stage(name) => write!(out, "stages.{name}"),
            Self::StageMfu(name) => write!(out, "stages.{name}.mfu"),
            Self::StageMbu(name) => write!(out, "stages.{name}.mbu"),
            Self::StageTokens(name) => write!(out, "stages.{name}.tokens_per_s"),
            Self::Kernels => out.write_str("kernels"),
            Self::Operators => out.write_str("operators"),
            Self::Counters => out.write_str("counters"),
            Self::Overhead => out.write_str("overhead"),
            Self::Other(path) => out.write_str(path),
        }
    }
}

impl From<About> for String {
    fn from(about: About) -> Self {
        about.to_string()
    }
}

impl From<String> for About {
    fn from(path: String) -> Self {
        match path.as_str() {
            "sources" => Self::Sources,
            "stages" => Self::Stages,
            "kernels" => Self::Kernels,
            "operators" => Self::Operators,
            "counters" => Self::Counters,
            "overhead" => Self::Overhead,
            _ => match path.strip_prefix("stages.") {
                Some(stage) => match stage.rsplit_once('.') {
                    Some((name, "mfu")) => Self::StageMfu(name.to_owned()),
                    Some((name, "mbu")) => Self::StageMbu(name.to_owned()),
                    Some((name, "tokens_per_s")) => Self::StageTokens(name.to_owned()),
                    _ => Self::Stage(stage.to_owned()),
                },
                None => Self::Other(path),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_a_round_trip() {
        for path in [
            "sources",
            "stages",
            "stages.decode",
            "stages.a.b.mfu",
            "stages.decode.mbu",
            "stages.decode.tokens_per_s",
            "kernels",
            "requests",
        ] {
            assert_eq!(About::from(path.to_owned()).to_string(), path);
        }
        assert_eq!(About::from("stages.a.b.mfu".to_owned()), About::StageMfu("a.b".into()));
    }
}
