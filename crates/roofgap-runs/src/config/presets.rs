//! Presets: those built into the binary and those in a user's folder.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use roofgap_base::file::read_text;
use serde::Serialize;

use super::traffic::Load;
use super::tree::{self, GROUPS, Node, Origin, Value, nearest, node_of, not_yaml};
use super::{ConfigError, original};

// `FILES`: path and text of every file below `presets`, listed by build.rs.
include!(concat!(env!("OUT_DIR"), "/presets.rs"));

/// Choice that follows `run.mode`.
pub const FOLLOWS_MODE: &str = "${run.mode}";
const NOT_A_MAP: &str = "expected keys with values";

/// A group of options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Name, as in `name=option`.
    pub name: String,
    /// Description.
    pub about: String,
    /// Options.
    pub options: Vec<PresetOption>,
}

/// One option of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PresetOption {
    /// Name, as in `group=name`.
    pub name: String,
    /// Description: the first comment of the file.
    pub about: String,
}

/// Built-in presets and those of a user's folder.
#[derive(Debug, Default)]
pub struct Presets {
    folder: Option<PathBuf>,
    /// What was left out of the folder.
    notes: RefCell<Vec<String>>,
}

/// Lists the groups and their options.
pub fn list(config_dir: Option<&Path>) -> Result<Vec<Group>, ConfigError> {
    let presets = Presets::open(config_dir)?;
    GROUPS
        .iter()
        .map(|group| {
            let about = builtin(&format!("{group}/_base.yaml")).map(about).unwrap_or_default();
            Ok(Group { name: (*group).to_owned(), about, options: presets.options(group)? })
        })
        .collect()
}

