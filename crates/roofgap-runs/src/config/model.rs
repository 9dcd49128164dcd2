//! The model of a configuration: a folder of weights, a `config.json` or a preset.

use std::path::{Path, PathBuf};

use roofgap_analyze::model::{Architecture, preset, preset_config};
use roofgap_base::error::Error;
use roofgap_base::file::read_document;

use super::settings::{Config, Model, WorkloadKind};

/// Returns the folder of the weights, where `model.target` names one.
pub fn weights(model: &Model) -> Option<PathBuf> {
    let folder = model.target.as_ref().map(PathBuf::from);
    folder.filter(|folder| folder.is_dir())
}

/// Returns the preset: `model.target` where it is not a folder, else `model.preset`.
fn preset_name(model: &Model) -> Option<&str> {
    match &model.target {
        Some(target) if weights(model).is_none() => Some(target),
        _ => model.preset.as_deref(),
    }
}

/// Returns the `config.json` of the preset that random weights need; `None` where there are weights or a `model.config`.
pub fn config_json(config: &Config) -> Result<Option<&'static str>, Error> {
    let model = &config.model;
    if config.workload.kind != WorkloadKind::Hf || weights(model).is_some() || model.config.is_some() {
        return Ok(None);
    }
    let Some(name) = preset_name(model) else {
        return Ok(None);
    };
    match (preset_config(name), &model.target) {
        (Ok(text), _) => Ok(Some(text)),
        (Err(error), Some(target)) => Err(Error::new(format!(
            "model.target is {target}, which is neither a folder nor the name of a preset: {error}"
        ))),
        (Err(error), None) => Err(Error::of(error)),
    }
}

/// Reads the architecture for FLOPs and bytes; `None` where only the program's account can name it.
pub(crate) fn architecture(config: &Config) -> Result<Option<Architecture>, Error> {
    let model = &config.model;
    if config.workload.kind == WorkloadKind::Embedded {
        // The embedded model is far smaller than the model it imitates; its account has its own configuration.
        return Ok(None);
    }
    let in_folder = weights(model).map(|folder| folder.join("config.json"));
    let file = model.config.clone().or_else(|| in_folder.filter(|file| file.is_file()));
    match (file, preset_name(model)) {
        (Some(file), _) => read(&file).map(Some),
        // Changed keys make another model than the preset; the account has their configuration.
        (None, Some(name)) if model.set.is_empty() => preset(name).map(Some).map_err(Error::of),
        (None, _) => Ok(None),
    }
}

fn read(path: &Path) -> Result<Architecture, Error> {
    let bytes = read_document(path).map_err(Error::io("read", path))?;
    let malformed = |error: &dyn std::error::Error| Error::new(format!("{}: {error}", path.display()));
    let json = serde_json::from_slice(&bytes).map_err(|error| malformed(&error))?;
    Architecture::from_config(&json).map_err(|error| malformed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigProps, compose};

    #[test]
    fn a_target_is_a_folder_of_weights_or_the_name_of_a_preset() {
        let composed = |target: &str| {
            let overrides =
                ["workload=hf".to_owned(), "model=llama3_8b".to_owned(), format!("model.target='{target}'")];
            let props = ConfigProps { overrides: overrides.to_vec(), ..Default::default() };
            compose(&props).unwrap().config
        };
        let folder = tempfile::tempdir().unwrap();
        let weights = composed(&folder.path().display().to_string());
        assert_eq!(config_json(&weights).unwrap(), None);
        let text = config_json(&composed("qwen3_0_6b")).unwrap().unwrap();
        assert!(text.contains("Qwen3-0.6B"));
        let error = config_json(&composed("no/such/folder")).unwrap_err().to_string();
        assert!(error.contains("neither a folder nor the name of a preset"), "{error}");
    }
}
