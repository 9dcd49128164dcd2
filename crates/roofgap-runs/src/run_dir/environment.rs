//! The document `env.json`: tools, GPUs, machine and Python of a run. Environment variables are kept by an allow-list, so that it
//! never holds a secret. Missing keys are skipped, so that documents of any version can be read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use roofgap_analyze::Engine;
use roofgap_collect::provenance::{Gpu, Gpus, Machine, Python, Revision};
use serde::{Deserialize, Serialize};

use super::Layout;
use super::folder::read_json;

/// Schema of the document.
pub const SCHEMA: &str = "roofgap.env/1";

/// The document `env.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// roofgap version.
    pub roofgap_version: String,
    /// Tools by name.
    pub tools: BTreeMap<String, ToolFacts>,
    /// GPUs.
    pub gpus: Option<Gpus>,
    /// Reason why no GPU is usable.
    pub no_gpu_because: Option<String>,
    /// Machine.
    pub machine: Machine,
    /// Python of the program.
    pub python: Option<Python>,
    /// Error from querying the Python of the program.
    pub no_python_because: Option<String>,
    /// Name of the model, as the configuration has it.
    pub model: Option<String>,
    /// Revision of the folder in which the program runs.
    pub workload_revision: Option<Revision>,
    /// Environment variables on the allow-list.
    pub variables: BTreeMap<String, String>,
}

/// A tool, or the reason against its use.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolFacts {
    /// Path of the executable.
    pub path: Option<PathBuf>,
    /// Version.
    pub version: Option<String>,
    /// SHA-256 in hexadecimal.
    pub sha256: Option<String>,
    /// Reason against its use.
    pub unusable_because: Option<String>,
}

impl Environment {
    /// Reads the document; an unreadable one is empty.
    pub fn read(layout: &Layout) -> Self {
        read_json(&layout.environment()).unwrap_or_default()
    }

    fn gpus(&self) -> &[Gpu] {
        self.gpus.as_ref().map_or(&[], |gpus| &gpus.gpus)
    }

    /// Returns the names of the GPUs.
    pub fn gpu_names(&self) -> Vec<String> {
        self.gpus().iter().filter_map(|gpu| gpu.name.clone()).collect()
    }

    /// Returns the version of the GPU driver.
    pub fn driver(&self) -> Option<String> {
        self.gpus.as_ref()?.driver.clone()
    }

    /// Returns the version of a Python package.
    pub fn package(&self, name: &str) -> Option<String> {
        self.python.as_ref()?.packages.get(name).cloned()
    }

    /// Lists the environment for a report, as name and value.
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                lines.push((name.to_owned(), value));
            }
        };
        if self.gpus().is_empty() {
            add("GPU", self.no_gpu_because.clone());
        } else {
            self.gpus().iter().for_each(|gpu| add("GPU", describe_gpu(gpu)));
            add("driver", self.driver());
        }
        for (name, tool) in &self.tools {
            add(name, tool.version.clone().or(tool.unusable_because.clone()).or(tool.sha256.clone()));
        }
        let machine = &self.machine;
        add("CPU", machine.cpu.clone());
        add("cores", machine.cores.map(|cores| cores.to_string()));
        let memory = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
        add("memory", machine.memory_bytes.map(memory));
        add("system", machine.os.clone());
        add("Python", self.python.as_ref().map(|python| python.version.clone()));
        for package in std::iter::once("torch").chain(Engine::packages()) {
            add(package, self.package(package));
        }
        let revision = |revision: &Revision| {
            format!("{}{}", revision.commit, if revision.modified { ", modified" } else { "" })
        };
        add("workload revision", self.workload_revision.as_ref().map(revision));
        lines
    }
}

fn describe_gpu(gpu: &Gpu) -> Option<String> {
    let mut more = Vec::new();
    more.extend(gpu.power_limit_w.map(|watts| format!("{watts:.0} W")));
    more.extend(gpu.sm_clock_max_mhz.map(|clock| format!("at most {clock} MHz")));
    more.extend(gpu.uuid.clone());
    let name = gpu.name.clone()?;
    Some(if more.is_empty() { name } else { format!("{name} ({})", more.join(", ")) })
}
