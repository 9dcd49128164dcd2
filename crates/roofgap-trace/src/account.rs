//! What a program says about its own run (`ROOFGAP_WORKLOAD_JSON`): model, tokens, wall time of each stage of each repeat.
//!
//! Programs of any language write it, so all but the schema is optional: what is missing is missing.

use crate::ReadError;
use serde::Deserialize;
use std::path::Path;

/// The schema that is understood.
pub const SCHEMA: &str = "roofgap.workload/1";

/// The largest account that is read.
const MOST_BYTES: u64 = 256 << 20;

/// The whole account.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct Account {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The model.
    #[serde(default)]
    pub model: Option<Model>,
    /// Tokens of one repeat.
    #[serde(default)]
    pub tokens: Option<Tokens>,
    /// Where it ran.
    #[serde(default)]
    pub device: Option<Device>,
    /// Every repeat, warm-ups included.
    #[serde(default)]
    pub repeats: Vec<Repeat>,
    /// The program's own operators.
    #[serde(default)]
    pub operators: Vec<Operator>,
    /// Hash of the tokens it gave.
    #[serde(default)]
    pub token_hash: Option<String>,
    /// What the program measured as the peak of its device.
    #[serde(default)]
    pub peak: Option<Peak>,
    /// Anything a reader should know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The model that ran.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Model {
    /// Its name.
    pub name: Option<String>,
    /// Revision of its weights.
    pub revision: Option<String>,
    /// Parameters.
    pub parameters: Option<u64>,
    /// Parameters that one token uses.
    pub active_parameters: Option<u64>,
    /// Number format.
    pub dtype: Option<String>,
    /// `random` or `local`.
    pub weights: Option<String>,
    /// Its configuration, in the manner of a Hugging Face `config.json`.
    pub config: Option<serde_json::Value>,
}

/// Tokens of one repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Of the prompt, vision tokens included.
    pub prompt: Option<u64>,
    /// Generated.
    pub generated: Option<u64>,
    /// Sequences at once.
    pub batch: Option<u64>,
    /// Of images.
    pub vision: Option<u64>,
}

/// Where the program ran.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Device {
    /// `cpu` or `cuda`.
    pub kind: Option<String>,
    /// Its name.
    pub name: Option<String>,
}

/// One repeat.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Repeat {
    /// Whether it is left out of the figures.
    pub warmup: bool,
    /// Its stages.
    pub stages: Vec<StageTime>,
}

/// A stage of a repeat.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct StageTime {
    /// Its name.
    pub name: String,
    /// Its wall time.
    pub wall_ns: i64,
    /// Each of its steps.
    #[serde(default)]
    pub steps_ns: Option<Vec<i64>>,
    /// Parts of it worth naming.
    #[serde(default)]
    pub notes: Vec<NoteTime>,
}

/// A part of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct NoteTime {
    /// Its name.
    pub name: String,
    /// Its wall time.
    pub wall_ns: i64,
}

/// An operator that the program timed itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Operator {
    /// Its name.
    pub name: String,
    /// The stage it belongs to.
    #[serde(default)]
    pub stage: Option<String>,
    /// How often it ran.
    pub calls: u64,
    /// CPU time without what it called.
    pub self_cpu_ns: i64,
    /// CPU time with it.
    pub total_cpu_ns: i64,
    /// GPU time of what it launched itself.
    #[serde(default)]
    pub self_gpu_ns: Option<i64>,
    /// GPU time of all inside it.
    #[serde(default)]
    pub total_gpu_ns: Option<i64>,
}

/// A measured peak.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Peak {
    /// Operations a second.
    pub flops_per_s: Option<f64>,
    /// Bytes a second.
    pub bytes_per_s: Option<f64>,
    /// How it was measured.
    pub how: String,
}

/// Reads an account.
pub fn read(path: &Path) -> Result<Account, ReadError> {
    let length = std::fs::metadata(path).map_err(|e| ReadError::io(path, e))?.len();
    if length > MOST_BYTES {
        return Err(ReadError::damaged(
            path,
            "workload account",
            format!("{length} bytes long"),
        ));
    }
    let text = std::fs::read(path).map_err(|e| ReadError::io(path, e))?;
    let account: Account =
        serde_json::from_slice(&text).map_err(|e| ReadError::damaged(path, "workload account", e))?;
    if account.schema != SCHEMA {
        let what = format!("schema {:?} where {SCHEMA:?} was expected", account.schema);
        return Err(ReadError::damaged(path, "workload account", what));
    }
    Ok(account)
}
