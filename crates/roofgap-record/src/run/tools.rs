//! The tools, the GPUs, the Python and the native collector of a session.
//! They are gathered as `env.json`, where environment variables are kept by an allow-list, so that it never holds a secret.

use super::props::ProfileProps;
use roofgap_analyze::Engine;
use roofgap_collect::command::find_on_path;
use roofgap_collect::provenance::{Gpus, Machine, Python, Revision, variables, visible_gpus};
use roofgap_collect::tool::{Ncu, Nsys, RejectedCandidate, Search};
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::run_dir::environment::{Environment, SCHEMA, ToolFacts};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/native.so"));
static SHA256: &str = include_str!(concat!(env!("OUT_DIR"), "/native.sha256"));
static WHY: &str = include_str!(concat!(env!("OUT_DIR"), "/native.why"));

/// The native collector: a shared library embedded in the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeLibrary {
    /// Content.
    pub bytes: &'static [u8],
    /// SHA-256 in hexadecimal, computed by the build.
    pub sha256: &'static str,
}

impl NativeLibrary {
    /// Returns the embedded library, or the reason why there is none.
    pub fn embedded() -> Result<Self, String> {
        if BYTES.is_empty() {
            return Err(format!(
                "the native collector is not available: this binary was built without it: {WHY}"
            ));
        }
        Ok(NativeLibrary { bytes: BYTES, sha256: SHA256 })
    }
}

/// The tools of a session, each with the reason where it cannot be used.
pub struct Tools {
    pub nsys: Result<Nsys, String>,
    pub native: Result<NativeLibrary, String>,
    pub ncu: Result<Ncu, String>,
    pub gpu: Result<(), String>,
}

/// A tool that a phase records with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolName {
    Nsys,
    Ncu,
}

impl Tools {
    /// Returns the reason why a tool cannot be used.
    pub fn problem(&self, tool: ToolName) -> Option<&String> {
        match tool {
            ToolName::Nsys => self.nsys.as_ref().err(),
            ToolName::Ncu => self.ncu.as_ref().err(),
        }
    }

    /// Searches the tools; not where no phase needs them.
    pub fn find(props: &ProfileProps, gpu: Result<(), String>, is_needed: bool) -> Self {
        let profiling = &props.composed.config.profiling;
        let search = |named: &Option<PathBuf>| Search {
            named: named.clone(),
            path: props.search_path.clone(),
            root: Some(PathBuf::from("/")),
        };
        let not_needed = || "not searched: no phase needs it".to_owned();
        Tools {
            nsys: if is_needed { find_nsys(&search(&profiling.nsys.path)) } else { Err(not_needed()) },
            native: props.native.clone(),
            ncu: if is_needed { find_ncu(&search(&profiling.ncu.path)) } else { Err(not_needed()) },
            gpu,
        }
    }
}

fn find_nsys(search: &Search) -> Result<Nsys, String> {
    let found = Nsys::find(search);
    let nsys = found.tool.ok_or_else(|| missing("nsys", "Nsight Systems", search, &found.rejected))?;
    match nsys.importer.remedy() {
        Some(remedy) => Err(format!("{} cannot import its own recordings; {remedy}", nsys.path.display())),
        None => Ok(nsys),
    }
}

fn find_ncu(search: &Search) -> Result<Ncu, String> {
    let found = Ncu::find(search);
    found.tool.ok_or_else(|| missing("ncu", "Nsight Compute", search, &found.rejected))
}

fn missing(tool: &str, product: &str, search: &Search, rejected: &[RejectedCandidate]) -> String {
    let tried: Vec<String> =
        rejected.iter().map(|rejected| format!("{}: {}", rejected.path.display(), rejected.why)).collect();
    match (tried.is_empty(), &search.named) {
        (true, Some(path)) => format!("{} is not executable; fix profiling.{tool}.path", path.display()),
        (true, None) => format!("{tool} was not found; install {product}, or set profiling.{tool}.path"),
        (false, _) => format!("no usable {tool}: {}", tried.join("; ")),
    }
}

/// The GPUs of the machine, and whether the program can use one.
pub struct GpuCheck {
    pub gpus: Option<Gpus>,
    pub usable: Result<(), String>,
}

impl GpuCheck {
    /// Queries `nvidia-smi`.
    pub fn query(config: &Config, search_path: &[PathBuf]) -> Self {
        let gpus = match find_on_path(Path::new("nvidia-smi"), search_path) {
            Some(smi) => Gpus::query(&smi).map_err(|error| format!("nvidia-smi failed: {error}")),
            None => Err("no GPU: nvidia-smi was not found".to_owned()),
        };
        let own = config.workload.env.get("CUDA_VISIBLE_DEVICES").cloned();
        let value = own.or_else(|| std::env::var("CUDA_VISIBLE_DEVICES").ok());
        let usable = match &gpus {
            Err(why) => Err(why.clone()),
            Ok(found) if found.gpus.is_empty() => Err("no GPU: nvidia-smi lists none".to_owned()),
            Ok(found) if visible_gpus(&found.gpus, value.as_deref()).is_empty() && found.mig.is_empty() => {
                Err(format!(
                    "no GPU: CUDA_VISIBLE_DEVICES is {:?}, which matches none of the {} GPUs",
                    value.unwrap_or_default(),
                    found.gpus.len()
                ))
            }
            Ok(_) => Ok(()),
        };
        GpuCheck { gpus: gpus.ok(), usable }
    }
}

/// Python of the program, or the error from querying it.
pub type PythonResult = Result<Python, String>;

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
    Some(Python::query(&interpreter, Engine::packages()).map_err(|error| error.to_string()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_library_is_embedded_and_has_its_hash() {
        let library = NativeLibrary::embedded().unwrap();
        assert!(library.bytes.starts_with(b"\x7fELF"));
        assert_eq!(roofgap_base::file::sha256(library.bytes), library.sha256);
    }
}
