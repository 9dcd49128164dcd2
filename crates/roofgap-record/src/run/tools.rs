//! The tools, the GPUs, the Python and the native collector of a session.
//! They are gathered as `env.json`, where environment variables are kept by an allow-list, so that it never holds a secret.

use super::props::ProfileProps;
use roofgap_analyze::Engine;
use roofgap_base::file::sha256;
use roofgap_collect::command::find_on_path;
use roofgap_collect::provenance::{Gpus, Machine, Python, Revision, recorded_variables, visible_gpus};
use roofgap_collect::tool::{Ncu, Nsys, Search, SearchResult, ToolError, Version};
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::open::run::model_name;
use roofgap_runs::run_dir::environment::{Environment, SCHEMA, ToolFacts};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/native.so"));
static WHY: &str = include_str!(concat!(env!("OUT_DIR"), "/native.why"));

/// The native collector: a shared library embedded in the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeLibrary {
    /// Content.
    pub bytes: &'static [u8],
}

impl NativeLibrary {
    /// Returns the embedded library, or the reason why there is none.
    pub fn embedded() -> Result<Self, ToolError> {
        if BYTES.is_empty() {
            return Err(ToolError(format!(
                "the native collector is not available: this binary was built without it: {WHY}"
            )));
        }
        Ok(Self { bytes: BYTES })
    }

    /// Returns the SHA-256 in hexadecimal.
    pub fn sha256(&self) -> String {
        sha256(self.bytes)
    }
}

/// The tools of a session, each with the reason where it cannot be used.
pub struct Tools {
    pub nsys: Result<Nsys, ToolError>,
    pub native: Result<NativeLibrary, ToolError>,
    pub ncu: Result<Ncu, ToolError>,
    pub gpu: Result<(), ToolError>,
}

impl Tools {
    /// Searches the tools; not where no phase needs them.
    pub fn find(props: &ProfileProps, gpu: Result<(), ToolError>, is_needed: bool) -> Self {
        let profiling = &props.composed.config.profiling;
        let search = |named: &Option<PathBuf>| Search {
            named: named.clone(),
            path: props.search_path.clone(),
            root: Some(PathBuf::from("/")),
        };
        let not_needed = || ToolError("not searched: no phase needs it".to_owned());
        Self {
            nsys: if is_needed { find_nsys(&search(&profiling.nsys.path)) } else { Err(not_needed()) },
            native: props.native.clone(),
            ncu: if is_needed { find_ncu(&search(&profiling.ncu.path)) } else { Err(not_needed()) },
            gpu,
        }
    }
}

fn find_nsys(search: &Search) -> Result<Nsys, ToolError> {
    let nsys = usable("nsys", "Nsight Systems", search, Nsys::find(search))?;
    match nsys.importer.remedy() {
        Some(remedy) => {
            Err(ToolError(format!("{} cannot import its own recordings; {remedy}", nsys.path.display())))
        }
        None => Ok(nsys),
    }
}

fn find_ncu(search: &Search) -> Result<Ncu, ToolError> {
    usable("ncu", "Nsight Compute", search, Ncu::find(search))
}

/// Returns the tool of a search, or the reason why there is none.
fn usable<T>(tool: &str, product: &str, search: &Search, result: SearchResult<T>) -> Result<T, ToolError> {
    let tried = result.tried();
    result.tool.ok_or_else(|| {
        ToolError(match (tried, &search.named) {
            (Some(tried), _) => format!("no usable {tool}: {tried}"),
            (None, Some(path)) => format!("{} is not executable; fix profiling.{tool}.path", path.display()),
            (None, None) => format!("{tool} was not found; install {product}, or set profiling.{tool}.path"),
        })
    })
}

/// The GPUs of the machine, and whether the program can use one.
pub struct GpuCheck {
    pub gpus: Option<Gpus>,
    pub usable: Result<(), ToolError>,
}

