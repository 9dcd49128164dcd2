//! Reads the output folder of a Stage 1 runner (`llm_profile_runner`) as the account of a workload.
//!
//! The runner writes `metrics.json`, `operators.md`, `inputs.yaml` and `assumptions.md` into its output folder or into
//! `torch_profiler` below it, and `static_compute.json` beside them or into `static_analysis`. Only the first is required.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use roofgap_base::file::{read_document, read_text, write_atomic};
use roofgap_base::numbers::time;
use roofgap_trace::account::{
    self, Account, ModelFacts, NoteTime, Repeat, SCHEMA, Stage1Figures, Stage1Mfu, Stage1Operator,
    Stage1Time, StageTime, Statistic, TokenCounts,
};
use serde::Deserialize;
use serde_json::Value as Json;

use super::ComposedConfig;
use crate::run::context::{AttemptError, PhaseContext};
use crate::run::inputs::write_inputs;
use roofgap_runs::config::read_yaml;
use roofgap_runs::config::settings::WorkloadKind;

/// Folders of `metrics.json` below the output folder of the runner, or of a session of the original system.
const FOLDERS: [&str; 3] = ["", "torch_profiler", "stage1"];

/// Places of `static_compute.json`, relative to the folder of `metrics.json`.
const STATIC_COMPUTE: [&str; 2] = ["static_compute.json", "../static_analysis/static_compute.json"];

/// Parts of prefill that the runner times on their own.
const PARTS: [&str; 4] = ["vision", "sam", "clip", "projector"];

