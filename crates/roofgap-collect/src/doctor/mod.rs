//! Checks of this machine: tools, driver, counter access, Python and disk, each with a remedy where something is missing or broken.
//!
//! - `facts`: collecting the facts

mod facts;

pub use facts::{CounterAccess, Disk, DoctorProps, SystemFacts};

use serde::Serialize;

use crate::ncu::PERMISSION_REMEDY;
use crate::provenance::{Gpu, visible_gpus};
use crate::tool::{ImporterState, RejectedCandidate, Version};

/// Status of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Works.
    Ok,
    /// Works, with a limitation.
    Warn,
    /// Missing; phases that need it are skipped.
    Absent,
    /// Present, but broken.
    Bad,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable identifier.
    pub id: &'static str,
    /// Status.
    pub status: Status,
    /// Facts found.
    pub found: String,
    /// Remedy, if one is needed.
    pub remedy: Option<String>,
}

impl Check {
    fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self { id, status: Status::Ok, found: found.into(), remedy: None }
    }

    fn new(id: &'static str, status: Status, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status, remedy: Some(remedy.into()), ..Self::ok(id, found) }
    }

    fn warn(id: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(id, Status::Warn, found, remedy)
    }

    fn absent(id: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(id, Status::Absent, found, remedy)
    }

    fn bad(id: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(id, Status::Bad, found, remedy)
    }
}

/// Runs all checks, in the order of the printed list.
pub fn checks(facts: &SystemFacts, props: &DoctorProps) -> Vec<Check> {
    let mut checks = vec![driver(facts)];
    checks.extend(gpus(facts));
    checks.push(nsys(facts));
    checks.extend(importer(facts));
    checks.push(ncu(facts));
    checks.push(counters(facts));
    checks.extend(sampling(facts));
    checks.push(cupti(facts));
    checks.extend(python(facts));
    checks.push(disk(facts, props));
    checks
}

fn driver(facts: &SystemFacts) -> Check {
    match &facts.gpus {
        Ok(gpus) => match &gpus.driver {
            Some(version) => Check::ok("driver", format!("NVIDIA driver {version}")),
            None => Check::warn(
                "driver",
                "nvidia-smi reports no driver version",
                "run nvidia-smi and read its output",
            ),
        },
        Err(error) => Check::absent(
            "driver",
            error.to_string(),
            "on a machine with an NVIDIA GPU, install the driver until nvidia-smi works; start a container with --gpus all",
        ),
    }
}

fn gpu(gpu: &Gpu) -> Check {
    let unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let facts = format!(
        "{}: {}, compute capability {}, {}",
        gpu.index,
        unknown(&gpu.name),
        unknown(&gpu.compute_capability),
        unknown(&gpu.uuid)
    );
    match gpu.utilization_pct.filter(|percent| *percent > 10) {
        Some(percent) => Check::warn(
            "gpu",
            format!("{facts}; {percent} % busy now"),
            "stop other work on it (see nvidia-smi), or it affects the measurements",
        ),
        None => Check::ok("gpu", facts),
    }
}