impl Presets {
    /// Opens the user's folder. Files of other tools are left out, and a note names their folders.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(folder) = folder else {
            return Ok(Self::default());
        };
        if !folder.is_dir() {
            return Err(ConfigError::NoFolder { folder: folder.to_owned() });
        }
        let mut files = Vec::new();
        yaml_files(folder, Path::new(""), 0, &mut files)?;
        let is_ours = |file: &PathBuf| {
            let group = file.parent().unwrap_or(Path::new(""));
            file == Path::new("config.yaml")
                || group == Path::new("profiling")
                || GROUPS.iter().any(|known| group.starts_with(known))
        };
        let mut others: Vec<String> = Vec::new();
        for file in files.iter().filter(|file| !is_ours(file)) {
            let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(file);
            let folder = folder.display().to_string();
            if !others.contains(&folder) {
                others.push(folder);
            }
        }
        let guess = others.iter().find_map(|other| Some((other, nearest(other, GROUPS.iter().copied())?)));
        let guess = guess.map(|(other, group)| format!("; is {other} meant to be {group}?"));
        let note = (!others.is_empty()).then(|| {
            let folder = folder.display();
            format!(
                "not used from {folder}: {}, which belong to no group{}",
                others.join(", "),
                guess.unwrap_or_default()
            )
        });
        Ok(Self { folder: Some(folder.to_owned()), notes: RefCell::new(note.into_iter().collect()) })
    }

    /// Returns what was left out of the user's folder.
    pub(crate) fn into_notes(self) -> Vec<String> {
        self.notes.into_inner()
    }

    /// Builds the base: every key with its default value, and the default option of each group.
    pub(crate) fn base(&self) -> Result<(Node, Vec<(String, Node)>), ConfigError> {
        let mut tree = read_builtin("config.yaml")?;
        let mut defaults = tree::take_defaults(&mut tree)?;
        tree.set(&["load"], node_of(&Load::default(), &tree.origin)?);
        for group in GROUPS {
            let path: Vec<&str> = group.split('/').collect();
            tree.set(&path, read_builtin(&format!("{group}/_base.yaml"))?);
        }
        let upper = self.read_user("config.yaml")?;
        if upper.as_ref().is_some_and(original::is_of_hydra) {
            let note =
                "config.yaml of the configuration folder configures a Hydra program; it is not used here";
            self.notes.borrow_mut().push(note.to_owned());
        } else if let Some(mut upper) = upper {
            tree::choose_all(&mut defaults, tree::take_defaults(&mut upper)?)?;
            tree::check(&upper, &tree)?;
            tree.lay_over(upper);
        }
        Ok((tree, defaults))
    }

    /// Returns the values of an option, without the base of its group.
    pub(crate) fn option(&self, group: &str, option: &str, origin: &Origin) -> Result<Node, ConfigError> {
        let file = format!("{group}/{option}.yaml");
        let hidden = option.contains('\\')
            || option.split('/').any(|part| part.is_empty() || part.starts_with(['_', '.']));
        let lower = if !hidden && builtin(&file).is_some() { Some(read_builtin(&file)?) } else { None };
        let mut upper = if hidden { None } else { self.read_user(&file)? };
        if let Some(preset) = &mut upper {
            if group == "runner" {
                original::of_runner(preset);
            }
            self.notes.borrow_mut().extend(original::translate(group, preset));
        }
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

    /// Resolves the name of an option in the documents of the original system. An option that exists under that name wins.
    pub(crate) fn resolve_name(&self, group: &str, option: &str) -> Result<String, ConfigError> {
        let exists = self.options(group)?.iter().any(|known| known.name == option);
        Ok(if exists { option.to_owned() } else { original::option(group, option) })
    }

    /// Returns what the user's preset of a runner sets outside its group.
    pub(crate) fn of_runner(&self, option: &str) -> Result<Option<original::OfRunner>, ConfigError> {
        let preset = self.read_user(&format!("runner/{option}.yaml"))?;
        Ok(preset.map(|mut preset| original::of_runner(&mut preset)))
    }

    /// Returns the user's preset for all of `profiling`.
    pub(crate) fn of_profiling(&self, option: &str) -> Result<Option<Node>, ConfigError> {
        self.read_user(&format!("profiling/{option}.yaml"))
    }

    fn options(&self, group: &str) -> Result<Vec<PresetOption>, ConfigError> {
        let mut options: Vec<PresetOption> = FILES
            .iter()
            .filter_map(|(file, text)| {
                let name = file.strip_prefix(group)?.strip_prefix('/')?.strip_suffix(".yaml")?;
                (!name.starts_with('_') && !name.contains('/'))
                    .then(|| PresetOption { name: name.to_owned(), about: about(text) })
            })
            .collect();
        if let Some(folder) = &self.folder {
            let mut files = Vec::new();
            yaml_files(folder, Path::new(""), 0, &mut files)?;
            for file in &files {
                // A file in a folder below the group is an option with a slash: `llm/alt`.
                let Ok(below) = file.strip_prefix(group) else {
                    continue;
                };
                let path = folder.join(file);
                let name = below.with_extension("").to_string_lossy().replace('\\', "/");
                let text = read_file(&path)?;
                if !options.iter().any(|option| option.name == name) {
                    options.push(PresetOption { name, about: about(&text) });
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

/// Reads a user file as a map.
pub fn read_user_file(path: &Path) -> Result<Node, ConfigError> {
    let text = read_file(path)?;
    let node = tree::read(&text, path, &|line| Origin::File { path: path.to_owned(), line })?;
    as_map(node).ok_or_else(|| not_yaml(path, NOT_A_MAP))
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    read_text(path).map_err(|source| ConfigError::Read { file: path.to_owned(), source })
}

fn builtin(file: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
}

fn read_builtin(file: &str) -> Result<Node, ConfigError> {
    let broken = |why: String| ConfigError::Builtin { file: file.to_owned(), why };
    let text = builtin(file).ok_or_else(|| broken("missing".to_owned()))?;
    let node = tree::read(text, Path::new(file), &|_| Origin::Builtin { file: file.to_owned() })
        .map_err(|error| broken(error.to_string()))?;
    as_map(node).ok_or_else(|| broken(NOT_A_MAP.to_owned()))
}

/// Converts a file to a map; a file with comments only is empty.
fn as_map(node: Node) -> Option<Node> {
    match node.value {
        Value::Map(_) => Some(node),
        Value::Null => Some(Node::map(node.origin)),
        _ => None,
    }
}

/// Returns the first comment of a preset.
fn about(text: &str) -> String {
    let first = text.lines().next().and_then(|line| line.strip_prefix('#'));
    first.unwrap_or_default().trim().to_owned()
}

fn yaml_files(
    folder: &Path,
    below: &Path,
    depth: usize,
    found: &mut Vec<PathBuf>,
) -> Result<(), ConfigError> {
    let here = folder.join(below);
    let failed = |source| ConfigError::Read { file: here.clone(), source };
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
    fn every_option_has_a_description() {
        for group in list(None).unwrap() {
            assert!(!group.about.is_empty(), "{}", group.name);
            for option in group.options {
                assert!(!option.about.is_empty(), "{}/{}", group.name, option.name);
            }
        }
    }
}
