//! What there is to profile with.

use roofgap_collect::tool::{Ncu, Nsys, Search};

use super::props::NativeLibrary;
use crate::config::Config;

/// The tools of a session: each, or why it cannot be used.
pub(super) struct Tools {
    pub(super) nsys: Result<Nsys, String>,
    pub(super) native: Result<NativeLibrary, String>,
    pub(super) ncu: Result<Ncu, String>,
    /// Whether a GPU is there, or why not.
    pub(super) gpu: Result<(), String>,
}

impl Tools {
    /// No phase needs any.
    pub(super) fn not_needed(gpu: Result<(), String>) -> Self {
        let none = || "not looked for: no phase needs it".to_owned();
        Tools {
            nsys: Err(none()),
            native: Err(none()),
            ncu: Err(none()),
            gpu,
        }
    }

    /// Look for them.
    pub(super) fn find(
        config: &Config,
        native: Result<NativeLibrary, String>,
        gpu: Result<(), String>,
    ) -> Self {
        Tools {
            nsys: find_nsys(config),
            native,
            ncu: find_ncu(config),
            gpu,
        }
    }
}

fn find_nsys(config: &Config) -> Result<Nsys, String> {
    let named = config.profiling.nsys.path.clone();
    let found = Nsys::find(&Search::here(named.clone()));
    let nsys = found
        .tool
        .ok_or_else(|| absent("nsys", "Nsight Systems", named, &found.rejected))?;
    match nsys.import.remedy() {
        Some(remedy) => Err(format!(
            "{} cannot import what it records; {remedy}",
            nsys.path.display()
        )),
        None => Ok(nsys),
    }
}

fn find_ncu(config: &Config) -> Result<Ncu, String> {
    let named = config.profiling.ncu.path.clone();
    let found = Ncu::find(&Search::here(named.clone()));
    found
        .tool
        .ok_or_else(|| absent("ncu", "Nsight Compute", named, &found.rejected))
}

fn absent(
    tool: &str,
    product: &str,
    named: Option<std::path::PathBuf>,
    rejected: &[roofgap_collect::tool::Rejected],
) -> String {
    let tried: Vec<String> = rejected
        .iter()
        .map(|rejected| format!("{}: {}", rejected.path.display(), rejected.why))
        .collect();
    match (tried.is_empty(), named) {
        (true, Some(path)) => format!("{} is not a program; mend profiling.{tool}.path", path.display()),
        (true, None) => format!("{tool} was not found; install {product}, or set profiling.{tool}.path"),
        (false, _) => format!("no {tool} can be used: {}", tried.join("; ")),
    }
}
