//! Composes the layers of a configuration.

use std::path::{Path, PathBuf};

use roofgap_base::error::Error;
use serde_json::Value;

use super::original;
use super::overrides::Override;
use super::presets::{FOLLOWS_MODE, Presets, read_user_file};
use super::settings::Config;
use super::tree::{self, Choices, GROUPS, Leaf, Origin, Tree};
use crate::run_dir::ORIGINAL_BASE;

/// Schema of a resolved configuration, which has every value.
const SCHEMA: &str = "roofgap.config/1";
/// Option of `model` that names none.
const NO_MODEL: &str = "auto";
/// Modes. A group that follows the mode has an option of each name.
const MODES: [&str; 2] = ["deep", "light"];

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
    /// What was left out of the folder of presets.
    pub notes: Vec<String>,
    /// Every value.
    tree: Tree,
    /// Chosen option of each group; one that follows the mode is [`FOLLOWS_MODE`].
    choices: Choices,
}

/// Composes presets, the user's folder, a file and overrides into one configuration.
pub fn compose(props: &ConfigProps) -> Result<Composed, Error> {
    check_program(&props.program)?;
    let presets = Presets::open(props.config_dir.as_deref())?;
    let profiling = presets.all_of_profiling(&props.overrides)?;
    let mut layers = Layers::read(props, &presets)?;
    layers.choose_on_the_command_line(profiling.is_some(), &props.program)?;
    layers.choose_by_runner(&presets)?;
    layers.choose_by_model();
    let mut tree = layers.lay_options(&presets)?;
    for layer in profiling.into_iter().chain(layers.file.map(|file| file.tree)) {
        layers.base.check(&layer)?;
        tree.lay_over(layer);
    }
    for change in layers.overrides.iter().filter(|change| group_of(&change.key).is_none()) {
        apply(change, &mut tree, &layers.base)?;
    }
    if !props.program.is_empty() {
        tree.set("workload.program", Leaf { value: props.program.clone().into(), origin: Origin::Program });
    }
    keep_original_folder(&mut tree, &props.overrides);
    let config: Config = serde_path_to_error::deserialize(&tree.to_json()).map_err(|error| {
        let key = error.path().to_string();
        tree.refused(&key, readable(&error.into_inner().to_string()))
    })?;
    if let Some((key, why)) = config.contradiction() {
        return Err(tree.refused(key, why));
    }
    Ok(Composed { config, notes: presets.into_notes(), tree, choices: layers.choices })
}

/// The layers of a configuration while its options are chosen.
struct Layers {
    /// Every key with its default.
    base: Tree,
    choices: Choices,
    overrides: Vec<Override>,
    file: Option<UserFile>,
    /// Groups whose option the command line chooses.
    typed: Vec<String>,
}

/// File given by `--config`.
struct UserFile {
    tree: Tree,
    /// True for the configuration of a run, which has every value.
    resolved: bool,
}

impl Layers {
    fn read(props: &ConfigProps, presets: &Presets) -> Result<Self, Error> {
        let (base, mut choices) = presets.base()?;
        let mut overrides = Vec::new();
        for text in &props.overrides {
            overrides.extend(original::overrides(text)?);
        }
        let mut file = None;
        if let Some(path) = &props.config {
            let mut tree = read_user_file(path, "")?;
            let schema = tree.take("schema").into_first().map(|(_, leaf)| leaf);
            if let Some(other) = schema.as_ref().filter(|leaf| leaf.value != SCHEMA) {
                return Err(other.refused("schema", format!("this version reads {SCHEMA}")));
            }
            tree::choose(&mut choices, tree::take_defaults(&mut tree, "defaults")?)?;
            base.check(&tree)?;
            file = Some(UserFile { tree, resolved: schema.is_some() });
        }
        Ok(Self { base, choices, overrides, file, typed: Vec::new() })
    }

