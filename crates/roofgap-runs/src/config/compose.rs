//! Composes the layers of a configuration.

use std::path::{Path, PathBuf};

use super::overrides::Override;
use super::presets::{FOLLOWS_MODE, Presets, read_user_file};
use super::settings::Config;
use super::tree::{self, GROUPS, Node, Origin, Value};
use super::{ConfigError, original};
use crate::run_dir::ORIGINAL_BASE;

/// Schema of a resolved configuration, which has every value.
const SCHEMA: &str = "roofgap.config/1";
/// Option of `model` that names none.
const NO_MODEL: &str = "auto";
/// Modes. A group that follows the mode has an option of each name.
const MODES: &[&str] = &["deep", "light"];

/// Sources of a configuration.
#[derive(Debug, Clone, Default)]
pub struct ConfigProps {
    /// Folder of presets that extend the built-in ones.
    pub config_dir: Option<PathBuf>,
    /// File: the `config.yaml` of a run, or one written by hand.
    pub config: Option<PathBuf>,
    /// Overrides in Hydra's syntax, in order.
    pub overrides: Vec<String>,
    /// Program and arguments after `--`.
    pub program: Vec<String>,
}

/// A composed configuration.
#[derive(Debug, Clone)]
pub struct Composed {
    /// Typed values.
    pub config: Config,
    /// Chosen option of each group.
    pub choices: Vec<Choice>,
    /// What was left out of the folder of presets.
    pub notes: Vec<String>,
    tree: Node,
}

/// Chosen option of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Group.
    pub group: String,
    /// Option.
    pub option: String,
    /// True for a choice that follows `run.mode`.
    pub follows_mode: bool,
    /// Origin of the choice.
    pub origin: Origin,
}

/// A value with its origin, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Dotted key.
    pub key: String,
    /// Value as JSON.
    pub json: serde_json::Value,
    /// Origin.
    pub origin: String,
}

/// Composes presets, the user's folder, a file and overrides into one configuration.
pub fn compose(props: &ConfigProps) -> Result<Composed, ConfigError> {
    check_program(&props.program)?;
    let presets = Presets::open(props.config_dir.as_deref())?;
    let profiling = profiling_preset(&presets, &props.overrides)?;
    let mut layers = Layers::read(props, &presets)?;
    layers.choose_on_the_command_line(profiling.is_some(), &props.program)?;
    layers.choose_by_runner(&presets)?;
    layers.choose_by_model();
    let (mut tree, choices) = layers.options(&presets)?;
    let Layers { base, overrides, file, .. } = layers;
    if let Some(preset) = profiling {
        tree::check_at(&preset, &base, &["profiling"])?;
        let mut map = Node::map(preset.origin.clone());
        map.set(&["profiling"], preset);
        tree.lay_over(map);
    }
    if let Some(file) = file {
        tree.lay_over(file.tree);
    }
    for change in overrides.iter().filter(|change| group_of(&change.key).is_none()) {
        apply(change, &mut tree, &base)?;
    }
    if !props.program.is_empty() {
        let items = props.program.iter().map(|arg| Node::text(arg, Origin::Program));
        tree.set(&["workload", "program"], Node::new(Value::List(items.collect()), Origin::Program));
    }
    keep_original_folder(&mut tree, &props.overrides);
    let config = typed(&tree)?;
    if let Some((key, why)) = config.contradiction() {
        return Err(value_error(&tree, key, why));
    }
    Ok(Composed { config, choices, notes: presets.into_notes(), tree })
}

/// The layers of a configuration while its options are chosen.
struct Layers {
    /// Every key with its default.
    base: Node,
    /// Chosen option of each group, as written.
    defaults: Vec<(String, Node)>,
    overrides: Vec<Override>,
    file: Option<UserFile>,
    /// Groups whose option the command line chooses.
    chosen_here: Vec<String>,
}

impl Layers {
    fn read(props: &ConfigProps, presets: &Presets) -> Result<Self, ConfigError> {
        let (base, mut defaults) = presets.base()?;
        let mut overrides = Vec::new();
        for text in &props.overrides {
            overrides.extend(original::overrides(text)?);
        }
        let mut file = props.config.as_deref().map(|path| UserFile::read(path, &base)).transpose()?;
        if let Some(file) = &mut file {
            tree::choose_all(&mut defaults, std::mem::take(&mut file.defaults))?;
        }
        Ok(Self { base, defaults, overrides, file, chosen_here: Vec::new() })
    }

