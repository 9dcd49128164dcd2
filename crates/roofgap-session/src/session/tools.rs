//! What there is to profile with.

use std::path::PathBuf;

use roofgap_collect::tool::{Ncu, Nsys, RejectedCandidate, Search};

use super::props::{NativeLibrary, ProfileProps};

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
    pub(super) fn find(props: &ProfileProps, gpu: Result<(), String>) -> Self {
        let config = &props.composed.config;
        let search = |named: &Option<PathBuf>| Search {
            named: named.clone(),
            path: props.search_path.clone(),
            root: Some(PathBuf::from("/")),
        };
        Tools {
            nsys: find_nsys(&search(&config.profiling.nsys.path)),
            native: props.native.clone(),
            ncu: find_ncu(&search(&config.profiling.ncu.path)),
            gpu,
        }
    }
}

fn find_nsys(search: &Search) -> Result<Nsys, String> {
    let found = Nsys::find(search);
    let nsys = found
        .tool
        .ok_or_else(|| absent("nsys", "Nsight Systems", search, &found.rejected))?;
    match nsys.importer.remedy() {
        Some(remedy) => Err(format!(
            "{} cannot import what it records; {remedy}",
            nsys.path.display()
        )),
        None => Ok(nsys),
    }
}

fn find_ncu(search: &Search) -> Result<Ncu, String> {
    let found = Ncu::find(search);
    found
        .tool
        .ok_or_else(|| absent("ncu", "Nsight Compute", search, &found.rejected))
}

fn absent(tool: &str, product: &str, search: &Search, rejected: &[RejectedCandidate]) -> String {
    let tried: Vec<String> = rejected
        .iter()
        .map(|rejected| format!("{}: {}", rejected.path.display(), rejected.why))
        .collect();
    match (tried.is_empty(), &search.named) {
        (true, Some(path)) => format!("{} is not a program; mend profiling.{tool}.path", path.display()),
        (true, None) => format!("{tool} was not found; install {product}, or set profiling.{tool}.path"),
        (false, _) => format!("no {tool} can be used: {}", tried.join("; ")),
    }
}
