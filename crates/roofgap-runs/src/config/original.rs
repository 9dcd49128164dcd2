//! Names and files of the original system: its presets, its keys, and its folder of Hydra configurations.
//!
//! What it has and roofgap does not need is left out, and a note says so.

use super::ConfigError;
use super::overrides::Override;
use super::presets::FOLLOWS_MODE;
use super::tree::{GROUPS, Map, Node, Value};

/// Groups of `profiling=OPTION`, which chooses the same option in each.
pub const PROFILERS: [&str; 3] = ["profiling/nsys", "profiling/ncu", "profiling/torch"];

/// Keys of its presets that are spelled otherwise here: the group, the key there, and the key here.
const KEYS: [(&str, &str, &str); 9] = [
    ("profiling/nsys", "capture", "capture_range"),
    ("profiling/ncu", "section", "sections"),
    ("profiling/ncu", "ncu_cli.target_processes", "target_processes"),
    ("profiling/ncu", "ncu_cli.replay_mode", "replay_mode"),
    ("profiling/ncu", "ncu_cli.nvtx.include", "nvtx_include"),
    ("profiling/ncu", "ncu_cli.set", "set"),
    ("profiling/ncu", "ncu_cli.metrics", "metrics"),
    ("profiling/ncu", "ncu_cli.sections", "sections"),
    ("model", "path", "target"),
];

/// Keys of its presets without a use here, by group.
const UNUSED: [(&str, &str); 5] = [
    ("profiling/nsys", "enable"),
    (
        "profiling/ncu",
        "enable gating_nvtx csv description ncu_cli.kernel_name_base ncu_cli.export ncu_cli.force_overwrite",
    ),
    (
        "profiling/torch",
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
pub fn overrides(text: &str) -> Result<Vec<Override>, ConfigError> {
    let mut read = Override::parse(text)?;
    if read.key == "profiling" {
        let of = |group: &str| Override { key: group.to_owned(), ..read.clone() };
        return Ok(PROFILERS.map(of).into());
    }
    // The presets are mounted at `nsys` and `ncu`, later at `pipeline.nsys` and `pipeline.ncu`.
    let bare = read.key.strip_prefix("pipeline.").unwrap_or(&read.key);
    for group in ["profiling/nsys", "profiling/ncu"] {
        let (own, mounted) = (group.replace('/', "."), group.trim_start_matches("profiling/"));
        let below = |prefix: &str| bare.strip_prefix(prefix)?.strip_prefix('.');
        let Some(key) = below(&own).or_else(|| below(mounted)) else {
            continue;
        };
        if key == "gating_nvtx" && group == "profiling/nsys" {
            let is_off = read.plain() == Some("false");
            if let Some(value) = &mut read.value {
                value.value = if is_off { Value::Text("none".to_owned()) } else { Value::Null };
            }
            read.key = format!("{own}.capture_range");
            break;
        }
        let known = KEYS.iter().find(|(of, name, _)| *of == group && *name == key);
        let key = known.map_or(key, |(.., here)| here);
        read.key = format!("{own}.{key}");
        break;
    }
    Ok(vec![read])
}

/// Tells whether a `config.yaml` configures a Hydra program and not roofgap.
pub fn is_of_hydra(tree: &Node) -> bool {
    let mounted = |item: &Node| match &item.value {
        Value::Text(text) => text == "_self_",
        Value::Map(map) => map.iter().any(|(group, _)| group.contains('@')),
        _ => false,
    };
    let defaults = tree.at(&["defaults"]).map(|node| &node.value);
    tree.at(&["hydra"]).is_some() || matches!(defaults, Some(Value::List(items)) if items.iter().any(mounted))
}

/// Gives the keys of a preset their names here, and leaves out those without a use, which the note names.
pub fn translate(group: &str, preset: &mut Node) -> Option<String> {
    let mut origin = None;
    let mut take = |name: &str, preset: &mut Node| {
        let node = preset.remove(&name.split('.').collect::<Vec<_>>())?;
        origin.get_or_insert_with(|| node.origin.clone());
        Some(node)
    };
    for (_, name, here) in KEYS.iter().filter(|(of, ..)| *of == group) {
        let Some(mut node) = take(name, preset) else {
            continue;
        };
        if *here == "metrics" {
            node = with_auto(node);
        }
        if let Value::Text(text) = &mut node.value {
            *text = without_working_folder(text);
        }
        preset.set(&[here], node);
    }
    let names = UNUSED.iter().filter(|(of, _)| *of == group).flat_map(|(_, names)| names.split_whitespace());
    let unused: Vec<&str> = names.filter(|name| take(name, preset).is_some()).collect();
    let emptied = |node: &Node| {
        node.as_map()
            .is_some_and(|map| map.iter().all(|(_, below)| below.as_map().is_some_and(Map::is_empty)))
    };
    if preset.at(&["ncu_cli"]).is_some_and(emptied) {
        preset.remove(&["ncu_cli"]);
    }
    // Its metrics are not those of verdicts and roofline.
    if group == "profiling/ncu"
        && preset.at(&["sections"]).is_some()
        && origin.is_some()
        && let Some(metrics) = preset.remove(&["metrics"])
    {
        preset.set(&["metrics"], with_auto(metrics));
    }
    (!unused.is_empty()).then(|| {
        let origin = origin.map(|origin| format!(" ({origin})")).unwrap_or_default();
        format!("{group}: {} have no use here and are left out{origin}", unused.join(", "))
    })
}

/// Adds the metrics of verdicts and roofline.
fn with_auto(mut metrics: Node) -> Node {
    let auto = |origin| Node::text("auto", origin);
    let is_auto = |node: &Node| node.as_text() == Some("auto");
    match &mut metrics.value {
        Value::List(items) if !items.iter().any(is_auto) => items.insert(0, auto(metrics.origin.clone())),
        Value::Text(text) if !text.split(',').any(|word| word.trim() == "auto") => {
            *text = format!("auto,{text}")
        }
        _ => {}
    }
    metrics
}

/// Keys that a runner preset sets outside its group, and the options that it chooses in other groups.
#[derive(Debug)]
pub struct OfRunner {
    /// Keys at the top of the configuration.
    pub session: Node,
    /// Options of groups.
    pub choices: Vec<(String, Node)>,
}

/// Takes out of a runner preset what belongs to the whole session.
pub fn of_runner(preset: &mut Node) -> OfRunner {
    let mut session = Node::map(preset.origin.clone());
    for key in OF_SESSION {
        if let Some(node) = preset.remove(&[key]) {
            session.set(&[key], node);
        }
    }
    if let Some(Value::Text(folder)) = session.at(&["artifacts", "stage2_dir"]).map(|node| &node.value) {
        // The folder of a run is made here: its parent is the key.
        let kept = folder.split("/${now:").next().unwrap_or(folder);
        let (text, origin) = (without_working_folder(kept), preset.origin.clone());
        session.set(&["artifacts", "stage2_dir"], Node::text(text, origin));
    }
    let mut choices = Vec::new();
    if let Some(Value::List(items)) = preset.remove(&["defaults"]).map(|node| node.value) {
        for (mount, node) in items.iter().filter_map(Node::as_map).flat_map(Map::iter) {
            let group = mount.split('@').next().unwrap_or(mount).trim_start_matches('/');
            if GROUPS.contains(&group) {
                choices.push((group.to_owned(), node.clone()));
            }
        }
    }
    OfRunner { session, choices }
}

/// Makes a path relative to the working folder, as paths are here.
fn without_working_folder(text: &str) -> String {
    text.strip_prefix("${hydra:runtime.cwd}/").unwrap_or(text).to_owned()
}
