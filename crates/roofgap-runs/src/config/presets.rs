//! Presets: those built into the binary and those in a user's folder.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use roofgap_base::error::Error;
use roofgap_base::file::read_text;
use serde::Serialize;

use super::settings::Load;
use super::tree::{self, Choices, GROUPS, Origin, Tree, did_you_mean, nearest};
use super::{failed, original};

// `FILES`: path and text of every file below `presets`, listed by build.rs.
include!(concat!(env!("OUT_DIR"), "/presets.rs"));

/// Choice that follows `run.mode`.
pub const FOLLOWS_MODE: &str = "${run.mode}";

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
pub fn list(config_dir: Option<&Path>) -> Result<Vec<Group>, Error> {
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
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, Error> {
        let Some(folder) = folder else {
            return Ok(Self::default());
        };
        if !folder.is_dir() {
            return Err(failed(format!("the configuration folder {} is not a folder", folder.display())));
        }
        let presets = Self { folder: Some(folder.to_owned()), ..Self::default() };
        let mut others: Vec<String> = Vec::new();
        for file in presets.user_files()? {
            let group = file.parent().unwrap_or(Path::new(""));
            let is_ours = file == Path::new("config.yaml")
                || group == Path::new("profiling")
                || GROUPS.iter().any(|known| group.starts_with(known));
            let other = if group == Path::new("") { &file } else { group };
            let other = other.display().to_string();
            if !is_ours && !others.contains(&other) {
                others.push(other);
            }
        }
        if !others.is_empty() {
            let guess = others.iter().find_map(|other| Some((other, nearest(other, GROUPS)?)));
            let guess = guess.map(|(other, group)| format!("; is {other} meant to be {group}?"));
            presets.note(format!(
                "not used from {}: {}, which belong to no group{}",
                folder.display(),
                others.join(", "),
                guess.unwrap_or_default()
            ));
        }
        Ok(presets)
    }

    fn note(&self, note: String) {
        self.notes.borrow_mut().push(note);
    }

    /// Returns what was left out of the user's folder.
    pub(crate) fn into_notes(self) -> Vec<String> {
        self.notes.into_inner()
    }

    /// Builds the base: every key with its default value, and the default option of each group.
    pub(crate) fn base(&self) -> Result<(Tree, Choices), Error> {
        let mut tree = read_builtin("config.yaml", "")?;
        let origin = || Origin::Builtin("config.yaml".to_owned());
        let load = serde_json::to_value(Load::default()).unwrap_or_default();
        tree.lay_over(Tree::new("load", load, |_| origin()));
        let mut choices = tree::take_defaults(&mut tree, "defaults")?.into_iter().collect();
        for group in GROUPS {
            tree.lay_over(read_builtin(&format!("{group}/_base.yaml"), &group.replace('/', "."))?);
        }
        match self.read_user("config.yaml", "")? {
            Some(upper) if original::is_of_hydra(&upper) => self.note(
                "config.yaml of the configuration folder configures a Hydra program; it is not used here"
                    .to_owned(),
            ),
            Some(mut upper) => {
                tree::choose(&mut choices, tree::take_defaults(&mut upper, "defaults")?)?;
                tree.check(&upper)?;
                tree.lay_over(upper);
            }
            None => {}
        }
        Ok((tree, choices))
    }

    /// Returns the values of an option, without the base of its group.
    pub(crate) fn option(&self, group: &str, option: &str, origin: &Origin) -> Result<Tree, Error> {
        let file = format!("{group}/{option}.yaml");
        let section = group.replace('/', ".");
        let hidden = option.contains('\\')
            || option.split('/').any(|part| part.is_empty() || part.starts_with(['_', '.']));
        let lower = match builtin(&file).filter(|_| !hidden) {
            Some(_) => Some(read_builtin(&file, &section)?),
            None => None,
        };
        let mut upper = if hidden { None } else { self.read_user(&file, &section)? };
        if let Some(preset) = &mut upper {
            if group == "runner" {
                original::of_runner(preset)?;
            }
            self.notes.borrow_mut().extend(original::translate(group, preset));
        }
        if lower.is_none() && upper.is_none() {
            let known: Vec<String> = self.options(group)?.into_iter().map(|o| o.name).collect();
            let guess = did_you_mean(option, known.iter().map(String::as_str));
            let known = known.join(", ");
            return Err(failed(format!(
                "the group {group} has no option {option}{guess} ({origin}); it has {known}"
            )));
        }
        let mut tree = lower.unwrap_or_default();
        tree.lay_over(upper.unwrap_or_default());
        Ok(tree)
    }

    /// Resolves the name of an option in the documents of the original system. An option that exists under that name wins.
    pub(crate) fn resolve_name(&self, group: &str, option: &str) -> Result<String, Error> {
        let exists = self.options(group)?.iter().any(|known| known.name == option);
        Ok(if exists { option.to_owned() } else { original::option(group, option) })
    }

    /// Returns the user's preset for all of `profiling` that an override `profiling=OPTION` names.
    pub(crate) fn all_of_profiling(&self, overrides: &[String]) -> Result<Option<Tree>, Error> {
        let chosen = overrides.iter().rev().find_map(|text| {
            let (key, option) = text.split_once('=')?;
            (key.trim_start_matches('+') == "profiling").then(|| option.trim())
        });
        let plain = |option: &&str| !option.is_empty() && !option.contains(['/', '\\', '.']);
        let file = chosen.filter(plain).map(|option| format!("profiling/{option}.yaml"));
        file.map_or(Ok(None), |file| self.read_user(&file, "profiling"))
    }

    fn options(&self, group: &str) -> Result<Vec<PresetOption>, Error> {
        let mut options: BTreeMap<String, PresetOption> = BTreeMap::new();
        let mut add = |name: &str, text: &str| {
            let option = PresetOption { name: name.to_owned(), about: about(text) };
            options.entry(option.name.clone()).or_insert(option);
        };
        for (file, text) in FILES {
            let below = file.strip_prefix(group).and_then(|file| file.strip_prefix('/'));
            let name = below.and_then(|file| file.strip_suffix(".yaml"));
            if let Some(name) = name.filter(|name| !name.starts_with('_') && !name.contains('/')) {
                add(name, text);
            }
        }
        for file in self.user_files()? {
            // A file in a folder below the group is an option with a slash: `llm/alt`.
            if let (Ok(below), Some(folder)) = (file.strip_prefix(group), &self.folder) {
                let name = below.with_extension("").to_string_lossy().replace('\\', "/");
                add(&name, &read_file(&folder.join(&file))?);
            }
        }
        Ok(options.into_values().collect())
    }

    /// Reads a file of the user's folder, if it is there; its keys stand below `section`.
    pub(crate) fn read_user(&self, file: &str, section: &str) -> Result<Option<Tree>, Error> {
        match self.folder.as_ref().map(|folder| folder.join(file)) {
            Some(path) if path.is_file() => read_user_file(&path, section).map(Some),
            _ => Ok(None),
        }
    }

    /// Lists the YAML files of the user's folder, relative to it.
    fn user_files(&self) -> Result<Vec<PathBuf>, Error> {
        let mut files = Vec::new();
        if let Some(folder) = &self.folder {
            yaml_files(folder, Path::new(""), 0, &mut files)?;
        }
        Ok(files)
    }
}

/// Reads a file of the user, whose keys stand below `section`.
pub fn read_user_file(path: &Path, section: &str) -> Result<Tree, Error> {
    tree::read(&read_file(path)?, path, section, |line| Origin::File(path.to_owned(), line))
}

fn read_file(path: &Path) -> Result<String, Error> {
    read_text(path).map_err(Error::io("read", path))
}

fn builtin(file: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
}

fn read_builtin(file: &str, section: &str) -> Result<Tree, Error> {
    let text = builtin(file).unwrap_or_default();
    tree::read(text, Path::new(file), section, |_| Origin::Builtin(file.to_owned()))
}

/// Returns the first comment of a preset.
fn about(text: &str) -> String {
    let first = text.lines().next().and_then(|line| line.strip_prefix('#'));
    first.unwrap_or_default().trim().to_owned()
}

fn yaml_files(folder: &Path, below: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    let here = folder.join(below);
    let failed = |source| Error::io("read", &here)(source);
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
