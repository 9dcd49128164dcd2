//! Presets: those built into the binary and those in a user's folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use roofgap_base::error::Error;
use roofgap_base::file::read_text;
use serde::Serialize;

use super::overrides::Override;
use super::tree::{self, GROUPS, Origin, Tree, did_you_mean, nearest};
use super::{failed, original};

/// The built-in presets. A line `--- # group/option.yaml` begins each.
const BUILTIN: &str = include_str!("presets.yaml");

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
    /// YAML files of the folder, relative to it.
    files: Vec<PathBuf>,
    /// What was left out of the folder.
    pub notes: Vec<String>,
}

/// Lists the groups and their options.
pub fn list(config_dir: Option<&Path>) -> Result<Vec<Group>, Error> {
    let presets = Presets::open(config_dir)?;
    let group = |group: &str| {
        let about = builtin(&format!("{group}/_base.yaml")).map(about).unwrap_or_default();
        Ok(Group { name: group.to_owned(), about, options: presets.options(group)? })
    };
    GROUPS.into_iter().map(group).collect()
}

impl Presets {
    /// Opens the user's folder. Files of other tools are left out, and a note names their folders.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self, Error> {
        let Some(folder) = folder else {
            return Ok(Self::default());
        };
        let shown = folder.display();
        if !folder.is_dir() {
            return Err(failed(format!("the configuration folder {shown} is not a folder")));
        }
        let mut presets = Self { folder: Some(folder.to_owned()), ..Self::default() };
        for path in yaml_files(folder, 3)? {
            presets.files.push(path.strip_prefix(folder).unwrap_or(&path).to_owned());
        }
        let is_ours = |file: &Path| {
            file == Path::new("config.yaml")
                || file.parent() == Some(Path::new("profiling"))
                || GROUPS.iter().any(|group| file.starts_with(group))
        };
        let other = |file: &PathBuf| {
            let group = file.parent().filter(|group| *group != Path::new(""));
            (!is_ours(file)).then(|| group.unwrap_or(file).display().to_string())
        };
        let others: BTreeSet<String> = presets.files.iter().filter_map(other).collect();
        if !others.is_empty() {
            let guess = others.iter().find_map(|other| Some((other, nearest(other, GROUPS)?)));
            let guess = guess.map(|(other, group)| format!("; is {other} meant to be {group}?"));
            let others = others.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            presets.notes.push(format!(
                "not used from {shown}: {others}, which belong to no group{}",
                guess.unwrap_or_default()
            ));
        }
        Ok(presets)
    }

    /// Builds the base: every key with its default value, and the default option of each group.
    pub(crate) fn base(&mut self) -> Result<(Tree, Tree), Error> {
        let file = "config.yaml";
        let mut tree = read_builtin(file, "")?;
        let mut choices = tree::take_defaults(&mut tree, "defaults")?;
        for group in GROUPS {
            tree.lay_over(read_builtin(&format!("{group}/_base.yaml"), &group.replace('/', "."))?);
        }
        match self.read_user(file, "")? {
            Some(upper) if original::is_of_hydra(&upper) => self.notes.push(
                "config.yaml of the configuration folder configures a Hydra program; it is not used here"
                    .to_owned(),
            ),
            Some(mut upper) => {
                tree::choose(&mut choices, tree::take_defaults(&mut upper, "defaults")?)?;
                tree.lay_over(upper);
            }
            None => {}
        }
        Ok((tree, choices))
    }

    /// Tells whether there is an option of that name.
    fn has(&self, file: &str) -> bool {
        let name = Path::new(file);
        let hidden = name.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"_"));
        !hidden && (builtin(file).is_some() || self.files.iter().any(|known| known == name))
    }

    /// Returns the values of an option, without the base of its group.
    pub(crate) fn option(&mut self, group: &str, option: &str, origin: &Origin) -> Result<Tree, Error> {
        let file = format!("{group}/{option}.yaml");
        let section = group.replace('/', ".");
        if !self.has(&file) {
            let known: Vec<String> = self.options(group)?.into_iter().map(|known| known.name).collect();
            let guess = did_you_mean(option, known.iter().map(String::as_str));
            let known = known.join(", ");
            return Err(failed(format!(
                "the group {group} has no option {option}{guess} ({origin}); it has {known}"
            )));
        }
        let mut tree = read_builtin(&file, &section)?;
        if let Some(mut upper) = self.read_user(&file, &section)? {
            if group == "runner" {
                original::of_runner(&mut upper)?;
            }
            self.notes.extend(original::translate(group, &mut upper));
            tree.lay_over(upper);
        }
        Ok(tree)
    }

    /// Resolves the name of an option in the documents of the original system. An option that exists under that name wins.
    pub(crate) fn resolve_name(&self, group: &str, option: &str) -> String {
        let exists = self.has(&format!("{group}/{option}.yaml"));
        if exists { option.to_owned() } else { original::option(group, option) }
    }

    /// Returns the user's preset for all of `profiling` that an override `profiling=OPTION` names.
    pub(crate) fn all_of_profiling(&self, overrides: &[Override]) -> Result<Option<Tree>, Error> {
        let chosen = overrides.iter().rev().find(|change| original::is_of_all_profiling(change));
        let is_plain = |option: &&str| !option.contains(['/', '.']);
        let option = chosen.and_then(Override::plain).filter(is_plain);
        option.map_or(Ok(None), |option| self.read_user(&format!("profiling/{option}.yaml"), "profiling"))
    }

    fn options(&self, group: &str) -> Result<Vec<PresetOption>, Error> {
        let mut options: BTreeMap<String, String> = BTreeMap::new();
        for (file, text) in builtins() {
            let name = file.strip_prefix(group).and_then(|file| file.strip_prefix('/'));
            if let Some(name) = name.filter(|name| !name.starts_with('_') && !name.contains('/')) {
                options.insert(name.trim_end_matches(".yaml").to_owned(), about(text));
            }
        }
        for file in &self.files {
            // A file in a folder below the group is an option with a slash: `llm/alt`.
            if let (Ok(below), Some(folder)) = (file.strip_prefix(group), &self.folder) {
                let name = below.with_extension("").to_string_lossy().into_owned();
                let text = read_file(&folder.join(file))?;
                options.entry(name).or_insert_with(|| about(&text));
            }
        }
        Ok(options.into_iter().map(|(name, about)| PresetOption { name, about }).collect())
    }

    /// Reads a file of the user's folder, if it is there; its keys stand below `section`.
    pub(crate) fn read_user(&self, file: &str, section: &str) -> Result<Option<Tree>, Error> {
        let folder = self.folder.as_ref().filter(|_| self.files.iter().any(|known| known == Path::new(file)));
        folder.map(|folder| read_user_file(&folder.join(file), section)).transpose()
    }
}