    /// Takes the choices of the overrides; a program chooses the workload that runs it.
    fn choose_on_the_command_line(&mut self, of_all: bool, program: &[String]) -> Result<(), Error> {
        for choice in &self.overrides {
            let Some((group, folder)) = group_of(&choice.key) else { continue };
            let why = match choice.plain() {
                None => "it cannot be removed",
                Some("") => "the option is missing",
                Some(option) => {
                    let option = match folder {
                        // The preset of all of `profiling` lies over the options of its groups.
                        _ if of_all && !choice.text.contains(group) => FOLLOWS_MODE.to_owned(),
                        "" => option.to_owned(),
                        folder => format!("{folder}/{option}"),
                    };
                    self.choices.insert(group.to_owned(), Leaf::text(option, choice.origin()));
                    self.typed.push(group.to_owned());
                    continue;
                }
            };
            let key = &choice.key;
            return Err(Override::wrong(
                &choice.text,
                format!("{key} is a group: {why}; write {key}=OPTION"),
            ));
        }
        if !program.is_empty() && !self.typed.iter().any(|group| group == "workload") {
            self.choices.insert("workload".to_owned(), Leaf::text("command", Origin::Program));
            self.typed.push("workload".to_owned());
        }
        Ok(())
    }

    /// Takes the session's keys and the choices of other groups out of the user's preset of the runner.
    fn choose_by_runner(&mut self, presets: &Presets) -> Result<(), Error> {
        let runner = self.choices.get("runner").and_then(|leaf| leaf.value.as_str()).unwrap_or_default();
        if let Some(mut preset) = presets.read_user(&format!("runner/{runner}.yaml"), "runner")? {
            let (session, choices) = original::of_runner(&mut preset)?;
            self.base.check(&session)?;
            self.base.lay_over(session);
            let others = choices.into_iter().filter(|(group, _)| !self.typed.contains(group));
            tree::choose(&mut self.choices, others)?;
        }
        Ok(())
    }

    /// Runs a model that is named: the default workload is the embedded model, which is another one.
    fn choose_by_model(&mut self) {
        if let Some(by) = self.named_model()
            && !self.overrides.iter().any(|change| change.key == "workload.kind")
            && let Some(chosen) = self.choices.get_mut("workload")
            && matches!(chosen.origin, Origin::Builtin(_))
        {
            *chosen = Leaf::text("hf", Origin::Implied(by));
        }
    }

    /// Returns the choice or key that names a model, as written.
    fn named_model(&self) -> Option<String> {
        const SOURCES: [&str; 3] = ["model.target", "model.preset", "model.config"];
        let names_one = |change: &&Override| {
            let value = change.value.as_ref();
            SOURCES.contains(&change.key.as_str()) && value.is_some_and(|value| !value.is_null())
        };
        if let Some(change) = self.overrides.iter().rev().find(names_one) {
            return Some(change.text.clone());
        }
        let option = self.choices.get("model").and_then(|leaf| leaf.value.as_str());
        if let Some(option) = option.filter(|option| *option != NO_MODEL) {
            return Some(format!("model={option}"));
        }
        let in_file = |key: &&str| self.file.as_ref().is_some_and(|file| file.tree.is_set(key));
        SOURCES.into_iter().find(|key| in_file(key) || self.base.is_set(key)).map(str::to_owned)
    }

    /// Finds the mode of the run, which other choices follow.
    fn mode(&self) -> Leaf {
        let written = self.overrides.iter().rev().filter(|change| change.key == "run.mode");
        let written = written.filter_map(|change| Some(Leaf::text(change.plain()?, change.origin()))).next();
        let in_file = || self.file.as_ref().and_then(|file| file.tree.get("run.mode"));
        let default = || in_file().or_else(|| self.base.get("run.mode")).cloned();
        written.or_else(default).unwrap_or_else(|| Leaf::text("deep", Origin::Program))
    }