    /// Takes the choices of the overrides; a program chooses the workload that runs it.
    fn choose_on_the_command_line(
        &mut self,
        all_of_profiling: bool,
        program: &[String],
    ) -> Result<(), ConfigError> {
        for choice in &self.overrides.clone() {
            if let Some((group, folder)) = group_of(&choice.key) {
                let of_all = all_of_profiling && !choice.text.contains(group);
                let node = match of_all {
                    true => Node::text(FOLLOWS_MODE, choice.origin()),
                    false => choice_of(choice, folder)?,
                };
                self.choose(group, node)?;
            }
        }
        if !program.is_empty() && !self.chosen_here.iter().any(|group| group == "workload") {
            let node = Node::text("command", Origin::Program);
            self.choose("workload", node)?;
        }
        Ok(())
    }

    fn choose(&mut self, group: &str, option: Node) -> Result<(), ConfigError> {
        self.chosen_here.push(group.to_owned());
        tree::choose_all(&mut self.defaults, vec![(group.to_owned(), option)])
    }

    /// Takes the session's keys and the choices of other groups out of the runner's preset.
    fn choose_by_runner(&mut self, presets: &Presets) -> Result<(), ConfigError> {
        let runner =
            self.defaults.iter().find(|(group, _)| group == "runner").and_then(|(_, node)| node.as_text());
        if let Some(of_runner) = runner.map(|option| presets.of_runner(option)).transpose()?.flatten() {
            tree::check(&of_runner.session, &self.base)?;
            self.base.lay_over(of_runner.session);
            let choices =
                of_runner.choices.into_iter().filter(|(group, _)| !self.chosen_here.contains(group));
            tree::choose_all(&mut self.defaults, choices.collect())?;
        }
        Ok(())
    }

    /// Runs a model that is named: the default workload is the embedded model, which is another one.
    fn choose_by_model(&mut self) {
        if let Some(by) = named_model(&self.defaults, &self.overrides, self.file.as_ref(), &self.base)
            && !self.overrides.iter().any(|change| change.key == "workload.kind")
            && let Some((_, chosen)) = self.defaults.iter_mut().find(|(group, _)| group == "workload")
            && matches!(chosen.origin, Origin::Builtin { .. })
        {
            *chosen = Node::text("hf", Origin::Implied { by });
        }
    }

    /// Lays the presets of the chosen options over the defaults.
    fn options(&mut self, presets: &Presets) -> Result<(Node, Vec<Choice>), ConfigError> {
        let mode = mode_of(&self.overrides, self.file.as_ref(), &self.base);
        if !mode.as_text().is_some_and(|mode| MODES.contains(&mode)) {
            return Err(mode.refused("run.mode", format!("expected {}", MODES.join(" or "))));
        }
        let in_file = |file: &UserFile| file.tree.at(&["run", "mode"])?.as_text().map(str::to_owned);
        let mode_in_file = self.file.as_ref().and_then(in_file);
        let mut tree = self.base.clone();
        let mut choices = Vec::new();
        for (group, node) in std::mem::take(&mut self.defaults) {
            let written = presets.resolve_name(&group, node.as_text().unwrap_or_default())?;
            let follows_mode = written == FOLLOWS_MODE;
            let (option, origin) = match follows_mode {
                true => (mode.as_text().unwrap_or_default().to_owned(), mode.origin.clone()),
                false => (written, node.origin),
            };
            let path: Vec<&str> = group.split('/').collect();
            let mode_changed = follows_mode && mode_in_file.as_deref().is_some_and(|mode| mode != option);
            if let Some(file) = &mut self.file
                && (self.chosen_here.contains(&group) || mode_changed)
            {
                // A choice on the command line replaces the values of that group in the file.
                file.tree.remove(&path);
            }
            let in_file =
                self.file.as_ref().is_some_and(|file| file.resolved && file.tree.at(&path).is_some());
            if !in_file {
                let preset = presets.option(&group, &option, &origin)?;
                tree::check_at(&preset, &self.base, &path)?;
                if let Some(mut group) = tree.at(&path).cloned() {
                    group.lay_over(preset);
                    tree.set(&path, group);
                }
            }
            choices.push(Choice { group, option, follows_mode, origin });
        }
        Ok((tree, choices))
    }
}