impl GpuCheck {
    /// Queries `nvidia-smi`.
    pub fn query(config: &Config, search_path: &[PathBuf]) -> Self {
        let gpus = match find_on_path(Path::new("nvidia-smi"), search_path) {
            Some(smi) => Gpus::query(&smi).map_err(|error| ToolError(format!("nvidia-smi failed: {error}"))),
            None => Err(ToolError("no GPU: nvidia-smi was not found".to_owned())),
        };
        let visible = config.workload.env.get("CUDA_VISIBLE_DEVICES").cloned();
        let visible = visible.or_else(|| std::env::var("CUDA_VISIBLE_DEVICES").ok());
        let usable = match &gpus {
            Err(why) => Err(why.clone()),
            Ok(all) if all.gpus.is_empty() => Err(ToolError("no GPU: nvidia-smi lists none".to_owned())),
            Ok(all) if visible_gpus(&all.gpus, visible.as_deref()).is_empty() && all.mig.is_empty() => {
                Err(ToolError(format!(
                    "no GPU: CUDA_VISIBLE_DEVICES is {:?}, which matches none of the {} GPUs",
                    visible.unwrap_or_default(),
                    all.gpus.len()
                )))
            }
            Ok(_) => Ok(()),
        };
        Self { gpus: gpus.ok(), usable }
    }
}

/// Python of the program, or the error from querying it.
pub type PythonResult = Result<Python, ToolError>;

/// Queries the Python of the program; `None` for a program that is not Python.
pub fn python_of(config: &Config) -> Option<PythonResult> {
    let workload = &config.workload;
    let interpreter = match workload.kind {
        WorkloadKind::Embedded => return None,
        WorkloadKind::Hf | WorkloadKind::Hydra => PathBuf::from(&workload.python),
        WorkloadKind::Command | WorkloadKind::Server => {
            let first = PathBuf::from(workload.words().into_iter().next()?);
            let is_python = first.file_name()?.to_str()?.starts_with("python");
            is_python.then_some(first)?
        }
    };
    Some(Python::query(&interpreter, Engine::packages()))
}

/// Gathers the document.
pub fn gather_environment(
    props: &ProfileProps,
    tools: Option<&Tools>,
    gpus: &GpuCheck,
    python: Option<&PythonResult>,
) -> Environment {
    let config = &props.composed.config;
    let folder = config.workload.cwd.clone().or_else(|| std::env::current_dir().ok());
    let is_embedded = config.workload.kind == WorkloadKind::Embedded;
    Environment {
        schema: SCHEMA.to_owned(),
        roofgap_version: props.version.clone(),
        tools: tools.map(tool_facts).unwrap_or_default(),
        gpus: gpus.gpus.clone(),
        no_gpu_because: gpus.usable.as_ref().err().map(ToString::to_string),
        machine: Machine::current(),
        python: python.and_then(|python| python.as_ref().ok().cloned()),
        no_python_because: python.and_then(|python| Some(python.as_ref().err()?.to_string())),
        model: model_name(config)
            .or_else(|| is_embedded.then(|| format!("embedded, {}", config.workload.size))),
        workload_revision: folder.as_deref().and_then(Revision::in_folder),
        variables: recorded_variables(),
    }
}

fn tool_facts(tools: &Tools) -> BTreeMap<String, ToolFacts> {
    let installed = |path: &Path, version: &Option<Version>| ToolFacts {
        path: Some(path.to_owned()),
        version: version.as_ref().map(ToString::to_string),
        ..ToolFacts::default()
    };
    let embedded =
        |library: &NativeLibrary| ToolFacts { sha256: Some(library.sha256()), ..ToolFacts::default() };
    let unusable =
        |why: &ToolError| ToolFacts { unusable_because: Some(why.to_string()), ..ToolFacts::default() };
    let rows = [
        ("nsys", tools.nsys.as_ref().map(|nsys| installed(&nsys.path, &nsys.version))),
        ("ncu", tools.ncu.as_ref().map(|ncu| installed(&ncu.path, &ncu.version))),
        ("native", tools.native.as_ref().map(embedded)),
    ];
    rows.map(|(name, tool)| (name.to_owned(), tool.unwrap_or_else(unusable))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_library_is_embedded() {
        assert!(NativeLibrary::embedded().unwrap().bytes.starts_with(b"\x7fELF"));
    }
}
