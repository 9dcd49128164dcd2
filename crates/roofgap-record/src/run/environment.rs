//! Gathers `env.json`: tools, GPUs, machine and Python of a run. Environment variables are kept by an allow-list, so that
//! it never holds a secret.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use roofgap_collect::provenance::{Gpus, Machine, Python, Revision, variables};
use serde::Serialize;

use super::props::ProfileProps;
use super::tools::{GpuCheck, PythonResult, Tools};

/// Schema of the document.
const SCHEMA: &str = "roofgap.env/1";

/// The document `env.json`.
#[derive(Debug, Clone, Serialize)]
pub struct Environment {
    schema: &'static str,
    roofgap_version: String,
    tools: BTreeMap<&'static str, ToolFacts>,
    gpus: Option<Gpus>,
    no_gpu_because: Option<String>,
    machine: Machine,
    python: Option<Python>,
    no_python_because: Option<String>,
    /// Revision of the folder in which the program runs.
    workload_revision: Option<Revision>,
    variables: BTreeMap<String, String>,
}

/// A tool, or the reason against its use.
#[derive(Debug, Clone, Default, Serialize)]
struct ToolFacts {
    path: Option<PathBuf>,
    version: Option<String>,
    sha256: Option<String>,
    unusable_because: Option<String>,
}

impl Environment {
    /// Gathers the document.
    pub fn gather(
        props: &ProfileProps,
        tools: Option<&Tools>,
        gpus: &GpuCheck,
        python: Option<&PythonResult>,
    ) -> Self {
        let config = &props.composed.config;
        let folder = config.workload.cwd.clone().or_else(|| std::env::current_dir().ok());
        Environment {
            schema: SCHEMA,
            roofgap_version: props.version.clone(),
            tools: tools.map(tool_facts).unwrap_or_default(),
            gpus: gpus.gpus.clone(),
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
    fn facts<T, E: ToString>(tool: &Result<T, E>, present: impl FnOnce(&T) -> ToolFacts) -> ToolFacts {
        tool.as_ref().map_or_else(
            |error| ToolFacts { unusable_because: Some(error.to_string()), ..ToolFacts::default() },
            present,
        )
    }
    let installed = |path: &Path, version: Option<String>| ToolFacts {
        path: Some(path.to_owned()),
        version,
        ..ToolFacts::default()
    };
    BTreeMap::from([
        (
            "nsys",
            facts(&tools.nsys, |nsys| installed(&nsys.path, nsys.version.as_ref().map(ToString::to_string))),
        ),
        ("ncu", facts(&tools.ncu, |ncu| installed(&ncu.path, ncu.version.as_ref().map(ToString::to_string)))),
        (
            "native",
            facts(&tools.native, |library| ToolFacts {
                sha256: Some(library.sha256.to_owned()),
                ..ToolFacts::default()
            }),
        ),
    ])
}
