//! The configuration of a model preset as a `config.json`, for random weights of it.

use std::path::PathBuf;

use roofgap_analyze::model::preset_config;
use roofgap_collect::rundir::{RunDir, RunDirError};

use crate::config::Config;
use crate::config::settings::{Model, WorkloadKind};

/// The `config.json` of a preset.
pub(super) fn config_json(preset: &str) -> Result<&'static str, String> {
    preset_config(preset).map_err(|error| error.to_string())
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
    use super::*;

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
