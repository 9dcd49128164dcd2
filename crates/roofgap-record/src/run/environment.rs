//! Gathers `env.json`: tools, GPUs, machine and Python of a run. Environment variables are kept by an allow-list, so that
//! it never holds a secret.

use std::collections::BTreeMap;
use std::path::Path;

use roofgap_collect::provenance::{Machine, Revision, variables};
use roofgap_runs::run_dir::environment::{Environment, SCHEMA, ToolFacts};

use super::props::ProfileProps;
use super::tools::{GpuCheck, PythonResult, Tools};

/// Gathers the document.
pub fn gather(
    props: &ProfileProps,
    tools: Option<&Tools>,
    gpus: &GpuCheck,
    python: Option<&PythonResult>,
) -> Environment {
    let config = &props.composed.config;
    let folder = config.workload.cwd.clone().or_else(|| std::env::current_dir().ok());
    Environment {
        schema: SCHEMA.to_owned(),
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

fn tool_facts(tools: &Tools) -> BTreeMap<String, ToolFacts> {
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
    let rows = [
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
    ];
    rows.map(|(name, tool)| (name.to_owned(), tool)).into()
}
