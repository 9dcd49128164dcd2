//! The presets built into the binary, and those in a user's folder.

use std::path::{Path, PathBuf};

use super::error::ConfigError;
use super::layer;
use super::nearest::nearest;
use super::tree::{Map, Node, Origin, Value};
use super::yaml;

macro_rules! presets {
    ($($file:literal),* $(,)?) => {
        /// Every preset file: its path among the presets, and its text.
        const FILES: &[(&str, &str)] = &[$(($file, include_str!(concat!("../../presets/", $file)))),*];
    };
}

presets![
    "config.yaml",
    "hardware/_base.yaml",
    "hardware/auto.yaml",
    "model/_base.yaml",
    "model/alt.yaml",
    "model/auto.yaml",
    "model/deepseek_ocr.yaml",
    "model/deepseek_ocr2.yaml",
    "model/deepseek_v2_lite.yaml",
    "model/gpt_oss_120b.yaml",
    "model/gpt_oss_20b.yaml",
    "model/llama3_8b.yaml",
    "model/qwen3_0_6b.yaml",
    "model/qwen3_14b.yaml",
    "model/qwen3_1_7b.yaml",
    "model/qwen3_30b_a3b.yaml",
    "model/qwen3_32b.yaml",
    "model/qwen3_4b.yaml",
    "model/qwen3_8b.yaml",
    "profiling/ncu/_base.yaml",
    "profiling/ncu/deep.yaml",
    "profiling/ncu/light.yaml",
    "profiling/nsys/_base.yaml",
    "profiling/nsys/deep.yaml",
    "profiling/nsys/gated.yaml",
    "profiling/nsys/light.yaml",
    "profiling/torch/_base.yaml",
    "profiling/torch/deep.yaml",
    "profiling/torch/light.yaml",
    "runner/_base.yaml",
    "runner/deep.yaml",
    "runner/light.yaml",
    "runner/timeline.yaml",
    "runner/unwatched.yaml",
    "workload/_base.yaml",
    "workload/command.yaml",
    "workload/embedded.yaml",
    "workload/hf.yaml",
    "workload/hydra.yaml",
];

/// The groups, in the order they are shown.
pub(crate) const GROUPS: &[&str] = &[
    "workload",
    "model",
    "runner",
    "profiling/nsys",
    "profiling/ncu",
    "profiling/torch",
    "hardware",
];

/// A group and what can be chosen in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Name, as in `name=option`.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// What can be chosen.
    pub options: Vec<PresetOption>,
}

/// One option of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresetOption {
    /// Name, as in `group=name`.
    pub name: String,
    /// Its first comment.
    pub about: String,
    /// Where it is defined.
    pub source: OptionSource,
}

/// Where an option is defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionSource {
    /// In the binary.
    Builtin,
    /// In the user's folder.
    User(PathBuf),
    /// In the binary, with a file of the user's folder over it.
    Both(PathBuf),
}

/// The presets of the binary and of a user's folder.
#[derive(Debug, Default)]
pub(crate) struct Presets {
    folder: Option<PathBuf>,
}

/// The groups and their options, those of a user's folder included.
pub fn list(config_dir: Option<&Path>) -> Result<Vec<Group>, ConfigError> {
    let presets = Presets::open(config_dir)?;
    GROUPS
        .iter()
        .map(|group| {
            let about = builtin(&format!("{group}/_base.yaml"))
                .map(about)
                .unwrap_or_default();
            Ok(Group {
                name: (*group).to_owned(),
                about,
                options: presets.options(group)?,
            })
        })
        .collect()
}