/// Keeps the folder of the original system where its runs are, and where one of its own keys is used.
fn keep_original_folder(tree: &mut Node, overrides: &[String]) {
    const FOLDER: [&str; 2] = ["artifacts", "stage2_dir"];
    let is_set = |path: &[&str]| tree.at(path).is_some_and(|node| !matches!(node.value, Value::Null));
    let of_original = if is_set(&["stage1", "run_dir"]) {
        "stage1.run_dir"
    } else if is_set(&["inputs", "manifest"]) {
        "inputs.manifest"
    } else if tree.at(&["workload", "kind"]).and_then(Node::as_text) == Some("hydra") {
        "workload=hydra"
    } else if let Some(choice) = overrides.iter().find(|text| text.contains("=stage2")) {
        choice
    } else if Path::new(ORIGINAL_BASE).is_dir() {
        "tmp/stage2, which exists"
    } else {
        return;
    };
    if tree.at(&FOLDER).is_some_and(|node| matches!(node.origin, Origin::Builtin { .. })) {
        let origin = Origin::Implied { by: of_original.to_owned() };
        tree.set(&FOLDER, Node::text(ORIGINAL_BASE, origin));
    }
}

/// Returns the file of the user's folder that `profiling=OPTION` names.
fn profiling_preset(presets: &Presets, overrides: &[String]) -> Result<Option<Node>, ConfigError> {
    let chosen = overrides.iter().rev().find_map(|text| {
        let (key, option) = text.split_once('=')?;
        (key.trim_start_matches('+') == "profiling").then(|| option.trim())
    });
    let plain = |option: &&str| !option.is_empty() && !option.contains(['/', '\\', '.']);
    chosen.filter(plain).map_or(Ok(None), |option| presets.of_profiling(option))
}

/// Refuses overrides in the place of the program: the original system has `--` before them.
fn check_program(program: &[String]) -> Result<(), ConfigError> {
    let is_override = |word: &String| {
        let named = word.split_once('=').is_some_and(|(key, _)| key.contains(['.', '/', '+']));
        (named || word.starts_with(['+', '~'])) && Override::parse(word).is_ok()
    };
    match program.first() {
        Some(first) if program.iter().all(is_override) => {
            let why = "after -- stands the program to profile; leave out the -- before overrides";
            Err(Override::wrong(first, why))
        }
        _ => Ok(()),
    }
}

impl Composed {
    /// Writes the configuration as YAML that `--config` reads back.
    pub fn to_yaml(&self) -> String {
        tree::write(&self.whole(), &|_| None)
    }

    /// Writes the configuration as YAML with the origin of each value as a comment.
    pub fn to_annotated_yaml(&self) -> String {
        tree::write(&self.whole(), &|node| Some(node.origin.to_string()))
    }

    /// Lists the values with their origins.
    pub fn explain(&self) -> Vec<Explained> {
        let explained = |(key, node): (String, &Node)| Explained {
            key,
            json: node.to_json(),
            origin: node.origin.to_string(),
        };
        self.tree.leaves().into_iter().map(explained).collect()
    }

    fn whole(&self) -> Node {
        let mut whole = Node::map(self.tree.origin.clone());
        whole.set(&["schema"], Node::text(SCHEMA, Origin::Builtin { file: "config.yaml".to_owned() }));
        whole.set(&["defaults"], Node::map(self.tree.origin.clone()));
        for choice in &self.choices {
            let option = if choice.follows_mode { FOLLOWS_MODE } else { &choice.option };
            whole.set(&["defaults", &choice.group], Node::text(option, choice.origin.clone()));
        }
        whole.lay_over(self.tree.clone());
        whole
    }
}

/// File given by `--config`.
struct UserFile {
    tree: Node,
    defaults: Vec<(String, Node)>,
    resolved: bool,
}

impl UserFile {
    fn read(path: &Path, base: &Node) -> Result<Self, ConfigError> {
        let mut tree = read_user_file(path)?;
        let resolved = match tree.remove(&["schema"]) {
            None => false,
            Some(node) if node.as_text() == Some(SCHEMA) => true,
            Some(node) => return Err(node.refused("schema", format!("this version reads {SCHEMA}"))),
        };
        let defaults = tree::take_defaults(&mut tree)?;
        tree::check(&tree, base)?;
        Ok(Self { tree, defaults, resolved })
    }
}

/// Splits the key of a choice into its group and a folder below it: `model/llm=alt` chooses `llm/alt` of `model`.
fn group_of(key: &str) -> Option<(&'static str, &str)> {
    GROUPS.iter().find_map(|group| match key.strip_prefix(group)? {
        "" => Some((*group, "")),
        below => Some((*group, below.strip_prefix('/')?)),
    })
}

