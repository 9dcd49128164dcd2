//! `env.json`: everything about where a run was made that a reader may need, and no secret.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::gpu::Gpus;
use super::machine::Machine;
use super::python::Python;
use super::revision::Revision;
use super::variables;
use crate::doctor::{CounterAccess, Findings};
use crate::tool::{Place, Version};

/// A tool that was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolFacts {
    /// The program.
    pub path: PathBuf,
    /// Its version, where it told one.
    pub version: Option<Version>,
    /// How it was come by.
    pub place: Place,
}

/// Where a run was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Environment {
    /// The form of this file.
    pub schema: &'static str,
    /// The version of this program.
    pub roofgap: String,
    /// When this was written (RFC 3339, UTC).
    pub written: String,
    /// The profilers, by name; `null` where there is none.
    pub tools: BTreeMap<&'static str, Option<ToolFacts>>,
    /// The GPUs and the driver; `null` where there are none.
    pub gpu: Option<Gpus>,
    /// Why there are no GPUs.
    pub gpu_reason: Option<String>,
    /// Whether counters may be read.
    pub counters: CounterAccess,
    /// The machine.
    pub machine: Machine,
    /// Python; `null` where there is none.
    pub python: Option<Python>,
    /// Why there is no Python.
    pub python_reason: Option<String>,
    /// The revision of the workload's folder, where it is under git.
    pub workload_revision: Option<Revision>,
    /// Environment variables, by an allow-list.
    pub variables: BTreeMap<String, String>,
}

impl Environment {
    /// Puts together what was found, and asks for the rest. `workload` is the folder the profiled program lives in.
    pub fn of(findings: &Findings, roofgap: &str, workload: &Path) -> Environment {
        let facts = |path: &Path, version: &Option<Version>, place| ToolFacts {
            path: path.to_path_buf(),
            version: version.clone(),
            place,
        };
        let nsys = findings
            .nsys
            .tool
            .as_ref()
            .map(|tool| facts(&tool.path, &tool.version, tool.place));
        let ncu = findings
            .ncu
            .tool
            .as_ref()
            .map(|tool| facts(&tool.path, &tool.version, tool.place));
        Environment {
            schema: "roofgap.env/1",
            roofgap: roofgap.to_owned(),
            written: jiff::Timestamp::now().to_string(),
            tools: BTreeMap::from([("nsys", nsys), ("ncu", ncu)]),
            gpu: findings.gpus.as_ref().ok().cloned(),
            gpu_reason: findings.gpus.as_ref().err().cloned(),
            counters: findings.counters.clone(),
            machine: Machine::here(),
            python: findings.python.as_ref().ok().cloned(),
            python_reason: findings.python.as_ref().err().cloned(),
            workload_revision: Revision::of(workload),
            variables: variables::here(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::DoctorProps;

    #[test]
    fn what_is_missing_is_null_with_a_reason_and_no_secret_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let props = DoctorProps {
            python: "/no/such/python".into(),
            ..DoctorProps::default()
        };
        let json =
            serde_json::to_value(Environment::of(&Findings::here(&props), "0.1.0", folder.path())).unwrap();
        assert_eq!(json["schema"], "roofgap.env/1");
        assert!(json["python"].is_null() && json["python_reason"].is_string());
        assert!(json["workload_revision"].is_null());
        assert!(json["gpu"].is_null() != json["gpu_reason"].is_null());
        let names: Vec<&String> = json["variables"].as_object().unwrap().keys().collect();
        assert!(
            !names.iter().any(|name| *name == "PATH" || *name == "HOME"),
            "{names:?}"
        );
    }
}