impl Presets {
    /// Check the user's folder: each file in it must belong to a group.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(folder) = folder else {
            return Ok(Self::default());
        };
        if !folder.is_dir() {
            return Err(ConfigError::NoFolder {
                folder: folder.to_owned(),
            });
        }
        let mut files = Vec::new();
        yaml_files(folder, Path::new(""), 0, &mut files)?;
        for file in files {
            let group = file
                .parent()
                .map(|p| p.to_string_lossy().replace('\\', "/"))
                .unwrap_or_default();
            if file != Path::new("config.yaml") && !GROUPS.contains(&group.as_str()) {
                return Err(ConfigError::UnknownGroup {
                    file: folder.join(&file),
                    nearest: nearest(&group, GROUPS.iter().copied()),
                    known: GROUPS.iter().map(|g| (*g).to_owned()).collect(),
                });
            }
        }
        Ok(Self {
            folder: Some(folder.to_owned()),
        })
    }

    /// The base: every key there is, with its default, groups included, and `defaults` taken out beside it.
    pub(crate) fn base(&self) -> Result<(Node, Vec<(String, Node)>), ConfigError> {
        let mut tree = read_builtin("config.yaml")?;
        let mut defaults = layer::take_defaults(&mut tree)?;
        for group in GROUPS {
            let path: Vec<&str> = group.split('/').collect();
            tree.set(&path, read_builtin(&format!("{group}/_base.yaml"))?);
        }
        if let Some(mut upper) = self.read_user("config.yaml")? {
            layer::choose_all(&mut defaults, layer::take_defaults(&mut upper)?)?;
            layer::check(&upper, &tree)?;
            tree.lay_over(upper);
        }
        Ok((tree, defaults))
    }

    /// What an option sets, without the group's base.
    pub(crate) fn option(&self, group: &str, option: &str, origin: &Origin) -> Result<Node, ConfigError> {
        let file = format!("{group}/{option}.yaml");
        let hidden = option.starts_with('_') || option.contains(['/', '\\']) || option.contains("..");
        let lower = if !hidden && builtin(&file).is_some() {
            Some(read_builtin(&file)?)
        } else {
            None
        };
        let upper = if hidden { None } else { self.read_user(&file)? };
        match (lower, upper) {
            (Some(mut lower), Some(upper)) => {
                lower.lay_over(upper);
                Ok(lower)
            }
            (Some(node), None) | (None, Some(node)) => Ok(node),
            (None, None) => {
                let known: Vec<String> = self.options(group)?.into_iter().map(|o| o.name).collect();
                Err(ConfigError::UnknownOption {
                    group: group.to_owned(),
                    option: option.to_owned(),
                    nearest: nearest(option, known.iter().map(String::as_str)),
                    known,
                    origin: Box::new(origin.clone()),
                })
            }
        }
    }

    fn options(&self, group: &str) -> Result<Vec<PresetOption>, ConfigError> {
        let mut options: Vec<PresetOption> = FILES
            .iter()
            .filter_map(|(file, text)| {
                let name = file
                    .strip_prefix(group)?
                    .strip_prefix('/')?
                    .strip_suffix(".yaml")?;
                (!name.starts_with('_') && !name.contains('/')).then(|| PresetOption {
                    name: name.to_owned(),
                    about: about(text),
                    source: OptionSource::Builtin,
                })
            })
            .collect();
        if let Some(folder) = &self.folder {
            let mut files = Vec::new();
            yaml_files(folder, Path::new(""), 0, &mut files)?;
            for file in files
                .iter()
                .filter(|file| file.parent() == Some(Path::new(group)))
            {
                let path = folder.join(file);
                let Some(name) = file.file_stem().map(|s| s.to_string_lossy().into_owned()) else {
                    continue;
                };
                let text = read_file(&path)?;
                match options.iter_mut().find(|option| option.name == name) {
                    Some(option) => option.source = OptionSource::Both(path),
                    None => {
                        let source = OptionSource::User(path);
                        options.push(PresetOption {
                            name,
                            about: about(&text),
                            source,
                        });
                    }
                }
            }
        }
        options.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(options)
    }

    fn read_user(&self, file: &str) -> Result<Option<Node>, ConfigError> {
        match self.folder.as_ref().map(|folder| folder.join(file)) {
            Some(path) if path.is_file() => read_user_file(&path).map(Some),
            _ => Ok(None),
        }
    }
}

/// Read a file of the user's as a map.
pub(crate) fn read_user_file(path: &Path) -> Result<Node, ConfigError> {
    let text = read_file(path)?;
    let node = yaml::read(&text, path, &|line| Origin::File {
        path: path.to_owned(),
        line,
    })?;
    as_map(node).map_err(|why| ConfigError::Yaml {
        file: path.to_owned(),
        why,
    })
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        file: path.to_owned(),
        source,
    })
}

fn builtin(file: &str) -> Option<&'static str> {
    FILES
        .iter()
        .find(|(name, _)| *name == file)
        .map(|(_, text)| *text)
}

fn read_builtin(file: &str) -> Result<Node, ConfigError> {
    let broken = |why: String| ConfigError::Builtin {
        file: file.to_owned(),
        why,
    };
    let text = builtin(file).ok_or_else(|| broken("it is not there".to_owned()))?;
    let node = yaml::read(text, Path::new(file), &|_| Origin::Builtin {
        file: file.to_owned(),
    })
    .map_err(|error| broken(error.to_string()))?;
    as_map(node).map_err(broken)
}

/// A file with nothing but comments is an empty map.
fn as_map(node: Node) -> Result<Node, String> {
    match node.value {
        Value::Map(_) => Ok(node),
        Value::Null => Ok(Node::new(Value::Map(Map::default()), node.origin)),
        _ => Err("expected keys with values".to_owned()),
    }
}

/// The first comment of a preset.
fn about(text: &str) -> String {
    text.lines()
        .next()
        .and_then(|line| line.strip_prefix('#'))
        .map(|line| line.trim().to_owned())
        .unwrap_or_default()
}

fn yaml_files(
    folder: &Path,
    below: &Path,
    depth: usize,
    found: &mut Vec<PathBuf>,
) -> Result<(), ConfigError> {
    let here = folder.join(below);
    let failed = |source| ConfigError::Read {
        file: here.clone(),
        source,
    };
    for entry in std::fs::read_dir(&here).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with('.') {
            continue;
        }
        let path = below.join(&name);
        let kind = folder.join(&path);
        if kind.is_dir() && depth < 3 {
            yaml_files(folder, &path, depth + 1, found)?;
        } else if kind.is_file() && path.extension().is_some_and(|e| e == "yaml" || e == "yml") {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_file_of_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("presets");
        let mut files = Vec::new();
        yaml_files(&folder, Path::new(""), 0, &mut files).unwrap();
        let mut listed: Vec<PathBuf> = FILES.iter().map(|(file, _)| PathBuf::from(file)).collect();
        listed.sort();
        files.sort();
        assert_eq!(files, listed);
    }

    #[test]
    fn every_option_says_what_it_is() {
        for group in list(None).unwrap() {
            assert!(!group.about.is_empty(), "{}", group.name);
            for option in group.options {
                assert!(!option.about.is_empty(), "{}/{}", group.name, option.name);
            }
        }
    }
}
