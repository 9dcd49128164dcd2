//! Looking at what this machine has.

use std::path::{Path, PathBuf};

use super::counters::CounterAccess;
use super::cupti;
use crate::child::budget::free_bytes;
use crate::command::find_on_path;
use crate::provenance::{Gpus, Python};
use crate::tool::{Found, Ncu, Nsys, Search};

/// What to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorProps {
    /// An nsys the user named.
    pub nsys: Option<PathBuf>,
    /// An ncu the user named.
    pub ncu: Option<PathBuf>,
    /// The Python of the workload.
    pub python: PathBuf,
    /// Whether the workload needs Python with torch.
    pub needs_torch: bool,
    /// The folder runs go to.
    pub folder: PathBuf,
    /// The room a run needs there.
    pub min_free_bytes: u64,
}

impl Default for DoctorProps {
    fn default() -> Self {
        DoctorProps {
            nsys: None,
            ncu: None,
            python: PathBuf::from("python3"),
            needs_torch: false,
            folder: PathBuf::from("tmp/stage2"),
            min_free_bytes: 2_000_000_000,
        }
    }
}

/// The disk runs go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The folder that was asked for.
    pub folder: PathBuf,
    /// The room that is left there.
    pub free_bytes: Option<u64>,
    /// Whether a run can be made there.
    pub writable: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// nsys.
    pub nsys: Found<Nsys>,
    /// ncu.
    pub ncu: Found<Ncu>,
    /// The GPUs, or why there are none.
    pub gpus: Result<Gpus, String>,
    /// What `CUDA_VISIBLE_DEVICES` says.
    pub visible_devices: Option<String>,
    /// Whether counters may be read.
    pub counters: CounterAccess,
    /// CUPTI libraries.
    pub cupti: Vec<PathBuf>,
    /// The disk.
    pub disk: Disk,
    /// Python, or why there is none.
    pub python: Result<Python, String>,
}

impl Findings {
    /// Looks at this machine. Tools are started to be asked, so this takes a second or two.
    pub fn here(props: &DoctorProps) -> Findings {
        // Each question waits on a tool of its own, so they are asked side by side.
        let (nsys, ncu, gpus, python) = std::thread::scope(|scope| {
            let nsys = scope.spawn(|| Nsys::find(&Search::here(props.nsys.clone())));
            let ncu = scope.spawn(|| Ncu::find(&Search::here(props.ncu.clone())));
            let gpus = scope.spawn(gpus);
            let python = scope.spawn(|| Python::ask(&props.python));
            let lost = || "the question was lost".to_owned();
            (
                nsys.join().unwrap_or(Found {
                    tool: None,
                    rejected: Vec::new(),
                }),
                ncu.join().unwrap_or(Found {
                    tool: None,
                    rejected: Vec::new(),
                }),
                gpus.join().unwrap_or_else(|_| Err(lost())),
                python.join().unwrap_or_else(|_| Err(lost())),
            )
        });
        let library_path: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
            .map(|path| std::env::split_paths(&path).collect())
            .unwrap_or_default();
        let mut cupti = cupti::find(Path::new("/"), &library_path);
        if let Ok(python) = &python {
            cupti.extend(python.cupti.iter().cloned());
        }
        Findings {
            nsys,
            ncu,
            gpus,
            visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            counters: CounterAccess::here(),
            cupti,
            disk: Disk::look(&props.folder),
            python,
        }
    }
}

fn gpus() -> Result<Gpus, String> {
    let path: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    let nvidia_smi = find_on_path(Path::new("nvidia-smi"), &path)
        .or_else(|| find_on_path(Path::new("/usr/bin/nvidia-smi"), &[]))
        .ok_or("nvidia-smi is not on the PATH")?;
    Gpus::ask(&nvidia_smi)
}

impl Disk {
    fn look(folder: &Path) -> Disk {
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let there = absolute.ancestors().find(|ancestor| ancestor.exists());
        Disk {
            folder: folder.to_path_buf(),
            free_bytes: there.and_then(free_bytes),
            writable: there.is_some_and(|there| {
                there.is_dir() && rustix::fs::access(there, rustix::fs::Access::WRITE_OK).is_ok()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_yet_is_judged_by_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::look(&folder.path().join("a/b/c"));
        assert!(disk.writable && disk.free_bytes.is_some());
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(!Disk::look(&folder.path().join("file/b")).writable);
    }
}
