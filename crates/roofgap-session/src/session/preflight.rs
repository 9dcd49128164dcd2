//! Before anything is run: the program, the tools, the GPU, room on the disk, and the provenance of it all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_collect::child::free_bytes;
use roofgap_collect::command::{find_on_path, is_executable};
use roofgap_collect::file::{FileHash, hash_file};
use roofgap_collect::program::Scripts as ProgramScripts;
use roofgap_collect::provenance::Python;

use super::desk::Desk;
use super::environment::{Environment, GpuFacts, python_of};
use super::layout::Layout;
use super::profile::Asked;
use super::program::{Beside, Program};
use super::props::{Event, ProfileProps};
use super::stage1;
use super::tools::Tools;
use crate::config::Config;
use crate::config::settings::WorkloadKind;
use crate::config::tree::{Map, Node, Origin, Value};
use crate::config::write_yaml;
use crate::record::{PhaseName, PhaseStatus};

const PHASE: PhaseName = PhaseName::Preflight;

/// What makes a session impossible whatever happens: it is known before a run directory is made, so that a mistyped name
/// leaves nothing behind. The Python of the program comes back, since asking it takes a moment.
pub(super) fn possible(props: &ProfileProps) -> Result<Option<Result<Python, String>>, String> {
    let config = &props.composed.config;
    let layout = Layout::of(Path::new(""));
    let beside = Beside::planned(config, &layout)?;
    Program::of(config, &props.executable, &layout, &beside)?;
    program_exists(config, &props.search_path)?;
    let python = python_of(config);
    if let Some(python) = &python {
        python_suffices(config, python)?;
    }
    Ok(python)
}

/// Check what a session needs. `None` where it cannot begin; the phase says why.
pub(super) fn run(
    desk: &mut Desk<'_>,
    props: &ProfileProps,
    python: Option<&Result<Python, String>>,
    asked: Asked,
) -> Option<(Tools, Program)> {
    desk.begin(PHASE);
    match attempt(desk, props, python, asked) {
        Ok(ready) => {
            desk.end(PHASE, PhaseStatus::Ok);
            Some(ready)
        }
        Err(why) => {
            desk.end(PHASE, PhaseStatus::failed(why, None));
            None
        }
    }
}

fn attempt(
    desk: &mut Desk<'_>,
    props: &ProfileProps,
    python: Option<&Result<Python, String>>,
    asked: Asked,
) -> Result<(Tools, Program), String> {
    let config = desk.config;
    check_room(desk);
    let gpus = GpuFacts::here(config, &props.search_path);
    let tools = if asked.timeline || asked.counters {
        Tools::find(props, gpus.usable.clone())
    } else {
        Tools::not_needed(gpus.usable.clone())
    };
    let needed = (asked.timeline || asked.counters).then_some(&tools);
    if let Some(tools) = needed {
        tell_missing(desk, tools, asked);
    }
    write_environment(desk, &Environment::of(props, needed, &gpus, python));
    write_inputs(desk);
    let beside = write_beside(desk)?;
    let mut program = Program::of(config, &props.executable, &desk.layout, &beside)?;
    settle_hydra(desk, &mut program)?;
    Ok((tools, program))
}

/// Little room is no reason to refuse: children are watched for it. It is a reason to say so.
fn check_room(desk: &mut Desk<'_>) {
    let wanted = desk.config.run.min_free_bytes.0;
    if let Some(free) = free_bytes(desk.run_dir.path())
        && free < wanted
    {
        let note = format!(
            "{:.1} GB are free at {}, less than the {:.1} GB of run.min_free_bytes; free some, or set artifacts.stage2_dir",
            free as f64 / 1e9,
            desk.run_dir.path().display(),
            wanted as f64 / 1e9
        );
        (desk.events)(Event::Warning(&note));
        desk.ledger.note(PHASE, note);
    }
}

fn tell_missing(desk: &mut Desk<'_>, tools: &Tools, asked: Asked) {
    let mut missing: Vec<String> = Vec::new();
    missing.extend(tools.gpu.as_ref().err().cloned());
    if asked.timeline {
        missing.extend(tools.nsys.as_ref().err().cloned());
    }
    if asked.counters {
        missing.extend(tools.ncu.as_ref().err().cloned());
    }
    for line in missing {
        (desk.events)(Event::Warning(&line));
        desk.ledger.note(PHASE, line);
    }
}

fn write_environment(desk: &mut Desk<'_>, environment: &Environment) {
    match desk.run_dir.write_json("env.json", environment) {
        Ok(path) => {
            desk.ledger.output(PHASE, &path);
        }
        Err(error) => desk.ledger.note(PHASE, error.to_string()),
    }
}

/// `inputs.yaml`: each file that goes in, with size and hash.
fn write_inputs(desk: &mut Desk<'_>) {
    let config = desk.config;
    let mut paths: Vec<PathBuf> = Vec::new();
    paths.extend(config.inputs.manifest.clone());
    paths.extend(
        config
            .inputs
            .manifest
            .as_deref()
            .map(manifest_files)
            .unwrap_or_default(),
    );
    paths.extend(config.model.config.clone());
    if config.workload.kind == WorkloadKind::Command {
        let folder = config.workload.cwd.clone().unwrap_or_default();
        // Files among the arguments are most often the script and its data.
        paths.extend(
            config
                .workload
                .program
                .iter()
                .map(|word| folder.join(word))
                .filter(|path| path.is_file()),
        );
    }
    let mut items = Vec::new();
    for path in paths {
        match hash_file(&path) {
            Ok(file) => items.push(input_node(&path, &file)),
            Err(error) => desk.ledger.note(
                PHASE,
                format!("cannot read the input {}: {error}", path.display()),
            ),
        }
    }
    let mut map = Map::default();
    map.insert("schema", text("roofgap.inputs/1"));
    map.insert("inputs", node(Value::List(items)));
    let yaml = write_yaml(&node(Value::Map(map)), &|_| None);
    match desk.run_dir.write("inputs.yaml", yaml.as_bytes()) {
        Ok(path) => {
            desk.ledger.output(PHASE, &path);
        }
        Err(error) => desk.ledger.note(PHASE, error.to_string()),
    }
}