fn gpus(facts: &SystemFacts) -> Vec<Check> {
    let Ok(gpus) = &facts.gpus else {
        return Vec::new();
    };
    if gpus.gpus.is_empty() {
        return vec![Check::absent(
            "gpu",
            "the driver finds no GPU",
            "check that the GPU is seated, and assigned to this container or virtual machine",
        )];
    }
    let mut checks: Vec<Check> = gpus.gpus.iter().map(gpu).collect();
    for gpu in &gpus.gpus {
        if gpu.ecc_mode.as_deref() == Some("Disabled") {
            checks.push(Check::warn(
                "ecc",
                format!("ECC of GPU {} is off, which can make its memory faster", gpu.index),
                "compare only runs with the same setting (`nvidia-smi -e 1` turns it on after a reset)",
            ));
        }
        let limits = gpu.power_limit_w.zip(gpu.power_default_w).filter(|(limit, default)| limit < default);
        checks.extend(limits.map(|(limit, default)| {
            let found = format!(
                "the power limit of GPU {} is {limit:.0} W; its default is {default:.0} W",
                gpu.index
            );
            Check::warn(
                "power",
                found,
                format!(
                    "raise it with `nvidia-smi -i {} -pl {default:.0}`, or compare only runs at this limit",
                    gpu.index
                ),
            )
        }));
    }
    if !gpus.processes.is_empty() {
        let found = format!("other processes compute on the GPUs: {}", gpus.processes.join(", "));
        checks.push(Check::warn("processes", found, "end them, or they affect times, power and clocks"));
    }
    checks.extend(facts.vitals.as_ref().map(|vitals| match vitals {
        Ok(found) => Check::ok("vitals", found),
        Err(why) => Check::warn(
            "vitals",
            format!("energy, power and clocks of the GPUs are not sampled: {why}"),
            "install the library libnvidia-ml.so.1 of the driver; in a container add the driver capability utility",
        ),
    }));
    if gpus.is_mig_enabled() {
        checks.push(Check::warn(
            "mig",
            format!("MIG is enabled, with {} instances", gpus.mig.len()),
            "select one instance with CUDA_VISIBLE_DEVICES=MIG-...; some counters are shared between instances and not available",
        ));
    }
    if let Some(value) = &facts.visible_devices {
        let visible = visible_gpus(&gpus.gpus, Some(value));
        checks.push(if visible.is_empty() && !value.contains("MIG-") {
            Check::bad(
                "cuda_visible_devices",
                format!("CUDA_VISIBLE_DEVICES={value} hides all GPUs"),
                "unset CUDA_VISIBLE_DEVICES, or name a GPU of nvidia-smi -L",
            )
        } else {
            Check::ok("cuda_visible_devices", format!("CUDA_VISIBLE_DEVICES={value}"))
        });
    }
    checks
}

fn nsys(facts: &SystemFacts) -> Check {
    match &facts.nsys.tool {
        Some(nsys) => Check::ok("nsys", format!("{}, {}", version(&nsys.version), nsys.path.display())),
        None => missing(
            "nsys",
            &facts.nsys.rejected,
            "install Nsight Systems (package nsight-systems or nsight-systems-cli), or set profiling.nsys.path; \
             without it, the native collector records the timeline",
        ),
    }
}

fn importer(facts: &SystemFacts) -> Option<Check> {
    const ID: &str = "nsys_import";
    Some(match &facts.nsys.tool.as_ref()?.importer {
        ImporterState::Works { importer } => {
            Check::ok(ID, format!("the importer starts: {}", importer.display()))
        }
        ImporterState::Unknown { why } => Check::warn(
            ID,
            format!("unknown whether nsys can import: {why}"),
            "none needed if the first run writes a .nsys-rep",
        ),
        ImporterState::Fails { why, remedy } => {
            Check::bad(ID, format!("{why}: nsys would record but write no report"), remedy)
        }
    })
}

fn ncu(facts: &SystemFacts) -> Check {
    match &facts.ncu.tool {
        Some(ncu) => Check::ok("ncu", format!("{}, {}", version(&ncu.version), ncu.path.display())),
        None => missing(
            "ncu",
            &facts.ncu.rejected,
            "install Nsight Compute (package nsight-compute), or set profiling.ncu.path; without it there are no counters",
        ),
    }
}

fn missing(tool: &'static str, rejected: &[RejectedCandidate], remedy: &str) -> Check {
    match rejected.first() {
        Some(first) => {
            Check::bad(tool, format!("{} does not work: {}", first.path.display(), first.why), remedy)
        }
        None => Check::absent(
            tool,
            format!("{tool} is neither on the PATH nor in a common install folder"),
            remedy,
        ),
    }
}

fn counters(facts: &SystemFacts) -> Check {
    const ID: &str = "counters";
    match facts.counters {
        CounterAccess::Everybody => Check::ok(ID, "the driver allows all users to read counters"),
        CounterAccess::Administrator => {
            Check::ok(ID, "the driver allows only administrators to read counters; this user is one")
        }
        CounterAccess::Closed => Check::bad(
            ID,
            "the driver allows only administrators to read counters (ERR_NVGPUCTRPERM)",
            PERMISSION_REMEDY,
        ),
        CounterAccess::Unknown if facts.gpus.is_err() => {
            Check::absent(ID, "no driver to query", "see driver")
        }
        CounterAccess::Unknown => {
            Check::warn(ID, "the driver does not report who may read counters", PERMISSION_REMEDY)
        }
    }
}

