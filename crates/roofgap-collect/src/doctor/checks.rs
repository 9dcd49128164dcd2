//! Judging what was found: each check says what there is, and what to type where it is not well.

use serde::Serialize;

use super::counters::CounterAccess;
use super::findings::{DoctorProps, Findings};
use crate::ncu::Complaint;
use crate::provenance::gpu;
use crate::tool::{Import, Rejected, Version};

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// All is well.
    Ok,
    /// It works, with something to know.
    Warn,
    /// It is not there, and what needs it is skipped.
    Absent,
    /// It is there and does not work.
    Bad,
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name for machines.
    pub id: &'static str,
    /// How it went.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do, where there is something to do.
    pub remedy: Option<String>,
}

impl Check {
    fn ok(id: &'static str, found: impl Into<String>) -> Check {
        Check {
            id,
            status: Status::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    fn not_ok(
        id: &'static str,
        status: Status,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Check {
        Check {
            id,
            status,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// All checks, in the order a reader wants them.
pub fn checks(findings: &Findings, props: &DoctorProps) -> Vec<Check> {
    let mut checks = vec![driver(findings)];
    checks.extend(gpus(findings));
    checks.push(nsys(findings));
    checks.extend(import(findings));
    checks.push(ncu(findings));
    checks.push(counters(findings));
    checks.push(cupti(findings));
    checks.extend(python(findings, props));
    checks.push(disk(findings, props));
    checks
}

fn driver(findings: &Findings) -> Check {
    match &findings.gpus {
        Ok(gpus) => match &gpus.driver {
            Some(version) => Check::ok("driver", format!("NVIDIA driver {version}")),
            None => Check::not_ok(
                "driver",
                Status::Warn,
                "nvidia-smi names no driver version",
                "run nvidia-smi and see what it says",
            ),
        },
        Err(why) => Check::not_ok(
            "driver",
            Status::Absent,
            why.clone(),
            "on a machine with an NVIDIA GPU: install its driver, until nvidia-smi works; in a container: start it with --gpus all",
        ),
    }
}

fn gpus(findings: &Findings) -> Vec<Check> {
    let Ok(found) = &findings.gpus else {
        return Vec::new();
    };
    if found.gpus.is_empty() {
        let remedy = "check that the GPU is seated and that this container or virtual machine was given one";
        return vec![Check::not_ok(
            "gpu",
            Status::Absent,
            "the driver sees no GPU",
            remedy,
        )];
    }
    let mut checks: Vec<Check> = found
        .gpus
        .iter()
        .map(|gpu| {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
            let busy = gpu.utilization_pct.filter(|percent| *percent > 10);
            let facts = format!(
                "{}: {}, compute capability {}, {}",
                gpu.index,
                text(&gpu.name),
                text(&gpu.compute_capability),
                text(&gpu.uuid)
            );
            match busy {
                Some(percent) => Check::not_ok(
                    "gpu",
                    Status::Warn,
                    format!("{facts}; it is {percent} % busy now"),
                    "end what else runs on it, or its work will be in the measurements: nvidia-smi",
                ),
                None => Check::ok("gpu", facts),
            }
        })
        .collect();
    if found
        .gpus
        .iter()
        .any(|gpu| gpu.mig_mode.as_deref() == Some("Enabled"))
    {
        checks.push(Check::not_ok(
            "mig",
            Status::Warn,
            format!("MIG is enabled, with {} instances", found.mig.len()),
            "choose one instance with CUDA_VISIBLE_DEVICES=MIG-...; some counters are shared between instances and not offered",
        ));
    }
    if let Some(value) = &findings.visible_devices {
        let seen = gpu::visible(&found.gpus, Some(value));
        checks.push(if seen.is_empty() && !value.contains("MIG-") {
            Check::not_ok(
                "cuda_visible_devices",
                Status::Bad,
                format!("CUDA_VISIBLE_DEVICES={value} leaves no GPU to see"),
                "unset CUDA_VISIBLE_DEVICES, or name a GPU of nvidia-smi -L",
            )
        } else {
            Check::ok("cuda_visible_devices", format!("CUDA_VISIBLE_DEVICES={value}"))
        });
    }
    checks
}

fn nsys(findings: &Findings) -> Check {
    match &findings.nsys.tool {
        Some(nsys) => Check::ok(
            "nsys",
            format!("{}, {}", version(&nsys.version), nsys.path.display()),
        ),
        None => missing(
            "nsys",
            "nsys",
            &findings.nsys.rejected,
            "install Nsight Systems (package nsight-systems or nsight-systems-cli), or set profiling.nsys.path; \
             without it the native collector is used",
        ),
    }
}

fn import(findings: &Findings) -> Option<Check> {
    let import = &findings.nsys.tool.as_ref()?.import;
    Some(match import {
        Import::Works { importer } => Check::ok(
            "nsys_import",
            format!("the importer starts: {}", importer.display()),
        ),
        Import::Unknown { why } => Check::not_ok(
            "nsys_import",
            Status::Warn,
            format!("it cannot be told whether nsys can import: {why}"),
            "none, if a first run leaves a .nsys-rep",
        ),
        Import::Missing { beside } => Check::not_ok(
            "nsys_import",
            Status::Bad,
            format!(
                "there is no QdstrmImporter beside {}: nsys would record and leave nothing readable",
                beside.display()
            ),
            import.remedy().unwrap_or_default(),
        ),
        Import::Broken {
            importer,
            library,
            said,
        } => {
            let why = match library {
                Some(library) => format!("{} lacks {library}", importer.display()),
                None => said.clone(),
            };
            Check::not_ok(
                "nsys_import",
                Status::Bad,
                format!("{why}: nsys would record and leave nothing readable"),
                import.remedy().unwrap_or_default(),
            )
        }
    })
}

fn ncu(findings: &Findings) -> Check {
    match &findings.ncu.tool {
        Some(ncu) => Check::ok(
            "ncu",
            format!("{}, {}", version(&ncu.version), ncu.path.display()),
        ),
        None => missing(
            "ncu",
            "ncu",
            &findings.ncu.rejected,
            "install Nsight Compute (package nsight-compute), or set profiling.ncu.path; without it there are no counters",
        ),
    }
}

fn missing(id: &'static str, name: &str, rejected: &[Rejected], remedy: &str) -> Check {
    match rejected.first() {
        Some(first) => Check::not_ok(
            id,
            Status::Bad,
            format!("{} does not work: {}", first.path.display(), first.why),
            remedy,
        ),
        None => Check::not_ok(
            id,
            Status::Absent,
            format!("{name} is neither on the PATH nor in the usual install folders"),
            remedy,
        ),
    }
}

fn counters(findings: &Findings) -> Check {
    let remedy = Complaint::Permission.remedy();
    match findings.counters {
        CounterAccess::Everybody => Check::ok("counters", "the driver gives counters to everybody"),
        CounterAccess::Administrator => Check::ok(
            "counters",
            "the driver gives counters to the administrator, which this is",
        ),
        CounterAccess::Closed => Check::not_ok(
            "counters",
            Status::Bad,
            "the driver gives counters to the administrator only (ERR_NVGPUCTRPERM)",
            remedy,
        ),
        CounterAccess::Unknown if findings.gpus.is_err() => {
            Check::not_ok("counters", Status::Absent, "no driver to ask", "see driver")
        }
        CounterAccess::Unknown => Check::not_ok(
            "counters",
            Status::Warn,
            "the driver does not say who may read counters",
            remedy,
        ),
    }
}

fn cupti(findings: &Findings) -> Check {
    match findings.cupti.first() {
        Some(path) => Check::ok("cupti", path.display().to_string()),
        None => Check::not_ok(
            "cupti",
            Status::Absent,
            "no libcupti in the usual places",
            "install the CUDA toolkit or torch with CUDA, or put the folder of libcupti.so on LD_LIBRARY_PATH; \
             only the native collector needs it",
        ),
    }
}

fn python(findings: &Findings, props: &DoctorProps) -> Vec<Check> {
    let lacking = if props.needs_torch {
        Status::Bad
    } else {
        Status::Absent
    };
    let python = match &findings.python {
        Ok(python) => python,
        Err(why) => {
            return vec![Check::not_ok(
                "python",
                lacking,
                why.clone(),
                "install Python 3, or set workload.python; only workload=hf and workload=hydra need it",
            )];
        }
    };
    let mut checks = vec![Check::ok(
        "python",
        format!("{}, {}", python.version, python.executable.display()),
    )];
    for package in ["torch", "transformers"] {
        checks.push(match python.package(package) {
            Some(version) => Check::ok(package, version),
            None => Check::not_ok(
                package,
                lacking,
                format!("{} has no {package}", python.executable.display()),
                format!(
                    "{} -m pip install {package}    (only workload=hf needs it)",
                    python.executable.display()
                ),
            ),
        });
    }
    checks.push(nvtx(
        findings,
        python.package("nvtx"),
        &python.executable.display().to_string(),
        lacking,
    ));
    checks
}

fn nvtx(findings: &Findings, installed: Option<&str>, python: &str, lacking: Status) -> Check {
    let Some(installed) = installed else {
        return Check::not_ok(
            "nvtx",
            if lacking == Status::Bad {
                Status::Warn
            } else {
                lacking
            },
            "the Python package nvtx is missing: ranges go to the default domain through torch",
            format!("{python} -m pip install nvtx"),
        );
    };
    let new = Version::find(installed)
        .zip(Version::find("0.2.12"))
        .is_some_and(|(have, first)| have >= first);
    let old_nsys = findings
        .nsys
        .tool
        .as_ref()
        .and_then(|nsys| nsys.version.as_ref())
        .is_some_and(|version| !version.at_least(2024, 1));
    if new && old_nsys {
        Check::not_ok(
            "nvtx",
            Status::Bad,
            format!("nvtx {installed} records nothing under an nsys of 2023.4 or older"),
            format!("{python} -m pip install nvtx==0.2.11, or a newer nsys"),
        )
    } else {
        Check::ok("nvtx", installed)
    }
}

fn disk(findings: &Findings, props: &DoctorProps) -> Check {
    let disk = &findings.disk;
    let folder = disk.folder.display();
    if !disk.writable {
        return Check::not_ok(
            "disk",
            Status::Bad,
            format!("{folder} cannot be written"),
            "set artifacts.stage2_dir to a folder that can",
        );
    }
    let gigabytes = |bytes: u64| format!("{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10);
    match disk.free_bytes {
        Some(free) if free < props.min_free_bytes => Check::not_ok(
            "disk",
            Status::Bad,
            format!(
                "{} free at {folder}, a run may need {}",
                gigabytes(free),
                gigabytes(props.min_free_bytes)
            ),
            "make room (roofgap runs prune), or set artifacts.stage2_dir to another disk",
        ),
        Some(free) => Check::ok("disk", format!("{} free at {folder}", gigabytes(free))),
        None => Check::not_ok(
            "disk",
            Status::Warn,
            format!("the room at {folder} cannot be told"),
            "see that there is enough",
        ),
    }
}

fn version(version: &Option<Version>) -> String {
    version
        .as_ref()
        .map_or_else(|| "unknown version".to_owned(), Version::to_string)
}

#[cfg(test)]
mod tests {
    use super::super::findings::Disk;
    use super::*;
    use crate::provenance::{Gpus, Python};
    use crate::tool::{Found, Help, Ncu, Nsys, Place};
    use std::path::PathBuf;

    fn bare() -> Findings {
        Findings {
            nsys: Found {
                tool: None,
                rejected: Vec::new(),
            },
            ncu: Found {
                tool: None,
                rejected: Vec::new(),
            },
            gpus: Err("nvidia-smi is not on the PATH".to_owned()),
            visible_devices: None,
            counters: CounterAccess::Unknown,
            cupti: Vec::new(),
            disk: Disk {
                folder: "runs".into(),
                free_bytes: Some(10_500_000_000),
                writable: true,
            },
            python: Err("python3: not found".to_owned()),
        }
    }

    fn tool(version: &str, import: Import) -> Nsys {
        Nsys {
            path: "/opt/nsys".into(),
            place: Place::Path,
            version: Version::find(version),
            profile: Help::default(),
            export: Help::default(),
            reports: Vec::new(),
            import,
        }
    }

    fn full() -> Findings {
        let works = Import::Works {
            importer: "/opt/QdstrmImporter".into(),
        };
        let mut findings = bare();
        findings.nsys.tool = Some(tool("2025.3.1", works));
        findings.ncu.tool = Some(Ncu {
            path: "/opt/ncu".into(),
            place: Place::Path,
            version: Version::find("2025.3.1"),
            help: Help::default(),
            sets: Vec::new(),
            sections: Vec::new(),
        });
        findings.gpus = Ok(Gpus {
            driver: Some("580.1".to_owned()),
            gpus: Vec::new(),
            mig: Vec::new(),
        });
        findings.counters = CounterAccess::Everybody;
        findings.cupti = vec![PathBuf::from("/usr/local/cuda/libcupti.so.13")];
        findings.python = Ok(Python {
            executable: "/usr/bin/python3".into(),
            version: "3.12.1".to_owned(),
            packages: [
                ("torch", "2.11.0"),
                ("transformers", "5.17.0"),
                ("nvtx", "0.2.13"),
            ]
            .map(|(name, version)| (name.to_owned(), version.to_owned()))
            .into(),
            cupti: Vec::new(),
        });
        findings
    }

    fn status(checks: &[Check], id: &str) -> Status {
        checks
            .iter()
            .find(|check| check.id == id)
            .unwrap_or_else(|| panic!("no check {id}"))
            .status
    }

    #[test]
    fn a_bare_machine_lacks_things_and_has_nothing_broken() {
        let checks = checks(&bare(), &DoctorProps::default());
        assert!(
            checks
                .iter()
                .all(|check| matches!(check.status, Status::Ok | Status::Absent)),
            "{checks:#?}"
        );
        assert_eq!(status(&checks, "disk"), Status::Ok);
        assert!(
            checks
                .iter()
                .filter(|check| check.status != Status::Ok)
                .all(|check| check.remedy.is_some())
        );
        let needy = DoctorProps {
            needs_torch: true,
            ..DoctorProps::default()
        };
        assert_eq!(status(&super::checks(&bare(), &needy), "python"), Status::Bad);
    }

    #[test]
    fn the_traps_of_nsys_are_named_with_their_remedy() {
        let mut findings = full();
        let broken = Import::Broken {
            importer: "/opt/QdstrmImporter".into(),
            library: Some("libdw.so.1".to_owned()),
            said: String::new(),
        };
        findings.nsys.tool = Some(tool("2025.3.1", broken));
        let checks = checks(&findings, &DoctorProps::default());
        let import = checks.iter().find(|check| check.id == "nsys_import").unwrap();
        assert_eq!(import.status, Status::Bad);
        assert!(import.found.contains("libdw.so.1") && import.remedy.as_deref().unwrap().contains("libdw1"));
    }

    #[test]
    fn a_new_nvtx_under_an_old_nsys() {
        let mut findings = full();
        assert_eq!(
            status(&checks(&findings, &DoctorProps::default()), "nvtx"),
            Status::Ok
        );
        findings.nsys.tool = Some(tool("2023.4.4", Import::Unknown { why: String::new() }));
        assert_eq!(
            status(&checks(&findings, &DoctorProps::default()), "nvtx"),
            Status::Bad
        );
    }

    #[test]
    fn closed_counters_no_room_and_a_broken_tool() {
        let mut findings = full();
        findings.counters = CounterAccess::Closed;
        findings.disk.free_bytes = Some(1_000_000);
        findings.ncu = Found {
            tool: None,
            rejected: vec![Rejected {
                path: "/usr/bin/ncu".into(),
                why: "it ended with status 127".to_owned(),
            }],
        };
        let checks = checks(&findings, &DoctorProps::default());
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
    fn this_machine_can_be_looked_at() {
        let props = DoctorProps::default();
        let checks = checks(&Findings::here(&props), &props);
        for id in ["driver", "nsys", "ncu", "counters", "cupti", "python", "disk"] {
            assert!(checks.iter().any(|check| check.id == id), "{id}");
        }
    }
}