fn node(value: Value) -> Node {
    Node::new(value, Origin::Program)
}

fn text(value: &str) -> Node {
    node(Value::Text(value.to_owned()))
}

fn input_node(path: &Path, file: &FileHash) -> Node {
    let mut map = Map::default();
    map.insert("path", text(&path.display().to_string()));
    map.insert(
        "bytes",
        node(Value::Int(i64::try_from(file.bytes).unwrap_or(i64::MAX))),
    );
    map.insert("sha256", text(&format!("sha256:{}", file.sha256)));
    node(Value::Map(map))
}

/// Files that a manifest names, by whatever key: every text in it that is a file, relative to the manifest's folder.
fn manifest_files(manifest: &Path) -> Vec<PathBuf> {
    fn collect(node: &Node, folder: &Path, found: &mut Vec<PathBuf>) {
        match &node.value {
            Value::Text(text) => found.extend(Some(folder.join(text)).filter(|path| path.is_file())),
            Value::List(items) => items.iter().for_each(|item| collect(item, folder, found)),
            Value::Map(map) => map.iter().for_each(|(_, item)| collect(item, folder, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    let folder = manifest.parent().unwrap_or(Path::new(""));
    if let Ok(content) = std::fs::read_to_string(manifest)
        && let Ok(tree) = crate::config::read_yaml(&content, manifest, &|_| Origin::Program)
    {
        collect(&tree, folder, &mut found);
    }
    found
}

fn program_exists(config: &Config, search_path: &[PathBuf]) -> Result<(), String> {
    if let Some(folder) = config.workload.cwd.as_deref().filter(|folder| !folder.is_dir()) {
        return Err(format!(
            "workload.cwd is {}, which is not a folder",
            folder.display()
        ));
    }
    if let Some(manifest) = config
        .inputs
        .manifest
        .as_deref()
        .filter(|manifest| !manifest.is_file())
    {
        return Err(format!(
            "inputs.manifest is {}, which is not a file",
            manifest.display()
        ));
    }
    if let Some(file) = config.model.config.as_deref().filter(|file| !file.is_file()) {
        return Err(format!("model.config is {}, which is not a file", file.display()));
    }
    if let Some(folder) = &config.stage1.run_dir {
        stage1::read(folder)?;
    }
    let name = match config.workload.kind {
        WorkloadKind::Embedded => return Ok(()),
        WorkloadKind::Hf | WorkloadKind::Hydra => config.workload.python.as_str(),
        WorkloadKind::Command => config.workload.program.first().map_or("", String::as_str),
    };
    let path = Path::new(name);
    let found = match &config.workload.cwd {
        // A path with a slash is looked for from where the program runs.
        Some(folder) if path.components().count() > 1 => is_executable(&folder.join(path)),
        _ => find_on_path(path, search_path).is_some(),
    };
    if found {
        Ok(())
    } else if path.components().count() > 1 && path.is_file() {
        Err(format!(
            "{name} is not executable; chmod +x it, or name its interpreter"
        ))
    } else {
        Err(format!(
            "the program {name} was not found; is it installed, and on the PATH?"
        ))
    }
}

fn python_suffices(config: &Config, python: &Result<Python, String>) -> Result<(), String> {
    let needed: &[&str] = match config.workload.kind {
        WorkloadKind::Hf => &["torch", "transformers"],
        WorkloadKind::Hydra => &["hydra-core"],
        WorkloadKind::Embedded | WorkloadKind::Command => return Ok(()),
    };
    let python = python.as_ref().map_err(Clone::clone)?;
    let lacking: Vec<&str> = needed
        .iter()
        .copied()
        .filter(|name| python.package(name).is_none())
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} lacks {}; install it with `{} -m pip install {}`, or set workload.python",
        python.executable.display(),
        lacking.join(" and "),
        python.executable.display(),
        lacking.join(" ")
    ))
}

/// Ask a Hydra module which of our overrides it takes.
fn settle_hydra(desk: &mut Desk<'_>, program: &mut Program) -> Result<(), String> {
    let Some((module, output, setting)) = program.hydra() else {
        return Ok(());
    };
    let dropped = module
        .drop_rejected_overrides(&output, &setting, Duration::from_secs(120))
        .map_err(|error| error.to_string())?;
    for text in dropped {
        desk.ledger
            .note(PHASE, format!("the module does not take {text}; it was left out"));
    }
    Ok(())
}

/// Write out what the program needs beside itself.
fn write_beside(desk: &mut Desk<'_>) -> Result<Beside, String> {
    let config = desk.config;
    let mut beside = Beside::default();
    let needs_scripts = match config.workload.kind {
        WorkloadKind::Hf => true,
        WorkloadKind::Command => config.workload.annotate,
        WorkloadKind::Embedded | WorkloadKind::Hydra => false,
    };
    if needs_scripts {
        let folder = desk.layout.scripts();
        let failed = |error| format!("cannot write the scripts into {}: {error}", folder.display());
        beside.scripts = Some(ProgramScripts::install(&folder).map_err(failed)?);
    }
    beside.model_config = super::model::write(desk.run_dir, config)?;
    Ok(beside)
}
