//! The inputs of a session: the manifest, a YAML list of images and prompts, and the record `inputs.yaml`.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use roofgap_base::file::{hash_file, read_text};
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::config::{Config, read_yaml, to_yaml};
use roofgap_runs::run_dir::PhaseName;
use serde::Serialize;
use serde_json::Value;

use super::context::PhaseContext;
use crate::distinct;
use roofgap_base::error::Error;

/// The items of `inputs.manifest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub items: Vec<ManifestItem>,
}

/// An image, a prompt, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestItem {
    /// Absolute path of the image.
    pub image: Option<PathBuf>,
    /// Text of the prompt.
    pub prompt: Option<String>,
}

impl Manifest {
    /// Reads a manifest: a list, or a map with the list under `inputs` or `items`. Paths are relative to the file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |why: &dyn Display| Error::new(format!("inputs.manifest: {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let tree = read_yaml(&text, path).map_err(|error| wrong(&error))?;
        let list = tree.get("inputs").or_else(|| tree.get("items")).unwrap_or(&tree);
        let Value::Array(entries) = list else {
            return Err(wrong(&"expected a list of images or prompts"));
        };
        let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder = full.parent().unwrap_or(Path::new("/"));
        let item = |(at, entry)| {
            ManifestItem::of(entry, folder).map_err(|why| wrong(&format!("entry {}: {why}", at + 1)))
        };
        let items: Vec<ManifestItem> = entries.iter().enumerate().map(item).collect::<Result<_, _>>()?;
        if items.is_empty() {
            return Err(wrong(&"the list is empty"));
        }
        Ok(Self { items })
    }

    /// Returns the images, where every item is an image without a prompt.
    pub fn images_only<'a>(&'a self) -> Option<Vec<&'a Path>> {
        let image = |item: &'a ManifestItem| item.image.as_deref().filter(|_| item.prompt.is_none());
        self.items.iter().map(image).collect()
    }
}

impl ManifestItem {
    /// Reads an entry: a map, or a text that is an image where a file of that name exists, else a prompt.
    fn of(entry: &Value, folder: &Path) -> Result<Self, Error> {
        let first = |keys: [&str; 2]| keys.iter().find_map(|key| entry.get(key)?.as_str());
        let (image, prompt) = match entry.as_str() {
            Some(text) if folder.join(text).is_file() => (Some(text), None),
            Some(text) => (None, Some(text)),
            None => (first(["image", "path"]), first(["prompt", "text"])),
        };
        let image = image.map(|image| folder.join(image));
        if let Some(image) = image.as_ref().filter(|image| !image.is_file()) {
            return Err(Error::new(format!("no such image {}", image.display())));
        }
        if image.is_none() && prompt.is_none() {
            return Err(Error::new("neither image nor prompt"));
        }
        Ok(Self { image, prompt: prompt.map(str::to_owned) })
    }
}

/// Bytes of text for one token, where no tokenizer counts them: the usual mean of English text.
const BYTES_PER_TOKEN: usize = 4;

impl Manifest {
    /// Returns the options of the embedded model: the length of each prompt, and whether it has an image.
    pub fn embedded_options(&self, prompt_tokens: u32) -> Vec<String> {
        let option = |item: &ManifestItem| {
            let tokens = item.prompt.as_ref().map(|text| text.len().div_ceil(BYTES_PER_TOKEN).max(1));
            let image = if item.image.is_some() { "+image" } else { "" };
            format!("--prompt={}{image}", tokens.unwrap_or(prompt_tokens as usize))
        };
        self.items.iter().map(option).collect()
    }
}

/// The document `inputs.yaml`.
#[derive(Serialize)]
struct InputList {
    schema: &'static str,
    inputs: Vec<InputFile>,
    /// Inputs that are no files.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<Made>,
}

#[derive(Serialize)]
struct Made {
    what: &'static str,
    seed: u64,
}

#[derive(Serialize)]
struct InputFile {
    path: String,
    bytes: u64,
    sha256: String,
}

