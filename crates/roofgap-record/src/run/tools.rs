//! The tools and GPUs of a session.

use std::path::{Path, PathBuf};

use roofgap_collect::command::find_on_path;
use roofgap_collect::provenance::{Gpus, visible_gpus};
use roofgap_collect::tool::{Ncu, Nsys, RejectedCandidate, Search};

use super::native::{NativeLibrary, NativeUnavailable};
use super::props::ProfileProps;
use roofgap_runs::config::Config;

/// The tools of a session.
pub struct Tools {
    pub nsys: Result<Nsys, ToolUnavailable>,
    pub native: Result<NativeLibrary, NativeUnavailable>,
    pub ncu: Result<Ncu, ToolUnavailable>,
    pub gpu: Result<(), GpuUnavailable>,
}

/// Error that prevents the use of nsys or ncu.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolUnavailable {
    #[error("not searched: no phase needs it")]
    NotNeeded,
    #[error("{tool} was not found; install {product}, or set profiling.{tool}.path")]
    NotFound { tool: &'static str, product: &'static str },
    #[error("{} is not executable; fix profiling.{tool}.path", path.display())]
    NotExecutable { tool: &'static str, path: PathBuf },
    #[error("no usable {tool}: {tried}")]
    Unusable { tool: &'static str, tried: String },
    #[error("{} cannot import its own recordings; {remedy}", path.display())]
    Import { path: PathBuf, remedy: String },
}

/// Error that prevents the use of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuUnavailable {
    #[error("no GPU: nvidia-smi was not found")]
    NoNvidiaSmi,
    #[error("nvidia-smi failed: {0}")]
    NvidiaSmi(String),
    #[error("no GPU: nvidia-smi lists none")]
    NoneListed,
    #[error("no GPU: CUDA_VISIBLE_DEVICES is {value:?}, which matches none of the {count} GPUs")]
    Hidden { value: String, count: usize },
}

impl Tools {
    /// Searches the tools.
    pub fn find(props: &ProfileProps, gpu: Result<(), GpuUnavailable>) -> Self {
        let profiling = &props.composed.config.profiling;
        let search = |named: &Option<PathBuf>| Search {
            named: named.clone(),
            path: props.search_path.clone(),
            root: Some(PathBuf::from("/")),
        };
        Tools {
            nsys: find_nsys(&search(&profiling.nsys.path)),
            native: props.native.clone(),
            ncu: find_ncu(&search(&profiling.ncu.path)),
            gpu,
        }
    }

    /// Skips the search, for a session without GPU phases.
    pub fn not_needed(props: &ProfileProps, gpu: Result<(), GpuUnavailable>) -> Self {
        Tools {
            nsys: Err(ToolUnavailable::NotNeeded),
            native: props.native.clone(),
            ncu: Err(ToolUnavailable::NotNeeded),
            gpu,
        }
    }
}

fn find_nsys(search: &Search) -> Result<Nsys, ToolUnavailable> {
    let found = Nsys::find(search);
    let nsys = found.tool.ok_or_else(|| missing("nsys", "Nsight Systems", search, &found.rejected))?;
    match nsys.importer.remedy() {
        Some(remedy) => Err(ToolUnavailable::Import { path: nsys.path, remedy }),
        None => Ok(nsys),
    }
}

fn find_ncu(search: &Search) -> Result<Ncu, ToolUnavailable> {
    let found = Ncu::find(search);
    found.tool.ok_or_else(|| missing("ncu", "Nsight Compute", search, &found.rejected))
}

fn missing(
    tool: &'static str,
    product: &'static str,
    search: &Search,
    rejected: &[RejectedCandidate],
) -> ToolUnavailable {
    let tried: Vec<String> =
        rejected.iter().map(|rejected| format!("{}: {}", rejected.path.display(), rejected.why)).collect();
    match (tried.is_empty(), &search.named) {
        (true, Some(path)) => ToolUnavailable::NotExecutable { tool, path: path.clone() },
        (true, None) => ToolUnavailable::NotFound { tool, product },
        (false, _) => ToolUnavailable::Unusable { tool, tried: tried.join("; ") },
    }
}

/// The GPUs of the machine, and whether the program can use one.
pub struct GpuFacts {
    pub gpus: Option<Gpus>,
    pub usable: Result<(), GpuUnavailable>,
}

impl GpuFacts {
    /// Queries `nvidia-smi`.
    pub fn query(config: &Config, search_path: &[PathBuf]) -> Self {
        let gpus = match find_on_path(Path::new("nvidia-smi"), search_path) {
            Some(smi) => Gpus::query(&smi).map_err(|error| GpuUnavailable::NvidiaSmi(error.to_string())),
            None => Err(GpuUnavailable::NoNvidiaSmi),
        };
        let own = config.workload.env.get("CUDA_VISIBLE_DEVICES").cloned();
        let value = own.or_else(|| std::env::var("CUDA_VISIBLE_DEVICES").ok());
        let usable = match &gpus {
            Err(error) => Err(error.clone()),
            Ok(found) if found.gpus.is_empty() => Err(GpuUnavailable::NoneListed),
            Ok(found) if visible_gpus(&found.gpus, value.as_deref()).is_empty() && found.mig.is_empty() => {
                Err(GpuUnavailable::Hidden { value: value.unwrap_or_default(), count: found.gpus.len() })
            }
            Ok(_) => Ok(()),
        };
        GpuFacts { gpus: gpus.ok(), usable }
    }
}
