//! The configuration of a session: built-in presets, a user's folder, a file and overrides, later ones winning.
//!
//! - [`compose`]: composes the layers into a typed [`Config`] that knows the origin of each value;
//! - [`settings`]: the typed values, with [`quantity`] for times and sizes;
//! - `tree`: untyped values by dotted key, and their YAML form;
//! - `overrides`: the override syntax;
//! - `presets`: groups and options, see [`list`]; `original`: names and files of the original system;
//! - [`model`]: the model that a configuration names.

pub mod model;
mod original;
mod overrides;
mod presets;
pub mod quantity;
pub mod settings;
mod tree;

pub use presets::{Group, PresetOption, list};
pub use quantity::Span;
pub use settings::Config;
pub use tree::{Origin, read_yaml, to_yaml};

use std::path::PathBuf;

use overrides::Override;
use presets::{FOLLOWS_MODE, Presets, read_user_file};
use roofgap_base::error::Error;
use serde_json::Value;
use tree::{GROUPS, Leaf, Tree};

/// Schema of a resolved configuration, which has every value.
const SCHEMA: &str = "roofgap.config/1";
/// Option of `model` that names none.
const NO_MODEL: &str = "auto";
/// Modes. A group that follows the mode has an option of each name.
const MODES: [&str; 2] = ["deep", "light"];

/// Makes the error of a configuration.
fn failed(message: String) -> Error {
    Error::new(message).with_hint("`roofgap config list` shows every group and option")
}

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
    /// What was left out of the folder of presets, and of a file of another version.
    pub notes: Vec<String>,
    /// Every value.
    tree: Tree,
    /// Chosen option of each group; one that follows the mode is [`FOLLOWS_MODE`].
    choices: Tree,
}

/// Composes presets, the user's folder, a file and overrides into one configuration.
pub fn compose(props: &ConfigProps) -> Result<Composed, Error> {
    check_program(&props.program)?;
    let mut presets = Presets::open(props.config_dir.as_deref())?;
    let mut layers = Layers::read(props, &mut presets)?;
    let profiling = presets.all_of_profiling(&layers.overrides)?;
    layers.choose_on_the_command_line(profiling.is_some(), &props.program)?;
    layers.choose_by_runner(&presets)?;
    layers.choose_by_model();
    let mut tree = layers.lay_options(&mut presets)?;
    profiling.into_iter().chain([layers.file]).for_each(|layer| tree.lay_over(layer));
    for change in layers.overrides.iter().filter(|change| group_of(&change.key).is_none()) {
        apply(change, &mut tree, &layers.base)?;
    }
    if !props.program.is_empty() {
        tree.set("workload.program", Leaf { value: props.program.clone().into(), origin: Origin::Program });
    }
    let config: Config = serde_path_to_error::deserialize(&tree.to_json()).map_err(|error| {
        let key = error.path().to_string();
        let why = error.into_inner().to_string();
        match tree.origin(&key).filter(|_| why.starts_with("unknown field")) {
            Some((key, origin)) => layers.base.unknown_key(key, origin),
            None => tree.refused(&key, &readable(&why)),
        }
    })?;
    match config.contradiction() {
        Some((key, why)) => Err(tree.refused(key, &why)),
        None => Ok(Composed { config, notes: presets.notes, tree, choices: layers.choices }),
    }
}

/// The layers of a configuration while its options are chosen.
struct Layers {
    /// Every key with its default.
    base: Tree,
    /// Chosen option of each group.
    choices: Tree,
    overrides: Vec<Override>,
    /// File given by `--config`.
    file: Tree,
    /// True where the file is the configuration of a run, which has every value.
    resolved: bool,
    /// Groups whose option the command line chooses.
    typed: Vec<&'static str>,
}

impl Layers {
    fn read(props: &ConfigProps, presets: &mut Presets) -> Result<Self, Error> {
        let (base, mut choices) = presets.base()?;
        let (mut overrides, mut file, mut resolved) = (Vec::new(), Tree::default(), false);
        for text in &props.overrides {
            overrides.extend(original::overrides(text)?);
        }
        if let Some(path) = &props.config {
            file = read_user_file(path, "")?;
            if let Some((_, schema)) = file.take("schema").pop() {
                if schema.value != SCHEMA {
                    return Err(schema.refused("schema", &format!("this version reads {SCHEMA}")));
                }
                resolved = true;
            }
            tree::choose(&mut choices, tree::take_defaults(&mut file, "defaults")?)?;
            if resolved {
                // A run of another version may have keys that this one does not have.
                presets.notes.extend(file.drop_unknown(&base).map(|keys| {
                    format!("{}: there is no key {keys} in this version; left out", path.display())
                }));
            }
        }
        Ok(Self { base, choices, overrides, file, resolved, typed: Vec::new() })
    }