    /// Lays the presets of the chosen options over the defaults.
    fn lay_options(&mut self, presets: &Presets) -> Result<Tree, Error> {
        let mode = self.mode();
        let name = mode
            .value
            .as_str()
            .filter(|name| MODES.contains(name))
            .ok_or_else(|| mode.refused("run.mode", format!("expected {}", MODES.join(" or "))))?;
        let in_file = self.file.as_ref().and_then(|file| file.tree.text("run.mode"));
        let mode_changes = in_file.is_some_and(|of_file| of_file != name);
        let mut tree = self.base.clone();
        for (group, chosen) in &mut self.choices {
            let option = presets.resolve_name(group, chosen.value.as_str().unwrap_or_default())?;
            let follows_mode = option == FOLLOWS_MODE;
            let (option, origin) = match follows_mode {
                true => (name, &mode.origin),
                false => (option.as_str(), &chosen.origin),
            };
            let section = group.replace('/', ".");
            if let Some(file) = &mut self.file {
                // A choice on the command line replaces the values of that group in the file.
                if self.typed.contains(group) || follows_mode && mode_changes {
                    file.tree.take(&section);
                }
                if file.resolved && file.tree.has(&section) {
                    continue;
                }
            }
            let preset = presets.option(group, option, origin)?;
            self.base.check(&preset)?;
            tree.lay_over(preset);
        }
        Ok(tree)
    }
}

/// Keeps the folder of the original system where its runs are, and where one of its own keys is used.
fn keep_original_folder(tree: &mut Tree, overrides: &[String]) {
    const FOLDER: &str = "artifacts.stage2_dir";
    let keys = ["stage1.run_dir", "inputs.manifest"].into_iter().find(|key| tree.is_set(key));
    let hydra = || (tree.text("workload.kind") == Some("hydra")).then_some("workload=hydra");
    let choice = || overrides.iter().find(|text| text.contains("=stage2")).map(String::as_str);
    let folder = || Path::new(ORIGINAL_BASE).is_dir().then_some("tmp/stage2, which exists");
    if let Some(by) = keys.or_else(hydra).or_else(choice).or_else(folder)
        && tree.get(FOLDER).is_some_and(|leaf| matches!(leaf.origin, Origin::Builtin(_)))
    {
        tree.set(FOLDER, Leaf::text(ORIGINAL_BASE, Origin::Implied(by.to_owned())));
    }
}

/// Refuses overrides in the place of the program: the original system has `--` before them.
fn check_program(program: &[String]) -> Result<(), Error> {
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
        self.whole().write(|_| None)
    }

    /// Writes the configuration as YAML with the origin of each value as a comment.
    pub fn to_annotated_yaml(&self) -> String {
        self.whole().write(|leaf| Some(leaf.origin.to_string()))
    }

    /// Lists the values with their keys and origins.
    pub fn explain(&self) -> impl Iterator<Item = (&str, &Value, &Origin)> {
        self.tree.leaves().map(|(key, leaf)| (key, &leaf.value, &leaf.origin))
    }

    fn whole(&self) -> Tree {
        let mut whole = self.tree.clone();
        whole.set("schema", Leaf::text(SCHEMA, Origin::Builtin("config.yaml".to_owned())));
        for (group, chosen) in &self.choices {
            whole.set(&format!("defaults.{group}"), chosen.clone());
        }
        whole
    }
}

/// Splits the key of a choice into its group and a folder below it: `model/llm=alt` chooses `llm/alt` of `model`.
fn group_of(key: &str) -> Option<(&'static str, &str)> {
    GROUPS.iter().find_map(|group| match key.strip_prefix(group)? {
        "" => Some((*group, "")),
        below => Some((*group, below.strip_prefix('/')?)),
    })
}

/// Applies an override of a key.
fn apply(change: &Override, tree: &mut Tree, base: &Tree) -> Result<(), Error> {
    let key = change.key.as_str();
    let wrong = |why: String| Override::wrong(&change.text, why);
    if let Some(group) = GROUPS.iter().find(|group| group.replace('/', ".") == key)
        && change.value.as_ref().is_some_and(|value| !value.is_object())
    {
        return Err(wrong(format!("{group} is a group; write {group}=OPTION")));
    }
    // A removed key may be set again.
    let is_known = tree.has(key) || base.has(key);
    let is_free = tree::is_free(key);
    match &change.value {
        Some(value) if is_known || (is_free && change.adds) => {
            let layer = Tree::new(key, value.clone(), |_| change.origin());
            base.check(&layer)?;
            if is_free {
                tree.take(key);
            }
            tree.lay_over(layer);
        }
        Some(_) if is_free => {
            return Err(wrong(format!("there is no key {key}; add it with +{}", change.text)));
        }
        None if tree.has(key) => drop(tree.take(key)),
        _ => return Err(base.unknown_key(key, &change.origin())),
    }
    Ok(())
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
