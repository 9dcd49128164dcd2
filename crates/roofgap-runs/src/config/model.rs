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

/// Reads the architecture for FLOPs and bytes; `None` where only the program's account can name it. With `folders`, only files in them are
/// looked at, and the answer is the same whether another file exists or not.
pub(crate) fn architecture(
    config: &Config,
    folders: Option<&[PathBuf]>,
) -> Result<Option<Architecture>, Error> {
    let model = &config.model;
    if config.workload.kind == WorkloadKind::Embedded {
        // The embedded model is far smaller than the model it imitates; its account has its own configuration.
        return Ok(None);
    }
    let may_read = |path: &Path| {
        let is_inside = |full: PathBuf| folders.into_iter().flatten().any(|folder| full.starts_with(folder));
        folders.is_none() || path.canonicalize().is_ok_and(is_inside)
    };
    let outside =
        |path: &Path| Error::new(format!("{} is not in the folders that may be read", path.display()));
    let weights = weights(model).filter(|folder| may_read(folder));
    let target = model.target.as_ref().filter(|_| weights.is_none());
    let in_folder = weights.map(|folder| folder.join("config.json"));
    let in_folder = in_folder.filter(|file| file.is_file() || folders.is_some() && file.is_symlink());
    match (model.config.clone().or(in_folder), target.or(model.preset.as_ref())) {
        (Some(file), _) if !may_read(&file) => Err(outside(&file)),
        (Some(file), _) => read(&file).map(Some),
        (None, Some(name)) if folders.is_some() && target.is_some() && name.contains('/') => {
            Err(outside(Path::new(name)))
        }
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
    fn a_run_that_is_data_names_files_in_the_folders_only() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        let json = preset_config("qwen3_0_6b").unwrap();
        for folder in ["inside", "outside", "inside/linked"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        for folder in ["inside", "outside"] {
            std::fs::write(at(folder).join("config.json"), json).unwrap();
        }
        std::os::unix::fs::symlink(at("outside/config.json"), at("inside/linked/config.json")).unwrap();
        let folders = [at("inside")];
        let read = |key: &str, value: &Path| {
            let overrides = ["workload=hf".to_owned(), format!("model.{key}='{}'", value.display())];
            let props = ConfigProps { overrides: overrides.to_vec(), ..Default::default() };
            let config = compose(&props).unwrap().config;
            assert!(architecture(&config, None).is_ok() || !value.exists());
            architecture(&config, Some(&folders))
        };
        assert!(read("config", &at("inside/config.json")).unwrap().is_some());
        assert!(read("target", &at("inside")).unwrap().is_some());
        for (key, path) in [
            ("config", "outside/config.json"),
            ("config", "outside/absent.json"),
            ("config", "inside/../outside/config.json"),
            ("config", "inside/linked/config.json"),
            ("target", "outside"),
            ("target", "absent"),
            ("target", "inside/linked"),
        ] {
            let error = read(key, &at(path)).unwrap_err().to_string();
            assert!(error.ends_with("is not in the folders that may be read"), "{path}: {error}");
        }
    }

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
