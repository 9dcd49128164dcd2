//! Reads the output folder of a Stage 1 runner (`llm_profile_runner`) as the account of a workload.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use roofgap_collect::file::{read_document, write_atomic};
use roofgap_collect::program::Phase;
use roofgap_trace::account::{Account, NoteTime, Repeat, SCHEMA, StageTime, TokenCounts};
use serde::Deserialize;

use crate::config::settings::WorkloadKind;
use crate::run::context::PhaseContext;
use crate::run_dir::PhaseName;

/// Folders of `metrics.json` below the output folder of the runner.
const FOLDERS: [&str; 2] = ["", "torch_profiler"];

/// Parts of prefill that the runner times on their own.
const PARTS: [&str; 4] = ["vision", "sam", "clip", "projector"];

/// `metrics.json` of the runner.
#[derive(Deserialize)]
struct Metrics {
    aggregates: Aggregates,
    #[serde(default)]
    model_dims: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Aggregates {
    prefill_ms: Statistic,
    decode_ms: Statistic,
    tokens: Option<Statistic>,
    #[serde(default)]
    stage_ms: BTreeMap<String, Statistic>,
}

/// Mean and standard deviation over the images of a run.
#[derive(Clone, Copy, Deserialize)]
struct Statistic {
    mean: f64,
    std: f64,
}

impl Statistic {
    fn mean_ns(self) -> i64 {
        (self.mean * 1e6).round() as i64
    }
}

/// Finds the `metrics.json` of a Stage 1 runner in its output folder.
pub(crate) fn metrics_file(folder: &Path) -> Option<PathBuf> {
    let mut files = FOLDERS
        .iter()
        .map(|below| folder.join(below).join("metrics.json"));
    files.find(|file| is_stage1(file))
}

fn is_stage1(file: &Path) -> bool {
    let Ok(text) = read_document(file) else {
        return false;
    };
    serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|json| json.get("aggregates").is_some())
}

/// Reads the means of a run as an account with one repeat. The runner keeps no times of single images.
pub(crate) fn read(file: &Path) -> Result<Account, String> {
    let text = read_document(file).map_err(|error| error.to_string())?;
    let metrics: Metrics = serde_json::from_slice(&text)
        .map_err(|error| format!("not the metrics of a Stage 1 runner: {error}"))?;
    Ok(account_of(&metrics))
}

/// Writes the account of a Hydra program that wrote none, from the output of its Stage 1 runner.
pub(crate) fn write_account(context: &mut PhaseContext<'_>, name: PhaseName, phase: Phase, account: &Path) {
    if context.config.workload.kind != WorkloadKind::Hydra || account.exists() {
        return;
    }
    let outputs = context.layout.program_outputs().join(phase.as_str());
    let Some(file) = metrics_file(&outputs) else {
        return;
    };
    let written = read(&file).and_then(|found| {
        let text = found.to_json().map_err(|error| error.to_string())?;
        write_atomic(account, &text).map_err(|error| error.to_string())
    });
    let note = match written {
        Ok(()) => format!("times and tokens are those of {}", file.display()),
        Err(why) => format!("cannot use {}: {why}", file.display()),
    };
    context.record.note(name, note);
}

fn account_of(metrics: &Metrics) -> Account {
    let aggregates = &metrics.aggregates;
    let parts = PARTS.iter().filter_map(|part| {
        let time = aggregates.stage_ms.get(*part)?;
        Some(NoteTime {
            name: (*part).to_owned(),
            wall_ns: time.mean_ns(),
        })
    });
    let stage = |name: &str, time: Statistic, notes: Vec<NoteTime>| StageTime {
        name: name.to_owned(),
        wall_ns: time.mean_ns(),
        steps_ns: None,
        notes,
    };
    let (prefill, decode) = (aggregates.prefill_ms, aggregates.decode_ms);
    let mut notes = vec![format!(
        "means of a Stage 1 runner: prefill {:.3} ms (standard deviation {:.3}), decode {:.3} ms ({:.3})",
        prefill.mean, prefill.std, decode.mean, decode.std
    )];
    if !metrics.model_dims.is_empty() {
        let dims = metrics
            .model_dims
            .iter()
            .map(|(name, size)| format!("{name} {size}"));
        notes.push(format!(
            "model as the runner saw it: {}",
            dims.collect::<Vec<_>>().join(", ")
        ));
    }
    Account {
        schema: SCHEMA.to_owned(),
        tokens: aggregates.tokens.map(|tokens| TokenCounts {
            generated: (tokens.mean >= 0.5).then(|| tokens.mean.round() as u64),
            ..TokenCounts::default()
        }),
        repeats: vec![Repeat {
            warmup: false,
            stages: vec![
                stage("prefill", prefill, parts.collect()),
                stage("decode", decode, Vec::new()),
            ],
        }],
        notes,
        ..Account::default()
    }
}