/// Reads a file of the user, whose keys stand below `section`.
pub fn read_user_file(path: &Path, section: &str) -> Result<Tree, Error> {
    tree::read(&read_file(path)?, path, section, |line| Origin::File(path.to_owned(), line))
}

fn read_file(path: &Path) -> Result<String, Error> {
    read_text(path).map_err(Error::io("read", path))
}

/// Lists the built-in files with their text.
fn builtins() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILTIN.split("\n--- # ").filter_map(|file| file.split_once('\n'))
}

fn builtin(file: &str) -> Option<&'static str> {
    builtins().find(|(name, _)| *name == file).map(|(_, text)| text)
}

/// Reads a built-in file; one that does not exist is empty.
fn read_builtin(file: &str, section: &str) -> Result<Tree, Error> {
    let text = builtin(file).unwrap_or_default();
    tree::read(text, Path::new(file), section, |_| Origin::Builtin(file.to_owned()))
}

/// Returns the first comment of a preset.
fn about(text: &str) -> String {
    let first = text.lines().next().and_then(|line| line.strip_prefix('#'));
    first.unwrap_or_default().trim().to_owned()
}

/// Lists the YAML files below a folder to a depth.
fn yaml_files(folder: &Path, depth: usize) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = entry.map_err(Error::io("read", folder))?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        if path.is_dir() && depth > 0 {
            files.extend(yaml_files(&path, depth - 1)?);
        } else if path.is_file() && path.extension().is_some_and(|end| end == "yaml") {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_read_is_an_error() {
        let error = yaml_files(Path::new("/dev/null"), 3).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /dev/null"), "{error}");
    }

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
