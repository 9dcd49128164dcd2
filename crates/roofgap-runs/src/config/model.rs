//! The model of a configuration: a folder of weights, a `config.json` or a preset.

use std::path::{Path, PathBuf};

use roofgap_analyze::model::{Architecture, preset, preset_config};
use roofgap_base::error::Error;
use roofgap_base::file::read_document;
use roofgap_collect::entries;
use serde_json::Value;

use super::settings::{Config, Model, WorkloadKind};
use super::tree::{Origin, Tree};

/// Endings of files with weights.
const WEIGHTS: [&str; 5] = ["safetensors", "bin", "pt", "pth", "gguf"];

/// Returns the folder that `model.target` names.
fn folder(model: &Model) -> Option<PathBuf> {
    let folder = model.target.as_ref().map(PathBuf::from);
    folder.filter(|folder| folder.is_dir())
}

/// Returns the folder of the weights: one that `model.target` names and that has weights.
pub fn weights(model: &Model) -> Option<PathBuf> {
    let is_weights =
        |path: &PathBuf| path.extension().is_some_and(|end| WEIGHTS.iter().any(|known| end == *known));
    folder(model).filter(|folder| entries(folder).iter().any(is_weights))
}

/// Returns the `config.json` of the user: `model.config`, else that of the folder that `model.target` names.
pub fn own_config(model: &Model) -> Option<PathBuf> {
    let in_folder = || folder(model).map(|folder| folder.join("config.json")).filter(|file| file.is_file());
    model.config.clone().or_else(in_folder)
}

/// Says that a folder has a configuration and no weights.
pub fn without_weights(config: &Config) -> Option<String> {
    let is_hf = config.workload.kind == WorkloadKind::Hf && weights(&config.model).is_none();
    let folder = folder(&config.model).filter(|_| is_hf)?;
    let folder = folder.display();
    Some(format!(
        "{folder} has no weights (*.safetensors, *.bin): random weights of its config.json are used"
    ))
}

/// Checks the model that a session would run: its folder, and that every key of `model.set` is one that it has.
pub fn check(config: &Config) -> Result<(), Error> {
    let model = &config.model;
    if config.workload.kind != WorkloadKind::Hf {
        return Ok(());
    }
    if let Some(folder) = folder(model)
        && own_config(model).is_none()
    {
        let folder = folder.display();
        return Err(Error::new(format!(
            "model.target is {folder}, which has no config.json; name a folder with one, or a preset"
        )));
    }
    let text = match own_config(model) {
        Some(file) => Some(read_document(&file).map_err(Error::io("read", &file))?),
        None => {
            preset_name(model).and_then(|name| preset_config(name).ok()).map(|text| text.as_bytes().to_vec())
        }
    };
    let Some(known) = text.and_then(|text| serde_json::from_slice::<Value>(&text).ok()) else {
        return Ok(());
    };
    let tree = |json| Tree::new("", json, |_| Origin::Program);
    let (known, written) = (tree(known), tree(Value::Object(model.set.clone())));
    let last = |path: &str| path.rsplit('.').next().map(str::to_owned);
    for (path, leaf) in written.leaves().filter(|(path, _)| !known.has(path)) {
        if let Some((actual, _)) = known.leaves().find(|(other, _)| last(other) == last(path)) {
            let value = &leaf.value;
            return Err(Error::new(format!(
                "model.set.{path} has no effect: the model has it as {actual}; write +model.set.{actual}={value}"
            )));
        }
    }
    Ok(())
}

/// Returns the preset: `model.target` where it is not a folder, else `model.preset`.
fn preset_name(model: &Model) -> Option<&str> {
    match &model.target {
        Some(target) if folder(model).is_none() => Some(target),
        _ => model.preset.as_deref(),
    }
}

/// Returns the `config.json` of the preset that random weights need; `None` where there are weights or a `model.config`.
pub fn config_json(config: &Config) -> Result<Option<&'static str>, Error> {
    let model = &config.model;
    if config.workload.kind != WorkloadKind::Hf || weights(model).is_some() || own_config(model).is_some() {
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
    let folder = folder(model).filter(|folder| may_read(folder));
    let target = model.target.as_ref().filter(|_| folder.is_none());
    let in_folder = folder.map(|folder| folder.join("config.json"));
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
        let target = folder.path().display().to_string();
        let error = check(&composed(&target)).unwrap_err().to_string();
        assert!(error.contains("has no config.json"), "{error}");
        std::fs::write(folder.path().join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
        let random = composed(&target);
        assert!(check(&random).is_ok() && weights(&random.model).is_none());
        assert!(without_weights(&random).unwrap().contains("random weights"));
        assert_eq!(config_json(&random).unwrap(), None);
        std::fs::write(folder.path().join("model-1-of-1.safetensors"), "x").unwrap();
        assert_eq!(weights(&composed(&target).model).as_deref(), Some(folder.path()));
        assert_eq!(without_weights(&composed(&target)), None);
        let text = config_json(&composed("qwen3_0_6b")).unwrap().unwrap();
        assert!(text.contains("Qwen3-0.6B"));
        let error = config_json(&composed("no/such/folder")).unwrap_err().to_string();
        assert!(error.contains("neither a folder nor the name of a preset"), "{error}");
    }

    #[test]
    fn a_key_that_the_model_nests_elsewhere_is_refused() {
        let checked = |set: &str| {
            let overrides = ["model=deepseek_ocr".to_owned(), format!("+model.set.{set}=2")];
            let props = ConfigProps { overrides: overrides.to_vec(), ..Default::default() };
            check(&compose(&props).unwrap().config)
        };
        let error = checked("num_hidden_layers").unwrap_err().to_string();
        let advice = "has no effect: the model has it as language_config.num_hidden_layers; write \
                      +model.set.language_config.num_hidden_layers=2";
        assert!(error.contains(advice), "{error}");
        assert!(checked("language_config.num_hidden_layers").is_ok());
    }
}