    /// Takes the choices of the overrides; a program chooses the workload that runs it.
    fn choose_on_the_command_line(&mut self, is_of_all: bool, program: &[String]) -> Result<(), Error> {
        for choice in &self.overrides {
            let Some((group, folder)) = group_of(&choice.key) else { continue };
            let key = &choice.key;
            let wrong = |why| {
                let why = format!("{key} is a group: {why}; write {key}=OPTION");
                Override::wrong(&choice.text, why)
            };
            let option = match choice.plain().ok_or_else(|| wrong("it cannot be removed"))? {
                "" => return Err(wrong("the option is missing")),
                // The preset of all of `profiling` lies over the options of its groups.
                _ if is_of_all && original::is_of_all_profiling(choice) => FOLLOWS_MODE.to_owned(),
                option if folder.is_empty() => option.to_owned(),
                option => format!("{folder}/{option}"),
            };
            self.choices.set(group, Leaf::text(option, choice.origin()));
            self.typed.push(group);
        }
        if !program.is_empty() && !self.typed.contains(&"workload") {
            self.choices.set("workload", Leaf::text("command", Origin::Program));
            self.typed.push("workload");
        }
        Ok(())
    }

    /// Takes the session's keys and the choices of other groups out of the user's preset of the runner.
    fn choose_by_runner(&mut self, presets: &Presets) -> Result<(), Error> {
        let runner = self.choices.text("runner").unwrap_or_default();
        if let Some(mut preset) = presets.read_user(&format!("runner/{runner}.yaml"), "runner")? {
            let (session, mut choices) = original::of_runner(&mut preset)?;
            self.typed.iter().for_each(|group| drop(choices.take(group)));
            self.base.lay_over(session);
            self.choices.lay_over(choices);
        }
        Ok(())
    }

    /// Runs a model that is named: the default workload is the embedded model, which is another one.
    fn choose_by_model(&mut self) {
        if let Some(by) = self.named_model()
            && !self.overrides.iter().any(|change| change.key == "workload.kind")
            && self.choices.get("workload").is_some_and(Leaf::is_builtin)
        {
            self.choices.set("workload", Leaf::text("hf", Origin::Implied(by)));
        }
    }

    /// Returns the choice or key that names a model, as written.
    fn named_model(&self) -> Option<String> {
        let by_key = |key: &str| {
            let leaf = self.value(key).filter(|leaf| !leaf.value.is_null())?;
            Some(match leaf.origin {
                Origin::Override(text) => text,
                _ => key.to_owned(),
            })
        };
        let by_choice = || self.choices.text("model").filter(|option| *option != NO_MODEL);
        let key = ["model.target", "model.preset", "model.config"].into_iter().find_map(by_key);
        key.or_else(|| by_choice().map(|option| format!("model={option}")))
    }

    /// Returns the value of a key before options are laid.
    fn value(&self, key: &str) -> Option<Leaf> {
        let set = |change: &Override| {
            let value = change.value.clone().filter(|_| change.key == key)?;
            Some(Leaf { value, origin: change.origin() })
        };
        let written = self.overrides.iter().rev().find_map(set);
        written.or_else(|| self.file.get(key).or_else(|| self.base.get(key)).cloned())
    }

    /// Lays the presets of the chosen options over the defaults.
    fn lay_options(&mut self, presets: &mut Presets) -> Result<Tree, Error> {
        let mode = self.value("run.mode").unwrap_or_else(|| Leaf::text(MODES[0], Origin::Program));
        let wrong = || mode.refused("run.mode", &format!("expected {}", MODES.join(" or ")));
        let name = mode.value.as_str().filter(|name| MODES.contains(name)).ok_or_else(wrong)?;
        let mode_changes = self.file.text("run.mode").is_some_and(|in_file| in_file != name);
        let mut tree = self.base.clone();
        for (group, chosen) in self.choices.leaves() {
            let option = presets.resolve_name(group, chosen.value.as_str().unwrap_or_default());
            let follows_mode = option == FOLLOWS_MODE;
            let (option, origin) = match follows_mode {
                true => (name, &mode.origin),
                false => (option.as_str(), &chosen.origin),
            };
            let section = group.replace('/', ".");
            // A choice on the command line replaces the values of that group in the file.
            if self.typed.contains(&group) || follows_mode && mode_changes {
                self.file.take(&section);
            }
            if !(self.resolved && self.file.has(&section)) {
                tree.lay_over(presets.option(group, option, origin)?);
            }
        }
        Ok(tree)
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
        for (group, chosen) in self.choices.leaves() {
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
    let Override { key, text, .. } = change;
    let wrong = |why: String| Err(Override::wrong(text, why));
    let layer = change.value.clone().map(|value| Tree::new(key, value, |_| change.origin()));
    let Some(layer) = layer else {
        return match tree.take(key).is_empty() {
            true => Err(base.unknown_key(key, &change.origin())),
            false => Ok(()),
        };
    };
    if let Some(group) = GROUPS.iter().find(|group| group.replace('/', ".") == *key && layer.has(key)) {
        return wrong(format!("{group} is a group; write {group}=OPTION"));
    }
    if tree::is_free(key) {
        // A removed key may be set again.
        if !change.adds && !tree.has(key) && !base.has(key) {
            return wrong(format!("there is no key {key}; add it with +{text}"));
        }
        tree.take(key);
    }
    tree.lay_over(layer);
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
    if why.contains("expected struct ") {
        return "it is a map; set its keys one by one".to_owned();
    }
    if why.ends_with("expected a string") {
        return format!("{why}; write it in quotes: key='1'");
    }
    why
}
