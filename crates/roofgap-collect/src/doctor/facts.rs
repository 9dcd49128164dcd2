//! Facts about this machine that the checks use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_base::text::status_mask;

use crate::child::{free_bytes, probe};
use crate::command::{CommandLine, folders_in_variable};
use crate::provenance::{Gpus, Python};
use crate::tool::{Ncu, Nsys, Search, SearchResult, ToolError, expand};

/// Settings of the doctor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorProps {
    /// Path of nsys, if the user set one.
    pub nsys: Option<PathBuf>,
    /// Path of ncu, if the user set one.
    pub ncu: Option<PathBuf>,
    /// Python of the workload.
    pub python: PathBuf,
    /// Program whose commands say whether counters and vitals can be sampled while programs run.
    pub sampler: Option<PathBuf>,
    /// Folder of all runs.
    pub folder: PathBuf,
    /// Free space a run needs, bytes.
    pub min_free_bytes: u64,
}

impl Default for DoctorProps {
    fn default() -> Self {
        Self {
            nsys: None,
            ncu: None,
            python: PathBuf::from("python3"),
            sampler: None,
            folder: PathBuf::from("tmp/stage2"),
            min_free_bytes: 2_000_000_000,
        }
    }
}

/// The disk of the run folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Folder of all runs, which may not exist yet.
    pub folder: PathBuf,
    /// Free space, bytes.
    pub free_bytes: Option<u64>,
    /// A run can be created there.
    pub writable: bool,
}

/// Facts about this machine.
#[derive(Debug)]
pub struct SystemFacts {
    /// nsys.
    pub nsys: SearchResult<Nsys>,
    /// ncu.
    pub ncu: SearchResult<Ncu>,
    /// GPUs and driver.
    pub gpus: Result<Gpus, ToolError>,
    /// Value of `CUDA_VISIBLE_DEVICES`.
    pub visible_devices: Option<String>,
    /// Access to performance counters.
    pub counters: CounterAccess,
    /// Says with what counters can be sampled while programs run, or why not; `None` where nobody was asked.
    pub sampling: Option<Result<String, ToolError>>,
    /// The same of energy, power and clocks.
    pub vitals: Option<Result<String, ToolError>>,
    /// Paths of CUPTI libraries.
    pub cupti: Vec<PathBuf>,
    /// Variables of the environment that announce another user of CUPTI, and the name of that user.
    pub cupti_users: Vec<(&'static str, &'static str)>,
    /// Disk of the run folder.
    pub disk: Disk,
    /// Python of the workload.
    pub python: Result<Python, ToolError>,
}

impl SystemFacts {
    /// Collects the facts. Runs each tool, so this takes a second or two.
    pub fn collect(props: &DoctorProps) -> Self {
        // The queries wait on different tools, so they run in parallel.
        let (nsys, ncu, gpus, sampling, vitals, python) = std::thread::scope(|scope| {
            let nsys = scope.spawn(|| Nsys::find(&Search::from_env(props.nsys.clone())));
            let ncu = scope.spawn(|| Ncu::find(&Search::from_env(props.ncu.clone())));
            let gpus = scope.spawn(Gpus::find);
            let says = |what| props.sampler.as_ref().map(|program| sampling(program, what));
            let sampling = scope.spawn(move || says("counters"));
            let vitals = scope.spawn(move || says("vitals"));
            let python = Python::query(&props.python, []);
            (join(nsys), join(ncu), join(gpus), join(sampling), join(vitals), python)
        });
        let mut cupti = find_cupti(Path::new("/"), &folders_in_variable("LD_LIBRARY_PATH"));
        if let Ok(python) = &python {
            cupti.extend(python.cupti.iter().cloned());
        }
        Self {
            nsys,
            ncu,
            gpus,
            visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            counters: CounterAccess::current(),
            sampling,
            vitals,
            cupti,
            cupti_users: cupti_users(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())),
            disk: Disk::query(&props.folder),
            python,
        }
    }
}

/// Runs the command that says whether counters or vitals can be sampled.
fn sampling(program: &Path, what: &str) -> Result<String, ToolError> {
    let command = &CommandLine::new(program).arg(format!("sample-{what}"));
    let output = probe(command, Duration::from_secs(20)).map_err(|error| ToolError(error.to_string()))?;
    let said = output.stderr.lines().last().unwrap_or_default().to_owned();
    match said.strip_prefix(&format!("error: cannot sample {what}: ")) {
        _ if output.success => Ok(said),
        Some(why) => Err(ToolError(why.to_owned())),
        None => Err(ToolError(output.ended)),
    }
}

