//! Names and files of the original system: its presets, its keys, and its folder of Hydra configurations.
//!
//! What it has and roofgap does not need is left out, and a note says so.

use roofgap_base::error::Error;
use serde_json::Value;

use super::overrides::Override;
use super::presets::FOLLOWS_MODE;
use super::tree::{GROUPS, Leaf, Tree, take_defaults};

/// Keys of its presets that are spelled otherwise here: the section, the key there, and the key here.
const KEYS: [(&str, &str, &str); 9] = [
    ("profiling.nsys", "capture", "capture_range"),
    ("profiling.ncu", "section", "sections"),
    ("profiling.ncu", "ncu_cli.target_processes", "target_processes"),
    ("profiling.ncu", "ncu_cli.replay_mode", "replay_mode"),
    ("profiling.ncu", "ncu_cli.nvtx.include", "nvtx_include"),
    ("profiling.ncu", "ncu_cli.set", "set"),
    ("profiling.ncu", "ncu_cli.metrics", "metrics"),
    ("profiling.ncu", "ncu_cli.sections", "sections"),
    ("model", "path", "target"),
];

/// Keys of its presets without a use here, by section.
const UNUSED: [(&str, &str); 5] = [
    ("profiling.nsys", "enable"),
    (
        "profiling.ncu",
        "enable gating_nvtx csv description ncu_cli.kernel_name_base ncu_cli.export ncu_cli.force_overwrite",
    ),
    (
        "profiling.torch",
        "enabled activities record_shapes profile_memory with_stack group_by_input_shape rep_max_new_tokens warmup_rounds \
         warmup_synthetic",
    ),
    ("model", "preprocess"),
    ("runner", "hydra stage1_runner torch_profiler"),
];

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

/// Reads an override: with the key that its key stands for here, and as choices of several groups where it is one.
pub fn overrides(text: &str) -> Result<Vec<Override>, Error> {
    let mut read = Override::parse(text)?;
    if read.key == "profiling" {
        let of = |group: &str| Override { key: group.to_owned(), ..read.clone() };
        return Ok(GROUPS.into_iter().filter(|group| group.starts_with("profiling/")).map(of).collect());
    }
    // The presets are mounted at `nsys` and `ncu`, later at `pipeline.nsys` and `pipeline.ncu`.
    let bare = read.key.strip_prefix("pipeline.").unwrap_or(&read.key);
    let bare = bare.strip_prefix("profiling.").unwrap_or(bare);
    if let Some((tool @ ("nsys" | "ncu"), key)) = bare.split_once('.') {
        let section = format!("profiling.{tool}");
        let known = KEYS.iter().find(|(of, name, _)| *of == section && *name == key);
        let mut key = known.map_or(key, |(.., here)| here);
        if (tool, key) == ("nsys", "gating_nvtx") {
            let is_off = read.plain() == Some("false");
            read.value = read.value.map(|_| if is_off { "none".into() } else { Value::Null });
            key = "capture_range";
        }
        read.key = format!("{section}.{key}");
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
    let mut origin = None;
    let mut take = |name: &str, preset: &mut Tree| {
        let (_, leaf) = preset.take(&format!("{section}.{name}")).into_first()?;
        origin.get_or_insert_with(|| leaf.origin.clone());
        Some(leaf)
    };
    for (_, name, here) in KEYS.iter().filter(|(of, ..)| *of == section) {
        if let Some(mut leaf) = take(name, preset) {
            without_working_folder(&mut leaf.value);
            preset.set(&format!("{section}.{here}"), leaf);
        }
    }
    let names =
        UNUSED.iter().filter(|(of, _)| *of == section).flat_map(|(_, names)| names.split_whitespace());
    let unused: Vec<&str> = names.filter(|name| take(name, preset).is_some()).collect();
    // Its metrics are not those of verdicts and roofline.
    if group == "profiling/ncu"
        && origin.is_some()
        && let Some((key, mut metrics)) = preset.take("profiling.ncu.metrics").into_first()
    {
        add_auto(&mut metrics.value);
        preset.set(&key, metrics);
    }
    (!unused.is_empty()).then(|| {
        let origin = origin.map(|origin| format!(" ({origin})")).unwrap_or_default();
        format!("{group}: {} have no use here and are left out{origin}", unused.join(", "))
    })
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
pub fn of_runner(preset: &mut Tree) -> Result<(Tree, Vec<(String, Leaf)>), Error> {
    let mut session = Tree::default();
    for key in OF_SESSION {
        session.lay_over(preset.take(&format!("runner.{key}")).moved("runner.", ""));
    }
    if let Some((key, mut folder)) = session.take("artifacts.stage2_dir").into_first() {
        // The folder of a run is made here: its parent is the key.
        if let Value::String(text) = &mut folder.value {
            text.truncate(text.find("/${now:").unwrap_or(text.len()));
        }
        without_working_folder(&mut folder.value);
        session.set(&key, folder);
    }
    let mut choices = take_defaults(preset, "runner.defaults")?;
    for (mount, _) in &mut choices {
        *mount = mount.split('@').next().unwrap_or(mount).trim_start_matches('/').to_owned();
    }
    choices.retain(|(group, _)| GROUPS.contains(&group.as_str()));
    Ok((session, choices))
}

/// Makes a path relative to the working folder, as paths are here.
fn without_working_folder(path: &mut Value) {
    if let Some(relative) = path.as_str().and_then(|text| text.strip_prefix("${hydra:runtime.cwd}/")) {
        *path = relative.into();
    }
}