fn sampling(facts: &SystemFacts) -> Option<Check> {
    const ID: &str = "sampling";
    Some(match facts.sampling.as_ref().filter(|_| facts.gpus.is_ok())? {
        Ok(found) => Check::ok(ID, found),
        Err(why) => Check::absent(
            ID,
            format!("counters cannot be sampled while programs run: {why}"),
            match facts.counters {
                CounterAccess::Closed => PERMISSION_REMEDY,
                _ => {
                    "install CUPTI 12.6 or later (package nvidia-cuda-cupti), or name its libcupti.so in CUPTI_LIBRARY"
                }
            },
        ),
    })
}

fn cupti(facts: &SystemFacts) -> Check {
    match facts.cupti.first() {
        Some(path) if !facts.cupti_users.is_empty() => {
            let users = facts.cupti_users.iter();
            let users: Vec<String> = users.map(|(name, user)| format!("{user} ({name})")).collect();
            Check::warn(
                "cupti",
                format!(
                    "{}; the environment announces another user of CUPTI: {}",
                    path.display(),
                    users.join(", ")
                ),
                "CUPTI serves one profiler per process: beside another one, the native collector records ranges and no GPU work, and \
                 declares that loss; it replaces the value of CUDA_INJECTION64_PATH. Unset the variables, or use profiling.timeline=nsys",
            )
        }
        Some(path) => Check::ok(
            "cupti",
            format!(
                "{}; sessions record with the native collector, and deep ones with nsys, too; profiling.timeline names one of them",
                path.display()
            ),
        ),
        None => Check::absent(
            "cupti",
            "no libcupti in a common install folder",
            "install the CUDA toolkit or torch with CUDA, or add the folder of libcupti.so to LD_LIBRARY_PATH; \
             only the native collector needs it",
        ),
    }
}

fn python(facts: &SystemFacts) -> Vec<Check> {
    let python = match &facts.python {
        Ok(python) => python,
        Err(error) => {
            return vec![Check::absent(
                "python",
                error.to_string(),
                "install Python 3, or set workload.python; only workload=hf and workload=hydra need it",
            )];
        }
    };
    let executable = python.executable.display().to_string();
    let mut checks = vec![Check::ok("python", format!("{}, {executable}", python.version))];
    for package in ["torch", "transformers"] {
        checks.push(match python.package(package) {
            Some(version) => Check::ok(package, version),
            None => Check::absent(
                package,
                format!("{package} is not installed for {executable}"),
                format!("{executable} -m pip install {package}    (only workload=hf needs it)"),
            ),
        });
    }
    checks.push(nvtx(facts, python.package("nvtx"), &executable));
    checks
}

fn nvtx(facts: &SystemFacts, installed: Option<&str>, python: &str) -> Check {
    let Some(installed) = installed else {
        return Check::absent(
            "nvtx",
            "the Python package nvtx is missing: ranges use the default domain through torch",
            format!("{python} -m pip install nvtx"),
        );
    };
    let new =
        Version::find(installed).zip(Version::find("0.2.12")).is_some_and(|(have, first)| have >= first);
    let nsys = facts.nsys.tool.as_ref();
    let old_nsys =
        nsys.and_then(|nsys| nsys.version.as_ref()).is_some_and(|version| !version.at_least(2024, 1));
    if new && old_nsys {
        Check::bad(
            "nvtx",
            format!("nvtx {installed} records no ranges under nsys 2023.4 or older"),
            format!("{python} -m pip install nvtx==0.2.11, or install a newer nsys"),
        )
    } else {
        Check::ok("nvtx", installed)
    }
}

