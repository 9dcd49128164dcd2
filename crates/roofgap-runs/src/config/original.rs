//! Names and files of the original system: its presets, its keys, and its folder of Hydra configurations.
//!
//! What it has and roofgap does not need is left out, and a note says so.

use roofgap_base::error::Error;
use serde_json::Value;

use super::overrides::Override;
use super::presets::FOLLOWS_MODE;
use super::tree::{self, GROUPS, Tree};

/// Sections of its presets with their keys: `there=here` for a key that is spelled otherwise here, alone for one without a use.
const KEYS: [(&str, &str); 5] = [
    ("profiling.nsys", "capture=capture_range enable"),
    (
        "profiling.ncu",
        "section=sections ncu_cli.target_processes=target_processes ncu_cli.replay_mode=replay_mode \
         ncu_cli.nvtx.include=nvtx_include ncu_cli.set=set ncu_cli.metrics=metrics ncu_cli.sections=sections \
         enable gating_nvtx csv description ncu_cli.kernel_name_base ncu_cli.export ncu_cli.force_overwrite",
    ),
    (
        "profiling.torch",
        "enabled activities record_shapes profile_memory with_stack group_by_input_shape rep_max_new_tokens warmup_rounds \
         warmup_synthetic",
    ),
    ("model", "path=target preprocess"),
    ("runner", "hydra stage1_runner torch_profiler"),
];

/// Lists the keys of a section with their names here; `None` for one without a use.
fn keys_of(section: &str) -> impl Iterator<Item = (&'static str, Option<&'static str>)> + use<'_> {
    let keys =
        KEYS.iter().filter(move |(name, _)| *name == section).flat_map(|(_, keys)| keys.split_whitespace());
    keys.map(|key| key.split_once('=').map_or((key, None), |(there, here)| (there, Some(here))))
}

/// Keys at the top of the configuration that a runner preset may set.
const OF_SESSION: [&str; 5] = ["run", "artifacts", "inputs", "stage1", "retention"];

/// Returns the option that one of its names stands for, such as `nsys.default`, `stage2` or `stage2.light`.
pub fn option(group: &str, name: &str) -> String {
    let prefix = match group {
        "runner" => "stage2.",
        "profiling/nsys" => "nsys.",
        "profiling/ncu" => "ncu.",
        "profiling/torch" => "torch-profiler.",
        _ => return name.to_owned(),
    };
    let short = name.strip_prefix(prefix).or_else(|| name.strip_prefix("stage2.")).unwrap_or(name);
    match short {
        "stage2" | "default" => FOLLOWS_MODE,
        "min" if short != name => "light",
        "high" | "max" if short != name => "deep",
        short => short,
    }
    .to_owned()
}

/// Tells whether an override chooses the options of all groups of `profiling`.
pub fn is_of_all_profiling(change: &Override) -> bool {
    change.text.trim_start_matches('+').starts_with("profiling=")
}

/// Reads an override: with the key that its key stands for here, and as choices of several groups where it is one.
pub fn overrides(text: &str) -> Result<Vec<Override>, Error> {
    let mut read = Override::parse(text)?;
    if read.key == "profiling" {
        let choice = |group: &str| Override { key: group.to_owned(), ..read.clone() };
        return Ok(GROUPS.into_iter().filter(|group| group.starts_with("profiling/")).map(choice).collect());
    }
    // The presets are mounted at `nsys` and `ncu`, later at `pipeline.nsys` and `pipeline.ncu`.
    let bare = read.key.strip_prefix("pipeline.").unwrap_or(&read.key);
    let bare = bare.strip_prefix("profiling.").unwrap_or(bare);
    if let Some((tool @ ("nsys" | "ncu"), key)) = bare.split_once('.') {
        let section = format!("profiling.{tool}");
        let mut here =
            keys_of(&section).find(|(there, _)| *there == key).and_then(|(_, here)| here).unwrap_or(key);
        if (tool, here) == ("nsys", "gating_nvtx") {
            let is_off = read.plain() == Some("false");
            read.value = read.value.map(|_| if is_off { "none".into() } else { Value::Null });
            here = "capture_range";
        }
        read.key = format!("{section}.{here}");
    }
    Ok(vec![read])
}

/// Tells whether a `config.yaml` configures a Hydra program and not roofgap.
pub fn is_of_hydra(tree: &Tree) -> bool {
    let mounted = |item: &Value| {
        item == "_self_" || item.as_object().is_some_and(|map| map.keys().any(|group| group.contains('@')))
    };
    let defaults = tree.get("defaults").and_then(|leaf| leaf.value.as_array());
    tree.has("hydra") || defaults.is_some_and(|items| items.iter().any(mounted))
}

/// Gives the keys of a preset their names here, and leaves out those without a use, which the note names.
pub fn translate(group: &str, preset: &mut Tree) -> Option<String> {
    let section = group.replace('/', ".");
    let (mut origin, mut unused) = (None, Vec::new());
    for (there, here) in keys_of(&section) {
        for (_, mut leaf) in preset.take(&format!("{section}.{there}")).into_iter().take(1) {
            origin.get_or_insert_with(|| leaf.origin.clone());
            match here {
                Some(here) => {
                    without_working_folder(&mut leaf.value);
                    preset.set(&format!("{section}.{here}"), leaf);
                }
                None => unused.push(there),
            }
        }
    }
    let origin = origin?;
    // Its metrics are not those of verdicts and roofline.
    let metrics = "profiling.ncu.metrics";
    if group == "profiling/ncu"
        && let Some((_, mut leaf)) = preset.take(metrics).pop()
    {
        add_auto(&mut leaf.value);
        preset.set(metrics, leaf);
    }
    let unused = Some(unused.join(", ")).filter(|unused| !unused.is_empty())?;
    Some(format!("{group}: {unused} have no use here and are left out ({origin})"))
}

/// Adds the metrics of verdicts and roofline.
fn add_auto(metrics: &mut Value) {
    match metrics {
        Value::Array(items) if !items.iter().any(|item| item == "auto") => items.insert(0, "auto".into()),
        Value::String(text) if !text.split(',').any(|word| word.trim() == "auto") => {
            *text = format!("auto,{text}");
        }
        _ => {}
    }
}

/// Takes out of a runner preset what belongs to the whole session: keys at the top of the configuration, and options of other groups.
pub fn of_runner(preset: &mut Tree) -> Result<(Tree, Tree), Error> {
    let (mut session, mut choices) = (Tree::default(), Tree::default());
    for (key, mut leaf) in OF_SESSION.iter().flat_map(|key| preset.take(&format!("runner.{key}"))) {
        let key = key.trim_start_matches("runner.");
        if key == "artifacts.stage2_dir" {
            // The folder of a run is made here: its parent is the key.
            if let Value::String(text) = &mut leaf.value {
                text.truncate(text.find("/${now:").unwrap_or(text.len()));
            }
            without_working_folder(&mut leaf.value);
        }
        session.set(key, leaf);
    }
    for (mount, leaf) in tree::take_defaults(preset, "runner.defaults")?.leaves() {
        let group = mount.split('@').next().unwrap_or(mount).trim_start_matches('/');
        if GROUPS.contains(&group) {
            choices.set(group, leaf.clone());
        }
    }
    Ok((session, choices))
}

/// Makes a path relative to the working folder, as paths are here.
fn without_working_folder(path: &mut Value) {
    if let Some(relative) = path.as_str().and_then(|text| text.strip_prefix("${hydra:runtime.cwd}/")) {
        *path = relative.into();
    }
}