/// Returns the choice or key that names a model, as written.
fn named_model(
    defaults: &[(String, Node)],
    overrides: &[Override],
    file: Option<&UserFile>,
    base: &Node,
) -> Option<String> {
    const SOURCES: [&str; 3] = ["target", "preset", "config"];
    let is_set = |value: &Node| !matches!(value.value, Value::Null);
    let key = overrides.iter().rev().find(|change| {
        let source = change.key.strip_prefix("model.");
        source.is_some_and(|source| SOURCES.contains(&source)) && change.value.as_ref().is_some_and(is_set)
    });
    if let Some(change) = key {
        return Some(change.text.clone());
    }
    let option =
        defaults.iter().find_map(|(group, node)| (group == "model").then(|| node.as_text()).flatten());
    if let Some(option) = option.filter(|option| *option != NO_MODEL) {
        return Some(format!("model={option}"));
    }
    let trees = file.map(|file| &file.tree).into_iter().chain([base]);
    trees
        .flat_map(|tree| SOURCES.map(|source| (source, tree.at(&["model", source]))))
        .find(|(_, node)| node.is_some_and(is_set))
        .map(|(source, _)| format!("model.{source}"))
}

/// Reads the option from an override of a group, or of a folder below it.
fn choice_of(choice: &Override, folder: &str) -> Result<Node, ConfigError> {
    let why = match choice.plain() {
        Some("") => "the option is missing",
        Some(plain) if folder.is_empty() => return Ok(Node::text(plain, choice.origin())),
        Some(plain) => return Ok(Node::text(format!("{folder}/{plain}"), choice.origin())),
        None => "it cannot be removed",
    };
    let key = &choice.key;
    Err(Override::wrong(&choice.text, format!("{key} is a group: {why}; write {key}=OPTION")))
}

/// Finds the mode of the run, which other choices follow.
fn mode_of(overrides: &[Override], file: Option<&UserFile>, base: &Node) -> Node {
    let mut written = overrides.iter().rev().filter(|change| change.key == "run.mode");
    let written = written.find_map(|change| Some(Node::text(change.plain()?, change.origin())));
    let of = |tree: &Node| tree.at(&["run", "mode"]).filter(|node| node.as_text().is_some()).cloned();
    written
        .or_else(|| of(&file?.tree))
        .or_else(|| of(base))
        .unwrap_or_else(|| Node::text("deep", base.origin.clone()))
}

fn apply(change: &Override, tree: &mut Node, base: &Node) -> Result<(), ConfigError> {
    let key = change.key.as_str();
    let wrong = |why: String| Override::wrong(&change.text, why);
    if let Some(group) = GROUPS.iter().find(|group| group.replace('/', ".") == key)
        && change.value.as_ref().is_some_and(|value| value.as_map().is_none())
    {
        return Err(wrong(format!("{group} is a group; write {group}=OPTION")));
    }
    let path: Vec<&str> = key.split('.').collect();
    let exists = tree.at(&path).is_some();
    // A removed key may be set again.
    let known = exists || base.at(&path).is_some();
    let is_free = tree::is_free(key);
    match &change.value {
        Some(value) if known || (is_free && change.adds) => {
            if !is_free {
                tree::check_at(value, base, &path)?;
            }
            tree.set(&path, value.clone());
        }
        Some(_) if is_free => {
            return Err(wrong(format!("there is no key {key}; add it with +{}", change.text)));
        }
        None if exists => {
            tree.remove(&path);
        }
        _ => return Err(tree::unknown_key(key, base, &change.origin())),
    }
    Ok(())
}

fn typed(tree: &Node) -> Result<Config, ConfigError> {
    let json = tree.to_json();
    serde_path_to_error::deserialize(&json).map_err(|error| {
        let key = error.path().to_string();
        value_error(tree, &key, readable(&error.into_inner().to_string()))
    })
}

/// Rewrites a serde error for users.
fn readable(why: &str) -> String {
    let why = why
        .replace("expected u32", "expected a whole number of 0 or more")
        .replace("expected u64", "expected a whole number of 0 or more")
        .replace("expected f64", "expected a number");
    if let Some(name) = why.strip_prefix("missing field ") {
        return format!("missing {}", name.replace('`', ""));
    }
    if why.ends_with("expected a string") {
        return format!("{why}; write it in quotes: key='1'");
    }
    why
}

/// Builds the error for a value, with the origin of the nearest existing node.
fn value_error(tree: &Node, key: &str, why: String) -> ConfigError {
    let path: Vec<&str> = key.split(['.', '[']).filter(|part| *part != "?").collect();
    let found = (0..=path.len()).rev().find_map(|n| path.get(..n).and_then(|part| tree.at(part)));
    found.unwrap_or(tree).refused(key, why)
}