/// Returns the result of a thread; a panic in it is a bug and continues here.
fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Disk {
    fn query(folder: &Path) -> Self {
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let existing = absolute.ancestors().find(|ancestor| ancestor.exists());
        Self {
            folder: folder.to_path_buf(),
            free_bytes: existing.and_then(free_bytes),
            writable: existing.is_some_and(|existing| {
                existing.is_dir() && rustix::fs::access(existing, rustix::fs::Access::WRITE_OK).is_ok()
            }),
        }
    }
}

/// Returns the users of CUPTI that the set variables announce.
fn cupti_users(is_set: impl Fn(&str) -> bool) -> Vec<(&'static str, &'static str)> {
    const USERS: [(&str, &str); 3] = [
        ("NSYS_PROFILING_SESSION_ID", "Nsight Systems"),
        ("CUDA_INJECTION64_PATH", "a tool that the CUDA driver loads"),
        ("KINETO_USE_DAEMON", "the PyTorch profiler under its daemon"),
    ];
    USERS.into_iter().filter(|(name, _)| is_set(name)).collect()
}

/// Finds CUPTI, which the native collector needs, in the folders of a library path and in install folders below `root`.
fn find_cupti(root: &Path, library_path: &[PathBuf]) -> Vec<PathBuf> {
    let mut libraries = Vec::new();
    for folder in library_path {
        libraries.extend(expand(folder, "libcupti.so*"));
    }
    for pattern in [
        "usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*",
        "usr/local/cuda*/lib64/libcupti.so*",
        "usr/local/cuda*/targets/*/lib/libcupti.so*",
        "usr/lib/*-linux-gnu/libcupti.so*",
        "usr/lib64/libcupti.so*",
        "opt/cuda/extras/CUPTI/lib64/libcupti.so*",
    ] {
        libraries.extend(expand(root, pattern));
    }
    // A library with several links counts once.
    let mut seen = std::collections::HashSet::new();
    libraries.retain(|path| seen.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    libraries
}

/// Access of this process to performance counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterAccess {
    /// All users may read them.
    Everybody,
    /// Only administrators may read them, and this process is one.
    Administrator,
    /// Only administrators may read them, and this process is not one.
    Closed,
    /// Unknown: no driver, or a container hides it.
    Unknown,
}

/// Bit of `CAP_SYS_ADMIN` in a capability mask.
const SYS_ADMIN: u64 = 1 << 21;

impl CounterAccess {
    /// Determines the access of this process.
    pub fn current() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        access(&read("/proc/driver/nvidia/params"), &read("/proc/self/status"))
    }
}

fn access(params: &str, status: &str) -> CounterAccess {
    let is_administrator = status_mask(status, "CapEff").is_some_and(|mask| mask & SYS_ADMIN != 0);
    let restricted =
        params.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:")).map(str::trim);
    match restricted {
        Some("0") => CounterAccess::Everybody,
        Some(_) if is_administrator => CounterAccess::Administrator,
        Some(_) => CounterAccess::Closed,
        None => CounterAccess::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_yet_is_judged_by_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::query(&folder.path().join("a/b/c"));
        assert!(disk.writable && disk.free_bytes.is_some());
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(!Disk::query(&folder.path().join("file/b")).writable);
    }

    #[test]
    fn one_library_by_two_names() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/local/cuda-13.0/extras/CUPTI/lib64");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libcupti.so.2025.3.1"), "").unwrap();
        std::os::unix::fs::symlink("libcupti.so.2025.3.1", folder.join("libcupti.so.13")).unwrap();
        assert_eq!(find_cupti(root.path(), std::slice::from_ref(&folder)).len(), 1);
        assert_eq!(find_cupti(&root.path().join("usr"), &[]), Vec::<PathBuf>::new());
    }

    #[test]
    fn users_of_cupti_are_announced_by_the_environment() {
        assert!(cupti_users(|_| false).is_empty());
        let users = cupti_users(|name| name == "KINETO_USE_DAEMON");
        assert_eq!(users, [("KINETO_USE_DAEMON", "the PyTorch profiler under its daemon")]);
    }
}

#[cfg(test)]
mod counters_tests {
    use super::*;

    #[test]
    fn access_by_driver_and_capabilities() {
        let root = "Name:\tx\nCapEff:\t000001ffffffffff\n";
        // Root in docker has no CAP_SYS_ADMIN.
        let docker_root = "CapEff:\t00000000a80425fb\n";
        let params = |value| format!("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {value}\n");
        assert_eq!(access(&params(0), docker_root), CounterAccess::Everybody);
        assert_eq!(access(&params(1), root), CounterAccess::Administrator);
        assert_eq!(access(&params(1), docker_root), CounterAccess::Closed);
        assert_eq!(access("", root), CounterAccess::Unknown);
    }
}
