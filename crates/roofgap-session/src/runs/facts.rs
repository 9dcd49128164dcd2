//! As much of a run's documents as a line about it needs. Whatever is missing is missing.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// As much of `metrics.json`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metrics {
    pub(super) devices: Vec<Named>,
    pub(super) stages: Vec<StageTime>,
    pub(super) findings: Vec<FindingLine>,
    pub(super) workload: Option<Workload>,
}

/// Anything with a name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: Option<String>,
}

/// A stage and its time.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct StageTime {
    pub(super) name: String,
    pub(super) wall_ns: i64,
    pub(super) busy_ns: Option<i64>,
    pub(super) instances: u64,
}

/// A finding.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct FindingLine {
    pub(super) title: String,
}

/// What ran.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Workload {
    pub(super) model: Option<String>,
    pub(super) device: Option<String>,
}

/// As much of `env.json`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Environment {
    pub(super) gpus: Option<Gpus>,
}

/// The GPUs of the machine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Gpus {
    pub(super) gpus: Vec<Named>,
}

/// A document of a run, or nothing.
pub(super) fn read<T: DeserializeOwned + Default>(path: &Path) -> T {
    std::fs::read(path)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}
