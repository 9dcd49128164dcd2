//! Records the input files of a run in `inputs.yaml`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use roofgap_base::file::{FileHash, hash_file, read_text};

use crate::run::context::PhaseContext;
use crate::run::manifest::Manifest;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::config::tree::{Map, Node, Origin, Value};
use roofgap_runs::config::{Config, read_yaml, write_yaml};
use roofgap_runs::run_dir::PhaseName;

const PHASE: PhaseName = PhaseName::Preflight;

/// Writes `inputs.yaml`: the input files of the configuration and those that the program says it read, with size and hash.
pub fn write_inputs(context: &mut PhaseContext<'_>, read_by_program: &[PathBuf]) {
    let mut items = Vec::new();
    let mut files = input_files(context.config, read_by_program);
    let mut known = HashSet::new();
    files.retain(|path| known.insert(path.clone()));
    for path in files {
        match hash_file(&path) {
            Ok(file) => items.push(input_node(&path, &file)),
            Err(error) => {
                let note = format!("cannot read the input {}: {error}", path.display());
                context.record.note(PHASE, note);
            }
        }
    }
    let mut map = Map::default();
    map.insert("schema", text("roofgap.inputs/1"));
    map.insert("inputs", node(Value::List(items)));
    let yaml = write_yaml(&node(Value::Map(map)), &|_| None);
    let written = context.run_dir.write("inputs.yaml", yaml.as_bytes());
    context.note_output(PHASE, written);
}

/// Lists the input files: those that the program says it read, else those of the configuration.
fn input_files(config: &Config, read_by_program: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    if let Some(manifest) = &config.inputs.manifest {
        paths.push(manifest.clone());
        match (config.workload.kind, read_by_program) {
            (WorkloadKind::Hf, _) => {
                let items = Manifest::read(manifest).map_or(Vec::new(), |manifest| manifest.items);
                paths.extend(items.into_iter().filter_map(|item| item.image));
            }
            (_, []) => paths.extend(manifest_files(manifest)),
            _ => {}
        }
    }
    paths.extend(read_by_program.iter().cloned());
    paths.extend(config.model.config.clone());
    if matches!(config.workload.kind, WorkloadKind::Command | WorkloadKind::Server) {
        let folder = config.workload.cwd.clone().unwrap_or_default();
        // Files among the arguments are usually the script and its data.
        let words = config.workload.words().into_iter().map(|word| folder.join(word));
        paths.extend(words.filter(|path| path.is_file()));
    }
    paths
}

fn node(value: Value) -> Node {
    Node::new(value, Origin::Program)
}

fn text(value: &str) -> Node {
    node(Value::Text(value.to_owned()))
}

fn input_node(path: &Path, file: &FileHash) -> Node {
    let bytes = i64::try_from(file.bytes).unwrap_or(i64::MAX);
    let mut map = Map::default();
    map.insert("path", text(&path.display().to_string()));
    map.insert("bytes", node(Value::Int(bytes)));
    map.insert("sha256", text(&format!("sha256:{}", file.sha256)));
    node(Value::Map(map))
}

/// Lists the files named anywhere in a manifest, relative to its folder.
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
    if let Ok(content) = read_text(manifest)
        && let Ok(tree) = read_yaml(&content, manifest, &|_| Origin::Program)
    {
        collect(&tree, folder, &mut found);
    }
    found
}