fn disk(facts: &SystemFacts, props: &DoctorProps) -> Check {
    const ID: &str = "disk";
    let disk = &facts.disk;
    let folder = disk.folder.display();
    if !disk.writable {
        return Check::bad(
            ID,
            format!("{folder} is not writable"),
            "set artifacts.stage2_dir to a writable folder",
        );
    }
    let gigabytes = |bytes: u64| format!("{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10);
    match disk.free_bytes {
        Some(free) if free < props.min_free_bytes => Check::bad(
            ID,
            format!(
                "{} free at {folder}; a run may need {}",
                gigabytes(free),
                gigabytes(props.min_free_bytes)
            ),
            "free some space (roofgap runs prune), or set artifacts.stage2_dir to another disk",
        ),
        Some(free) => Check::ok(ID, format!("{} free at {folder}", gigabytes(free))),
        None => Check::warn(ID, format!("the free space at {folder} is unknown"), "check it with df"),
    }
}

fn version(version: &Option<Version>) -> String {
    version.as_ref().map_or_else(|| "unknown version".to_owned(), Version::to_string)
}

#[cfg(test)]
mod tests {
    use super::facts::Disk;
    use super::*;
    use crate::provenance::{Gpus, Python};
    use crate::tool::{Help, Ncu, Nsys, SearchResult, ToolError};
    use std::path::PathBuf;

    fn bare() -> SystemFacts {
        SystemFacts {
            nsys: SearchResult { tool: None, rejected: Vec::new() },
            ncu: SearchResult { tool: None, rejected: Vec::new() },
            gpus: Err(ToolError("nvidia-smi is not on the PATH".to_owned())),
            visible_devices: None,
            counters: CounterAccess::Unknown,
            sampling: Some(Err(ToolError("the driver does not start".to_owned()))),
            vitals: Some(Ok("NVML".to_owned())),
            cupti: Vec::new(),
            cupti_users: Vec::new(),
            disk: Disk { folder: "runs".into(), free_bytes: Some(10_500_000_000), writable: true },
            python: Err(ToolError("python3 does not start".to_owned())),
        }
    }

    fn tool(version: &str, importer: ImporterState) -> Nsys {
        Nsys {
            path: "/opt/nsys".into(),
            version: Version::find(version),
            profile: Help::default(),
            export: Help::default(),
            reports: Vec::new(),
            importer,
        }
    }

    fn full() -> SystemFacts {
        let works = ImporterState::Works { importer: "/opt/QdstrmImporter".into() };
        let mut facts = bare();
        facts.nsys.tool = Some(tool("2025.3.1", works));
        facts.ncu.tool = Some(Ncu {
            path: "/opt/ncu".into(),
            version: Version::find("2025.3.1"),
            help: Help::default(),
            sets: Vec::new(),
            sections: Vec::new(),
        });
        facts.gpus = Ok(Gpus { driver: Some("580.1".to_owned()), ..Gpus::default() });
        facts.counters = CounterAccess::Everybody;
        facts.cupti = vec![PathBuf::from("/usr/local/cuda/libcupti.so.13")];
        facts.python = Ok(Python {
            executable: "/usr/bin/python3".into(),
            version: "3.12.1".to_owned(),
            packages: [("torch", "2.11.0"), ("transformers", "5.17.0"), ("nvtx", "0.2.13")]
                .map(|(name, version)| (name.to_owned(), version.to_owned()))
                .into(),
            cupti: Vec::new(),
        });
        facts
    }

    fn status(checks: &[Check], id: &str) -> Status {
        checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no check {id}")).status
    }

    #[test]
    fn a_bare_machine_lacks_things_and_has_nothing_broken() {
        let checks = checks(&bare(), &DoctorProps::default());
        assert!(
            checks.iter().all(|check| matches!(check.status, Status::Ok | Status::Absent)),
            "{checks:#?}"
        );
        assert_eq!(status(&checks, "disk"), Status::Ok);
        assert!(checks.iter().filter(|check| check.status != Status::Ok).all(|check| check.remedy.is_some()));
    }

    #[test]
    fn a_broken_importer_has_a_remedy() {
        let mut facts = full();
        let broken = ImporterState::Fails {
            why: "/opt/QdstrmImporter needs libdw.so.1, which is missing".to_owned(),
            remedy: "apt-get install libdw1".to_owned(),
        };
        facts.nsys.tool = Some(tool("2025.3.1", broken));
        let checks = checks(&facts, &DoctorProps::default());
        let import = checks.iter().find(|check| check.id == "nsys_import").unwrap();
        assert_eq!(import.status, Status::Bad);
        assert!(import.found.contains("libdw.so.1") && import.remedy.as_deref().unwrap().contains("libdw1"));
    }

    #[test]
    fn limits_and_other_users_of_a_gpu_are_named() {
        let gpu = |limit| Gpu {
            power_limit_w: Some(limit),
            power_default_w: Some(700.0),
            ecc_mode: Some(if limit < 700.0 { "Disabled" } else { "Enabled" }.to_owned()),
            ..Gpu::default()
        };
        let with = |limit, processes: &[&str]| {
            let processes = processes.iter().map(|name| (*name).to_owned()).collect();
            let gpus = Ok(Gpus { gpus: vec![gpu(limit)], processes, ..Gpus::default() });
            checks(&SystemFacts { gpus, ..full() }, &DoctorProps::default())
        };
        let limited = with(500.0, &["python3 (7)"]);
        assert_eq!((status(&limited, "power"), status(&limited, "processes")), (Status::Warn, Status::Warn));
        assert_eq!(status(&limited, "ecc"), Status::Warn);
        let free = with(700.0, &[]);
        assert!(free.iter().all(|check| !["power", "processes", "ecc"].contains(&check.id)));
        assert_eq!(status(&free, "vitals"), Status::Ok);
        let why = "libnvidia-ml.so.1: cannot open shared object file";
        let gpus = Ok(Gpus { gpus: vec![gpu(700.0)], ..Gpus::default() });
        let facts = SystemFacts { gpus, vitals: Some(Err(ToolError(why.to_owned()))), ..full() };
        let without = checks(&facts, &DoctorProps::default());
        assert_eq!(status(&without, "vitals"), Status::Warn);
        assert!(without.iter().any(|check| check.found.contains(why)));
    }

    #[test]
    fn a_new_nvtx_under_an_old_nsys() {
        let mut facts = full();
        assert_eq!(status(&checks(&facts, &DoctorProps::default()), "nvtx"), Status::Ok);
        facts.nsys.tool = Some(tool("2023.4.4", ImporterState::Unknown { why: String::new() }));
        assert_eq!(status(&checks(&facts, &DoctorProps::default()), "nvtx"), Status::Bad);
    }

    #[test]
    fn sampling_names_the_setting_that_is_missing() {
        let mut facts = full();
        let remedy = |facts: &SystemFacts| {
            let check = sampling(facts).unwrap();
            assert_eq!(check.status, Status::Absent);
            check.remedy.unwrap()
        };
        facts.sampling = Some(Err(ToolError("libcupti.so.12 is older than CUPTI 12.6".to_owned())));
        assert!(remedy(&facts).contains("CUPTI 12.6 or later"));
        facts.counters = CounterAccess::Closed;
        assert_eq!(remedy(&facts), PERMISSION_REMEDY);
        facts.sampling = Some(Ok("6 counters".to_owned()));
        assert_eq!(sampling(&facts).unwrap().status, Status::Ok);
        facts.sampling = None;
        assert_eq!(sampling(&facts), None, "nobody was asked");
    }

    #[test]
    fn closed_counters_a_full_disk_and_a_broken_tool() {
        let mut facts = full();
        facts.counters = CounterAccess::Closed;
        facts.disk.free_bytes = Some(1_000_000);
        facts.ncu = SearchResult {
            tool: None,
            rejected: vec![RejectedCandidate {
                path: "/usr/bin/ncu".into(),
                why: ToolError("it cannot import its recordings".to_owned()),
            }],
        };
        let checks = checks(&facts, &DoctorProps::default());
        for id in ["counters", "disk", "ncu"] {
            assert_eq!(status(&checks, id), Status::Bad, "{id}");
        }
        let json = serde_json::to_value(&checks).unwrap();
        assert!(
            json.as_array()
                .unwrap()
                .iter()
                .all(|check| check["id"].is_string() && check["status"].is_string())
        );
    }

    #[test]
    fn this_machine_can_be_checked() {
        let props = DoctorProps::default();
        let checks = checks(&SystemFacts::collect(&props), &props);
        for id in ["driver", "nsys", "ncu", "counters", "cupti", "python", "disk"] {
            assert!(checks.iter().any(|check| check.id == id), "{id}");
        }
    }

    #[test]
    fn another_user_of_cupti_is_named() {
        let mut facts = full();
        facts.cupti_users = vec![("NSYS_PROFILING_SESSION_ID", "Nsight Systems")];
        let check = cupti(&facts);
        assert_eq!(check.status, Status::Warn);
        assert!(check.found.ends_with("Nsight Systems (NSYS_PROFILING_SESSION_ID)"), "{}", check.found);
        facts.cupti_users.clear();
        assert_eq!(cupti(&facts).status, Status::Ok);
    }
}
