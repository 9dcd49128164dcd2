//! Stand-in programs and sessions of them.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use roofgap_collect::child::Cancel;
use roofgap_collect::tool::ToolError;
use roofgap_record::run::{Outcome, ProfileProps, profile};
use roofgap_runs::config::{ConfigProps, compose};
use roofgap_runs::run_dir::{PhaseName, PhaseStatus, SessionRecord};

/// A program that writes the account that a model would write.
pub(crate) const MODEL: &str = r#"#!/bin/sh
cat > "${ROOFGAP_WORKLOAD_JSON:?}.tmp" <<'JSON'
{"schema": "roofgap.workload/1",
 "model": {"name": "stand-in", "revision": null, "parameters": 1000, "active_parameters": 500, "dtype": "f32", "weights": "random", "config": null},
 "tokens": {"prompt": 8, "generated": 4, "batch": 1, "vision": null},
 "device": {"kind": "cpu", "name": "a CPU"},
 "repeats": [{"warmup": true, "stages": [{"name": "prefill", "wall_ns": 9000000, "steps_ns": null, "notes": []}]},
             {"warmup": false, "stages": [{"name": "prefill", "wall_ns": 5000000, "steps_ns": null, "notes": []},
                                          {"name": "decode", "wall_ns": 8000000, "steps_ns": [2000000, 2000000, 2000000, 2000000], "notes": []}]}],
 "operators": [{"name": "matmul", "stage": "decode", "calls": 4, "self_cpu_ns": 100, "total_cpu_ns": 100, "self_gpu_ns": null, "total_gpu_ns": null}],
 "token_hash": null, "peak": null, "notes": []}
JSON
mv "$ROOFGAP_WORKLOAD_JSON.tmp" "$ROOFGAP_WORKLOAD_JSON"
"#;

/// An nvidia-smi that lists one GPU.
pub(crate) const NVIDIA_SMI: &str = "#!/bin/sh\necho '0, GPU-0, NVIDIA H200, 580.159.04, 9.0, 143771, 4, 700.00, 700.00, 345, 1980, \
                          3201, 3201, 31, 0, Disabled, Enabled, Enabled, Default'\n";

/// A tool of `tests/stand-in`: it plays back a recording of an H200, or fails as the real one does.
pub(crate) fn stand_in(tool: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stand-in").join(tool);
    format!("profiling.{tool}.path='{}'", path.canonicalize().unwrap().display())
}

pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Bench { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A session of a program that ran well, under the stand-ins, with a GPU.
    pub(crate) fn watched(&self, overrides: &[&str]) -> Outcome {
        self.script("bin/nvidia-smi", NVIDIA_SMI);
        let program = self.script("program", MODEL);
        let mut all = vec![stand_in("nsys"), stand_in("ncu")];
        all.extend(overrides.iter().map(|text| (*text).to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.run(&[program.to_str().unwrap()], &all)
    }

    pub(crate) fn props(&self, program: &[&str], overrides: &[&str]) -> ProfileProps {
        let mut all = vec![
            format!("artifacts.stage2_dir='{}'", self.path("runs").display()),
            format!("profiling.nsys.path='{}'", self.path("no/nsys").display()),
            format!("profiling.ncu.path='{}'", self.path("no/ncu").display()),
            "run.grace=200ms".to_owned(),
            // Whoever runs the tests may hide GPUs from them.
            "+workload.env.CUDA_VISIBLE_DEVICES='0'".to_owned(),
        ];
        all.extend(overrides.iter().map(|text| (*text).to_owned()));
        let composed = compose(&ConfigProps {
            overrides: all,
            program: program.iter().map(|word| (*word).to_owned()).collect(),
            ..ConfigProps::default()
        })
        .unwrap();
        ProfileProps {
            composed,
            command_line: vec!["roofgap".to_owned(), "profile".to_owned()],
            executable: self.script("model", MODEL),
            version: "0.0.0-test".to_owned(),
            search_path: vec![self.path("bin"), "/usr/local/bin".into(), "/usr/bin".into(), "/bin".into()],
            native: Err(ToolError(
                "the native collector is not available: not part of this build".to_owned(),
            )),
        }
    }

    pub(crate) fn run(&self, program: &[&str], overrides: &[&str]) -> Outcome {
        profile(&self.props(program, overrides), &Cancel::new(), &mut |_| {}).unwrap()
    }
}

pub(crate) fn status(outcome: &Outcome, phase: PhaseName) -> &PhaseStatus {
    &outcome.record.phase(phase).unwrap().status
}

pub(crate) fn why(outcome: &Outcome, phase: PhaseName) -> &str {
    status(outcome, phase).why().unwrap_or("")
}

pub(crate) fn notes(outcome: &Outcome, phase: PhaseName) -> String {
    outcome.record.phase(phase).unwrap().notes.join("\n")
}

/// Checks the files that every run has.
pub(crate) fn is_whole(outcome: &Outcome) {
    for name in [
        "session.json",
        "env.json",
        "config.yaml",
        "inputs.yaml",
        "metrics.json",
        "kernels.md",
        "operators.md",
        "report.md",
        "stakeholder_summary.md",
    ] {
        let facts = std::fs::metadata(outcome.run_dir.join(name)).unwrap_or_else(|_| panic!("no {name}"));
        assert!(facts.len() > 0, "{name} is empty");
    }
    let on_disk = SessionRecord::read(&outcome.run_dir).unwrap();
    assert_eq!(on_disk, outcome.record);
    assert_eq!(on_disk.exit_status, Some(outcome.exit.code()));
    let leftover = std::fs::read_dir(&outcome.run_dir).unwrap().flatten().find(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.ends_with(".tmp") || name == ".running.json"
    });
    assert!(leftover.is_none(), "{leftover:?}");
}

pub(crate) fn json(outcome: &Outcome, name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(outcome.run_dir.join(name)).unwrap()).unwrap()
}