/// `metrics.json` of the runner.
#[derive(Deserialize)]
struct Metrics {
    aggregates: Aggregates,
    mfu_model_level: Option<f64>,
    #[serde(default)]
    mfu_per_stage: BTreeMap<String, f64>,
    peak_tflops: Option<f64>,
    #[serde(default)]
    model_dims: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Aggregates {
    prefill_ms: Statistic,
    decode_ms: Statistic,
    tokens: Option<Statistic>,
    tokens_per_s: Option<Statistic>,
    #[serde(default)]
    stage_ms: BTreeMap<String, Statistic>,
}

fn ns(ms: f64) -> i64 {
    (ms * 1e6).round() as i64
}

/// Finds the `metrics.json` of a Stage 1 runner in its output folder.
pub fn metrics_file(folder: &Path) -> Option<PathBuf> {
    let mut files = FOLDERS.iter().map(|below| folder.join(below).join("metrics.json"));
    files.find(|file| json(file).is_some_and(|json| json.get("aggregates").is_some()))
}

/// Reads a file that is not too large.
fn text(file: &Path) -> Option<String> {
    read_text(file).ok()
}

fn json(file: &Path) -> Option<Json> {
    serde_json::from_str(&text(file)?).ok()
}

/// Reads the means of a run as an account with one repeat. The runner keeps no times of single images.
pub fn read(file: &Path) -> Result<Account, AttemptError> {
    let metrics: Metrics = serde_json::from_slice(&read_document(file)?)
        .map_err(|error| AttemptError::new(format!("not the metrics of a Stage 1 runner: {error}")))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut account = account_of(&metrics);
    let assumptions = assumptions(folder);
    account.model = model(folder, &assumptions);
    if let Some(tokens) = &mut account.tokens {
        tokens.prompt = prompt_tokens(folder);
        tokens.batch = assumptions.get("Batch size").and_then(|size| size.parse().ok());
    }
    account.stage1 = Some(figures(folder, &metrics));
    // What a runner wrote may be out of range, like any account.
    Ok(Account::from_json(&account.to_json()?)?)
}

/// Records the account of a program as an output. Adds the output of a Stage 1 runner to the account of a Hydra program, or writes the
/// account where the program wrote none.
pub fn complete_account(context: &mut PhaseContext<'_>, account: &Path) {
    if context.config.workload.kind == WorkloadKind::Hydra
        && let Some(file) = metrics_file(&outputs(context))
    {
        let added = add_runner(context, account, &file);
        context.note(match added {
            Ok(()) => format!("Stage 1 figures are those of {}", file.display()),
            Err(error) => format!("cannot use {}: {}", file.display(), error.why),
        });
    }
    context.output(account);
}

/// Returns the folder in which a Hydra program writes its output in this phase.
fn outputs(context: &PhaseContext<'_>) -> PathBuf {
    context.layout.program_outputs().join(context.phase.as_str())
}

/// Adds the output of a Stage 1 runner to an account. Lists the inputs that it read, and warns where its torch.profiler ran.
fn add_runner(context: &mut PhaseContext<'_>, account: &Path, file: &Path) -> Result<(), AttemptError> {
    let found = read(file)?;
    let operators = operator_count(&found);
    if operators > 0 {
        context.warn(format!(
            "{}: torch.profiler of the module ran ({operators} operators in {}), so its times include that; turn it off with workload.overrides",
            context.phase,
            file.with_file_name("operators.md").display()
        ));
    }
    let images = images_read(file, context.module_config.as_ref());
    write_inputs(context, &images);
    let merged = merge(account::read(account).ok(), found, context.module_config.as_ref());
    Ok(write_atomic(account, &merged.to_json()?)?)
}

/// Counts the operators that a Stage 1 runner listed.
pub fn operator_count(account: &Account) -> usize {
    account.stage1.as_ref().map_or(0, |figures| figures.operators.len())
}

/// Reads the operators that the runner wrote in a run with its torch.profiler on, and keeps them as an account. Returns their number.
pub fn keep_operators(context: &mut PhaseContext<'_>, account: &Path) -> Result<usize, AttemptError> {
    let outputs = outputs(context);
    let file = metrics_file(&outputs).ok_or_else(|| {
        AttemptError::new(format!("{} has no metrics.json of a Stage 1 runner", outputs.display()))
    })?;
    let found = read(&file)?;
    write_atomic(account, &found.to_json()?)?;
    context.note(format!("operators are those of {}", file.with_file_name("operators.md").display()));
    Ok(operator_count(&found))
}

/// Completes the program's own account, which has the time of each repeat, with that of its Stage 1 runner. The configuration of
/// the module names the model.
fn merge(own: Option<Account>, runner: Account, config: Option<&ComposedConfig>) -> Account {
    let mut account = match own {
        Some(mut own) => {
            own.model = own.model.or(runner.model);
            own.stage1 = runner.stage1;
            own.notes.extend(runner.notes);
            own
        }
        None => runner,
    };
    let text = |key: &str| {
        let value = config?.get(key)?;
        let usable = !value.is_empty() && value != "null" && !value.contains("${");
        usable.then(|| value.to_owned())
    };
    let (name, dtype) = (text("model.name"), text("model.dtype"));
    if name.is_some() || dtype.is_some() {
        let model = account.model.get_or_insert_default();
        model.name = name.or(model.name.take());
        model.dtype = model.dtype.take().or(dtype);
    }
    account
}

/// Lists the images that the runner read: the first of `inputs.yaml`, as many as its configuration limits a run to.
fn images_read(metrics: &Path, config: Option<&ComposedConfig>) -> Vec<PathBuf> {
    let file = metrics.with_file_name("inputs.yaml");
    let inputs = text(&file).and_then(|yaml| read_yaml(&yaml, &file).ok()).unwrap_or_default();
    let images = inputs.get("images").and_then(Json::as_array);
    let is_random = config.and_then(|config| config.get("dataset.sampling.randomize")) == Some("true");
    let limit = config
        .filter(|_| !is_random)
        .and_then(|config| {
            let limit = config.get("repeats");
            limit.or_else(|| config.get("dataset.sampling.num_samples_per_epoch"))
        })
        .and_then(|limit| limit.parse().ok())
        .unwrap_or(usize::MAX);
    let path = |image: &Json| Some(PathBuf::from(image.get("path")?.as_str()?));
    images.into_iter().flatten().filter_map(path).take(limit).collect()
}

/// Reads the list items `Name: value` of `assumptions.md`.
fn assumptions(folder: &Path) -> BTreeMap<String, String> {
    let text = text(&folder.join("assumptions.md")).unwrap_or_default();
    let item = |line: &str| {
        let (name, value) = line.trim_start().strip_prefix("- ")?.split_once(": ")?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(item).collect()
}

fn static_compute(folder: &Path) -> Option<Json> {
    STATIC_COMPUTE.iter().find_map(|place| json(&folder.join(place)))
}

/// Collects the facts of the model: its folder, the configuration there, and its parameters.
fn model(folder: &Path, assumptions: &BTreeMap<String, String>) -> Option<ModelFacts> {
    let path = assumptions.get("Model path").map(PathBuf::from);
    let counted = static_compute(folder).and_then(|report| {
        let total = report.pointer("/total/params").or(report.pointer("/params/total"));
        total?.as_u64().filter(|count| *count > 0)
    });
    let config = path.as_ref().and_then(|path| json(&path.join("config.json")));
    let name = path.as_ref().and_then(|path| path.file_name());
    let facts = ModelFacts {
        name: name.map(|name| name.to_string_lossy().into_owned()),
        parameters: counted,
        config,
        ..ModelFacts::default()
    };
    (facts != ModelFacts::default()).then_some(facts)
}

/// Reads the prompt length that the static analysis of the runner measured.
fn prompt_tokens(folder: &Path) -> Option<u64> {
    let report = static_compute(folder)?;
    report.pointer("/metadata/seq_len")?.as_u64().filter(|count| *count > 1)
}

fn figures(folder: &Path, metrics: &Metrics) -> Stage1Figures {
    let aggregates = &metrics.aggregates;
    let time = |name: &str, value: Statistic| Stage1Time {
        name: name.to_owned(),
        mean_ns: ns(value.mean),
        std_ns: ns(value.std),
    };
    let mut times = vec![time("prefill", aggregates.prefill_ms), time("decode", aggregates.decode_ms)];
    let parts = PARTS.iter().filter_map(|part| Some(time(part, *aggregates.stage_ms.get(*part)?)));
    times.extend(parts);
    let model = metrics.mfu_model_level.map(|value| ("model", value));
    let stages = metrics.mfu_per_stage.iter().map(|(name, value)| (name.as_str(), *value));
    let mfu = model
        .into_iter()
        .chain(stages)
        // The runner writes 0 for what it did not compute.
        .filter(|(_, share)| *share > 0.0)
        .map(|(name, share)| Stage1Mfu { name: name.to_owned(), pct: share * 100.0 });
    Stage1Figures {
        path: folder.display().to_string(),
        times,
        tokens: aggregates.tokens,
        tokens_per_s: aggregates.tokens_per_s,
        mfu: mfu.collect(),
        peak_tflops: metrics.peak_tflops.filter(|peak| *peak > 0.0),
        operators: operators(&text(&folder.join("operators.md")).unwrap_or_default()),
    }
}

/// Reads the table of `operators.md`: name, total ms, CUDA ms, calls, mean ms. A name may contain the separator.
fn operators(markdown: &str) -> Vec<Stage1Operator> {
    let row = |line: &str| {
        let cells = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let mut cells = cells.rsplitn(5, '|').map(str::trim);
        let (_mean, calls) = (cells.next()?, cells.next()?);
        let (gpu, cpu, name) = (cells.next()?, cells.next()?, cells.next()?);
        let time = |text: &str| {
            let ms: f64 = text.parse().ok()?;
            (ms.is_finite() && ms >= 0.0).then(|| ns(ms))
        };
        Some(Stage1Operator {
            name: name.to_owned(),
            calls: calls.parse().ok()?,
            cpu_ns: time(cpu)?,
            gpu_ns: time(gpu)?,
        })
    };
    markdown.lines().filter_map(row).collect()
}

fn account_of(metrics: &Metrics) -> Account {
    let aggregates = &metrics.aggregates;
    let parts = PARTS.iter().filter_map(|part| {
        let time = aggregates.stage_ms.get(*part)?;
        Some(NoteTime { name: (*part).to_owned(), wall_ns: ns(time.mean) })
    });
    let stage = |name: &str, time: Statistic, notes: Vec<NoteTime>| StageTime {
        name: name.to_owned(),
        wall_ns: ns(time.mean),
        notes,
        ..StageTime::default()
    };
    let (prefill, decode) = (aggregates.prefill_ms, aggregates.decode_ms);
    let mut notes = vec![format!(
        "means of a Stage 1 runner: prefill {} (standard deviation {}), decode {} ({})",
        time(ns(prefill.mean)),
        time(ns(prefill.std)),
        time(ns(decode.mean)),
        time(ns(decode.std))
    )];
    if !metrics.model_dims.is_empty() {
        let dims = metrics.model_dims.iter().map(|(name, size)| format!("{name} {size}"));
        notes.push(format!("model as the runner saw it: {}", dims.collect::<Vec<_>>().join(", ")));
    }
    Account {
        schema: SCHEMA.to_owned(),
        tokens: aggregates.tokens.map(|tokens| TokenCounts {
            generated: (tokens.mean >= 0.5).then(|| tokens.mean.round() as u64),
            ..TokenCounts::default()
        }),
        repeats: vec![Repeat {
            warmup: false,
            stages: vec![stage("prefill", prefill, parts.collect()), stage("decode", decode, Vec::new())],
        }],
        notes,
        ..Account::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_table_of_the_runner() {
        let table = "\n# Operator Summary (Top‑K)\n\nRows: 2 (k=20)\n|op_name|total_time_ms|cuda_time_ms|calls|mean_ms|\n\
                     | :---: | :---: | :---: | :---: | :---: |\n|aten::mm|12.500|30.000|8|1.562500|\n|a | b|1.000|0.000|1|1.000000|\n";
        let found = operators(table);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(
            found[0],
            Stage1Operator { name: "aten::mm".into(), calls: 8, cpu_ns: 12_500_000, gpu_ns: 30_000_000 }
        );
        assert_eq!(found[1].name, "a | b");
        assert_eq!(operators("| aten::mm | nan | -1 | 2 | 0 |"), []);
    }

    #[test]
    fn the_own_account_of_a_program_keeps_its_repeats() {
        let own = Account { repeats: vec![Repeat::default(), Repeat::default()], ..Account::default() };
        let runner = Account {
            repeats: vec![Repeat::default()],
            stage1: Some(Stage1Figures::default()),
            ..Account::default()
        };
        let config = ComposedConfig::parse("model:\n  name: deepseek_ocr\n  dtype: bf16\n  path: ${x}/y\n");
        let merged = merge(Some(own), runner, Some(&config));
        assert_eq!(merged.repeats.len(), 2);
        assert!(merged.stage1.is_some());
        let model = merged.model.unwrap();
        assert_eq!((model.name.as_deref(), model.dtype.as_deref()), (Some("deepseek_ocr"), Some("bf16")));
    }
}
