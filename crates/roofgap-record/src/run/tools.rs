//! The tools, the GPUs, the Python and the native collector of a session.

use std::path::{Path, PathBuf};

use roofgap_analyze::Engine;
use roofgap_collect::command::find_on_path;
use roofgap_collect::provenance::{Gpus, Python, visible_gpus};
use roofgap_collect::tool::{Ncu, Nsys, RejectedCandidate, Search};
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;

use super::props::ProfileProps;

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
