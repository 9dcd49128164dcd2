//! `env.json`: with what and where a run was made. Never a secret: variables are kept by an allow-list.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use roofgap_collect::command::find_on_path;
use roofgap_collect::provenance::{Gpus, Machine, Python, Revision, variables, visible_gpus};
use serde::{Deserialize, Serialize};

use super::props::ProfileProps;
use super::tools::Tools;
use crate::config::Config;
use crate::config::settings::WorkloadKind;

/// The schema of the document.
const SCHEMA: &str = "roofgap.env/1";

/// The document.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Environment {
    schema: &'static str,
    roofgap_version: String,
    tools: BTreeMap<&'static str, ToolFacts>,
    gpus: Option<Gpus>,
    no_gpu_because: Option<String>,
    machine: Machine,
    python: Option<Python>,
    no_python_because: Option<String>,
    /// The state of the folder in which the program runs.
    workload_revision: Option<Revision>,
    variables: BTreeMap<String, String>,
}

/// A tool, or why it cannot be used.
#[derive(Debug, Clone, Serialize)]
struct ToolFacts {
    path: Option<PathBuf>,
    version: Option<String>,
    sha256: Option<String>,
    unusable_because: Option<String>,
}

/// The GPUs a program would see.
pub(super) struct GpuFacts {
    pub(super) gpus: Result<Gpus, String>,
    /// Whether one can be used, or why not.
    pub(super) usable: Result<(), String>,
}

impl GpuFacts {
    /// Ask `nvidia-smi`.
    pub(super) fn here(config: &Config, search_path: &[PathBuf]) -> Self {
        let gpus = match find_on_path(Path::new("nvidia-smi"), search_path) {
            Some(smi) => Gpus::query(&smi).map_err(|why| format!("nvidia-smi does not answer: {why}")),
            None => Err("no GPU: nvidia-smi was not found".to_owned()),
        };
        let own = config.workload.env.get("CUDA_VISIBLE_DEVICES").cloned();
        let value = own.or_else(|| std::env::var("CUDA_VISIBLE_DEVICES").ok());
        let usable = match &gpus {
            Err(why) => Err(why.clone()),
            Ok(found) if found.gpus.is_empty() => Err("no GPU: nvidia-smi lists none".to_owned()),
            Ok(found) if visible_gpus(&found.gpus, value.as_deref()).is_empty() && found.mig.is_empty() => {
                Err(format!(
                    "no GPU: CUDA_VISIBLE_DEVICES is {:?}, which names none of the {} there",
                    value.unwrap_or_default(),
                    found.gpus.len()
                ))
            }
            Ok(_) => Ok(()),
        };
        GpuFacts { gpus, usable }
    }
}

/// The Python of the program, where it is a Python program.
pub(super) fn python_of(config: &Config) -> Option<Result<Python, String>> {
    let workload = &config.workload;
    let interpreter = match workload.kind {
        WorkloadKind::Embedded => return None,
        WorkloadKind::Hf | WorkloadKind::Hydra => PathBuf::from(&workload.python),
        WorkloadKind::Command => {
            let first = Path::new(workload.program.first()?);
            first
                .file_name()?
                .to_str()?
                .starts_with("python")
                .then(|| first.to_owned())?
        }
    };
    Some(Python::query(&interpreter).map_err(|error| error.to_string()))
}

impl Environment {
    /// Gather what is known.
    pub(super) fn of(
        props: &ProfileProps,
        tools: Option<&Tools>,
        gpus: &GpuFacts,
        python: Option<&Result<Python, String>>,
    ) -> Self {
        let config = &props.composed.config;
        let here = std::env::current_dir().ok();
        let folder = config.workload.cwd.clone().or(here);
        Environment {
            schema: SCHEMA,
            roofgap_version: props.version.clone(),
            tools: tools.map(tool_facts).unwrap_or_default(),
            gpus: gpus.gpus.as_ref().ok().cloned(),
            no_gpu_because: gpus.usable.as_ref().err().cloned(),
            machine: Machine::current(),
            python: python.and_then(|python| python.as_ref().ok().cloned()),
            no_python_because: python.and_then(|python| python.as_ref().err().cloned()),
            workload_revision: folder.as_deref().and_then(Revision::of),
            variables: variables::current(),
        }
    }
}

