//! The configuration of a model preset as a `config.json`, for random weights of it.

use std::path::PathBuf;

use roofgap_collect::rundir::{RunDir, RunDirError};

use crate::config::Config;
use crate::config::settings::{Model, WorkloadKind};

/// Preset by name, and its configuration in the form of a Hugging Face `config.json`.
const FILES: &[(&str, &str)] = &[
    (
        "deepseek_ocr",
        include_str!("../../../roofgap-analyze/presets/deepseek_ocr.json"),
    ),
    (
        "deepseek_ocr2",
        include_str!("../../../roofgap-analyze/presets/deepseek_ocr2.json"),
    ),
    (
        "deepseek_v2_lite",
        include_str!("../../../roofgap-analyze/presets/deepseek_v2_lite.json"),
    ),
    (
        "gpt_oss_120b",
        include_str!("../../../roofgap-analyze/presets/gpt_oss_120b.json"),
    ),
    (
        "gpt_oss_20b",
        include_str!("../../../roofgap-analyze/presets/gpt_oss_20b.json"),
    ),
    (
        "llama3_8b",
        include_str!("../../../roofgap-analyze/presets/llama3_8b.json"),
    ),
    (
        "qwen3_0_6b",
        include_str!("../../../roofgap-analyze/presets/qwen3_0_6b.json"),
    ),
    (
        "qwen3_14b",
        include_str!("../../../roofgap-analyze/presets/qwen3_14b.json"),
    ),
    (
        "qwen3_1_7b",
        include_str!("../../../roofgap-analyze/presets/qwen3_1_7b.json"),
    ),
    (
        "qwen3_30b_a3b",
        include_str!("../../../roofgap-analyze/presets/qwen3_30b_a3b.json"),
    ),
    (
        "qwen3_32b",
        include_str!("../../../roofgap-analyze/presets/qwen3_32b.json"),
    ),
    (
        "qwen3_4b",
        include_str!("../../../roofgap-analyze/presets/qwen3_4b.json"),
    ),
    (
        "qwen3_8b",
        include_str!("../../../roofgap-analyze/presets/qwen3_8b.json"),
    ),
];

/// The `config.json` of a preset.
pub(super) fn config_json(preset: &str) -> Result<&'static str, String> {
    FILES
        .iter()
        .find(|(name, _)| *name == preset)
        .map(|(_, text)| *text)
        .ok_or_else(|| {
            let known: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
            format!(
                "there is no architecture {preset:?}; there are {}",
                known.join(", ")
            )
        })
}

/// The folder of the weights, where `model.target` names one.
pub(super) fn weights(model: &Model) -> Option<PathBuf> {
    model
        .target
        .as_ref()
        .map(PathBuf::from)
        .filter(|folder| folder.is_dir())
}

/// The preset: `model.target` where it is a name and not a folder, else `model.preset`.
pub(super) fn preset_name(model: &Model) -> Option<&str> {
    match &model.target {
        Some(target) if weights(model).is_none() => Some(target),
        _ => model.preset.as_deref(),
    }
}

/// The `config.json` that random weights are made from; none where there are weights or a `model.config`.
pub(super) fn text(config: &Config) -> Result<Option<&'static str>, String> {
    let model = &config.model;
    if config.workload.kind != WorkloadKind::Hf || weights(model).is_some() || model.config.is_some() {
        return Ok(None);
    }
    match preset_name(model) {
        Some(name) => config_json(name).map(Some).map_err(|why| match &model.target {
            Some(target) => {
                format!("model.target is {target}, which is neither a folder nor the name of a preset: {why}")
            }
            None => why,
        }),
        None => Ok(None),
    }
}

/// Write it into the run directory, where the driver is pointed to it.
pub(super) fn write(run_dir: &RunDir, config: &Config) -> Result<Option<PathBuf>, String> {
    let Some(text) = text(config)? else {
        return Ok(None);
    };
    let said = |error: RunDirError| error.to_string();
    run_dir.folder("model").map_err(said)?;
    run_dir
        .write("model/config.json", text.as_bytes())
        .map(Some)
        .map_err(said)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_table_names_every_preset_of_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../roofgap-analyze/presets");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|entry| {
                entry
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .strip_suffix(".json")
                    .map(str::to_owned)
            })
            .collect();
        there.sort();
        let listed: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(there, listed);
    }

    #[test]
    fn an_unknown_preset_is_refused_with_those_there_are() {
        assert!(config_json("qwen3_0_6b").unwrap().contains("\"qwen3\""));
        let why = config_json("nope").unwrap_err();
        assert!(why.contains("qwen3_0_6b"), "{why}");
    }

    #[test]
    fn a_target_is_a_folder_of_weights_or_the_name_of_a_preset() {
        let composed = |target: &str| {
            let overrides = [
                "workload=hf".to_owned(),
                "model=llama3_8b".to_owned(),
                format!("model.target='{target}'"),
            ];
            let props = crate::config::ConfigProps {
                overrides: overrides.to_vec(),
                ..Default::default()
            };
            crate::config::compose(&props).unwrap().config
        };
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(text(&composed(&folder.path().display().to_string())), Ok(None));
        assert!(
            text(&composed("qwen3_0_6b"))
                .unwrap()
                .unwrap()
                .contains("Qwen3-0.6B")
        );
        let why = text(&composed("no/such/folder")).unwrap_err();
        assert!(why.contains("neither a folder nor the name of a preset"), "{why}");
    }
}
