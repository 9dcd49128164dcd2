//! The workload account: what the program says of itself.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::WorkloadError;

/// The schema this crate writes and reads.
pub const SCHEMA: &str = "roofgap.workload/1";

/// All a profiled program tells about its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What model ran.
    pub model: ModelFacts,
    /// Tokens in and out.
    pub tokens: TokenCounts,
    /// What it ran on.
    pub device: DeviceFacts,
    /// Each repeat in order, warm-ups included.
    pub repeats: Vec<Repeat>,
    /// The program's own operators over the measured repeats.
    pub operators: Vec<OperatorTime>,
    /// Hash of the generated tokens: equal hashes, equal output.
    pub token_hash: Option<String>,
    /// The measured peak of the device, where the program measured one.
    pub peak: Option<Peak>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// What model ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {
    /// A name for a person.
    pub name: String,
    /// The revision of its weights, where it has one.
    pub revision: Option<String>,
    /// All parameters that were allocated.
    pub parameters: Option<u64>,
    /// Parameters one decoded token uses: without the embedding table, vision and experts that were not picked.
    pub active_parameters: Option<u64>,
    /// Type of the weights, such as `bf16`.
    pub dtype: String,
    /// `random` or `local`.
    pub weights: String,
    /// The architecture in the form of a Hugging Face `config.json`.
    pub config: Option<serde_json::Value>,
}

/// Tokens in and out, per repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCounts {
    /// Positions of the prefill, those of the image included.
    pub prompt: u64,
    /// Decode steps: each takes one token and gives the next. The token that prefill gives is not among them.
    pub generated: u64,
    /// Sequences at once.
    pub batch: u64,
    /// Positions of the prefill that came from images.
    pub vision: Option<u64>,
}

/// What the model ran on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// `cpu` or `cuda`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// One pass over prompt and decode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// Whether it is left out of the figures.
    pub warmup: bool,
    /// Its stages in order.
    pub stages: Vec<StageTime>,
}

/// Wall time of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTime {
    /// `prefill` or `decode`.
    pub name: String,
    /// Wall time in nanoseconds.
    pub wall_ns: u64,
    /// Wall time of each step, for a stage that has steps.
    pub steps_ns: Option<Vec<u64>>,
    /// Parts of the stage that are worth a line.
    pub notes: Vec<Note>,
}

/// A part of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Its name, such as `sam`.
    pub name: String,
    /// Wall time in nanoseconds.
    pub wall_ns: u64,
}

/// Time of one operator in one stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorTime {
    /// Its name, such as `matmul`.
    pub name: String,
    /// The stage it ran in.
    pub stage: Option<String>,
    /// How often it ran.
    pub calls: u64,
    /// Time in itself, without operators inside it.
    pub self_cpu_ns: u64,
    /// Time with operators inside it.
    pub total_cpu_ns: u64,
    /// GPU time in itself.
    pub self_gpu_ns: Option<u64>,
    /// GPU time with operators inside it.
    pub total_gpu_ns: Option<u64>,
}

/// A measured peak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Arithmetic peak, operations a second.
    pub flops_per_s: f64,
    /// Memory bandwidth, bytes a second.
    pub bytes_per_s: Option<f64>,
    /// How both were measured.
    pub how: String,
}

impl Account {
    /// Writes the account whole: under a temporary name beside it, then renamed.
    pub fn write(&self, path: &Path) -> Result<(), WorkloadError> {
        self.write_whole(path)
            .map_err(|source| WorkloadError::WriteAccount {
                path: path.to_owned(),
                source,
            })
    }

    fn write_whole(&self, path: &Path) -> io::Result<()> {
        let mut name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?
            .to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let written = fs::File::create(&temporary)
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The first error is the one worth telling; a file that cannot be removed adds nothing to it.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Reads an account, refusing another schema.
    pub fn read(path: &Path) -> Result<Account, WorkloadError> {
        let failed = |source| WorkloadError::ReadAccount {
            path: path.to_owned(),
            source,
        };
        let text = fs::read(path).map_err(failed)?;
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        let schema = value.get("schema").and_then(|schema| schema.as_str());
        if schema != Some(SCHEMA) {
            return Err(WorkloadError::Schema {
                path: path.to_owned(),
                found: schema.unwrap_or_default().to_owned(),
            });
        }
        serde_json::from_value(value).map_err(|error| failed(error.into()))
    }
}