/// Writes `inputs.yaml`: the input files of the configuration and those that the program says it read, with size and hash.
pub fn write_inputs(context: &mut PhaseContext<'_>, read_by_program: &[PathBuf]) {
    let mut inputs = Vec::new();
    for path in distinct(input_files(context.config, read_by_program)) {
        match hash_file(&path) {
            Ok(file) => inputs.push(InputFile {
                path: path.display().to_string(),
                bytes: file.bytes,
                sha256: format!("sha256:{}", file.sha256),
            }),
            Err(error) => {
                let note = format!("cannot read the input {}: {error}", path.display());
                context.record.note(PhaseName::Preflight, note);
            }
        }
    }
    let made = made(context.config);
    let yaml = to_yaml(&InputList { schema: "roofgap.inputs/1", inputs, made }).map_err(Error::of);
    match yaml.and_then(|yaml| context.run_dir.write("inputs.yaml", yaml.as_bytes())) {
        Ok(path) => {
            context.record.output(PhaseName::Preflight, &path);
        }
        Err(error) => context.record.note(PhaseName::Preflight, error.to_string()),
    }
}

/// Lists the input files: those that the program says it read, else those of the configuration.
fn input_files(config: &Config, read_by_program: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    if let Some(manifest) = &config.inputs.manifest {
        paths.push(manifest.clone());
        match (config.workload.kind, read_by_program) {
            (WorkloadKind::Hf | WorkloadKind::Embedded, _) => {
                let items = Manifest::read(manifest).map_or(Vec::new(), |manifest| manifest.items);
                paths.extend(items.into_iter().filter_map(|item| item.image));
            }
            (_, []) => paths.extend(manifest_files(manifest)),
            _ => {}
        }
    }
    paths.extend(read_by_program.iter().cloned());
    paths.extend(config.model.config.clone());
    paths.extend(config.load.prompts.clone().filter(|_| config.workload.kind == WorkloadKind::Server));
    if matches!(config.workload.kind, WorkloadKind::Command | WorkloadKind::Server) {
        let folder = config.workload.cwd.clone().unwrap_or_default();
        // Files among the arguments are usually the script and its data.
        let words = config.workload.words().into_iter().map(|word| folder.join(word));
        paths.extend(words.filter(|path| path.is_file()));
    }
    paths
}

/// Describes what is made for a program that is given no inputs.
fn made(config: &Config) -> Option<Made> {
    let what = match config.workload.kind {
        WorkloadKind::Hf if config.inputs.manifest.is_some() => return None,
        WorkloadKind::Hf | WorkloadKind::Embedded => "tokens, and an image if the model takes images",
        WorkloadKind::Server if config.load.prompts.is_none() => "prompts of random tokens",
        _ => return None,
    };
    Some(Made { what, seed: config.workload.seed })
}

/// Lists the files named anywhere in a manifest, relative to its folder.
fn manifest_files(manifest: &Path) -> Vec<PathBuf> {
    fn collect(value: &Value, folder: &Path, found: &mut Vec<PathBuf>) {
        match value {
            Value::String(text) => found.extend(Some(folder.join(text)).filter(|path| path.is_file())),
            Value::Array(items) => items.iter().for_each(|item| collect(item, folder, found)),
            Value::Object(map) => map.values().for_each(|item| collect(item, folder, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    let folder = manifest.parent().unwrap_or(Path::new(""));
    let tree = read_text(manifest).ok().and_then(|content| read_yaml(&content, manifest).ok());
    collect(&tree.unwrap_or_default(), folder, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Manifest, Error> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("page.png"), "x").unwrap();
        let path = folder.path().join("inputs.yaml");
        std::fs::write(&path, text).unwrap();
        Manifest::read(&path)
    }

    #[test]
    fn images_and_prompts_in_any_form() {
        let found =
            read("- page.png\n- What is this?\n- {image: page.png, prompt: Read it.}\n- text: Hello\n")
                .unwrap();
        let items: Vec<(bool, Option<&str>)> =
            found.items.iter().map(|item| (item.image.is_some(), item.prompt.as_deref())).collect();
        assert_eq!(
            items,
            [(true, None), (false, Some("What is this?")), (true, Some("Read it.")), (false, Some("Hello"))]
        );
        assert_eq!(found.images_only(), None);
        let found = read("inputs:\n  - page.png\n  - {path: page.png}\n").unwrap();
        assert_eq!(found.images_only().unwrap().len(), 2);
    }

    #[test]
    fn the_embedded_model_takes_lengths() {
        let found = read("- {image: page.png, prompt: Read it all.}\n- page.png\n- Hello\n").unwrap();
        assert_eq!(found.embedded_options(64), ["--prompt=3+image", "--prompt=64+image", "--prompt=2"]);
    }

    #[test]
    fn a_wrong_entry_is_named() {
        for (text, said) in [
            ("{}", "expected a list"),
            ("- {image: gone.png}", "entry 1: no such image"),
            ("- page.png\n- {size: 3}", "entry 2: neither image nor prompt"),
            ("[]", "empty"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