fn tool_facts(tools: &Tools) -> BTreeMap<&'static str, ToolFacts> {
    let absent = |why: &String| ToolFacts {
        path: None,
        version: None,
        sha256: None,
        unusable_because: Some(why.clone()),
    };
    let present = |path: &Path, version: Option<String>| ToolFacts {
        path: Some(path.to_owned()),
        version,
        sha256: None,
        unusable_because: None,
    };
    let version =
        |version: &Option<roofgap_collect::tool::Version>| version.as_ref().map(ToString::to_string);
    let nsys = tools
        .nsys
        .as_ref()
        .map_or_else(absent, |nsys| present(&nsys.path, version(&nsys.version)));
    let ncu = tools
        .ncu
        .as_ref()
        .map_or_else(absent, |ncu| present(&ncu.path, version(&ncu.version)));
    let native = tools.native.as_ref().map_or_else(absent, |library| ToolFacts {
        path: None,
        version: None,
        sha256: Some(library.sha256.to_owned()),
        unusable_because: None,
    });
    BTreeMap::from([("nsys", nsys), ("ncu", ncu), ("native", native)])
}

/// What a report shows of the environment, as name and value, from `env.json`.
pub(super) fn lines(env_json: &Path) -> Vec<(String, String)> {
    let Ok(bytes) = std::fs::read(env_json) else {
        return Vec::new();
    };
    let Ok(facts) = serde_json::from_slice::<Facts>(&bytes) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            lines.push((name.to_owned(), value));
        }
    };
    match &facts.gpus {
        Some(gpus) if !gpus.gpus.is_empty() => {
            for gpu in &gpus.gpus {
                add("GPU", gpu.describe());
            }
            add("driver", gpus.driver.clone());
        }
        _ => add("GPU", facts.no_gpu_because.clone()),
    }
    for (name, tool) in &facts.tools {
        add(
            name,
            tool.version
                .clone()
                .or_else(|| tool.unusable_because.clone())
                .or_else(|| tool.sha256.clone()),
        );
    }
    add("CPU", facts.machine.cpu.clone());
    add("cores", facts.machine.cores.map(|cores| cores.to_string()));
    add(
        "memory",
        facts
            .machine
            .memory_bytes
            .map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))),
    );
    add("system", facts.machine.os.clone());
    if let Some(python) = &facts.python {
        add("Python", Some(python.version.clone()));
        for package in ["torch", "transformers", "vllm"] {
            add(package, python.packages.get(package).cloned());
        }
    }
    if let Some(revision) = &facts.workload_revision {
        let modified = if revision.modified { ", modified" } else { "" };
        add(
            "workload revision",
            Some(format!("{}{modified}", revision.commit)),
        );
    }
    lines
}

/// As much of `env.json` as a report shows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Facts {
    tools: BTreeMap<String, ToolLine>,
    gpus: Option<GpuLines>,
    no_gpu_because: Option<String>,
    machine: MachineLine,
    python: Option<PythonLine>,
    workload_revision: Option<RevisionLine>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToolLine {
    version: Option<String>,
    sha256: Option<String>,
    unusable_because: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GpuLines {
    driver: Option<String>,
    gpus: Vec<GpuLine>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GpuLine {
    uuid: Option<String>,
    name: Option<String>,
    sm_clock_max_mhz: Option<u32>,
    power_limit_w: Option<f64>,
}

impl GpuLine {
    fn describe(&self) -> Option<String> {
        let mut text = self.name.clone()?;
        let mut more = Vec::new();
        more.extend(self.power_limit_w.map(|watts| format!("{watts:.0} W")));
        more.extend(self.sm_clock_max_mhz.map(|clock| format!("at most {clock} MHz")));
        more.extend(self.uuid.clone());
        if !more.is_empty() {
            text.push_str(&format!(" ({})", more.join(", ")));
        }
        Some(text)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MachineLine {
    cpu: Option<String>,
    cores: Option<usize>,
    memory_bytes: Option<u64>,
    os: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PythonLine {
    version: String,
    packages: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RevisionLine {
    commit: String,
    modified: bool,
}
