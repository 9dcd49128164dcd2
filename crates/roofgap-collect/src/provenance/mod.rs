//! Provenance of a run: machine, git revision, GPUs, Python, environment variables.
//!
//! - `gpu`: GPUs and driver, from `nvidia-smi`

mod gpu;

pub use gpu::{Gpu, Gpus, visible_gpus};

use crate::child::probe;
use crate::command::CommandLine;
use crate::tool::ToolError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The machine of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// CPU model.
    pub cpu: Option<String>,
    /// CPUs available to a program.
    pub cores: Option<usize>,
    /// Memory size, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory limit of the control group, bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Operating system.
    pub os: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// CPU architecture.
    pub arch: String,
    /// Container runtime, if one is detected.
    pub container: Option<String>,
}

impl Machine {
    /// Reads the facts of this machine.
    pub fn current() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let system = rustix::system::uname();
        Self {
            cpu: read("/proc/cpuinfo").and_then(|text| cpu_model(&text)),
            cores: std::thread::available_parallelism().ok().map(std::num::NonZeroUsize::get),
            memory_bytes: read("/proc/meminfo").and_then(|text| memory_total(&text)),
            memory_limit_bytes: read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok()),
            os: read("/etc/os-release").and_then(|text| os_name(&text)),
            kernel: Some(system.release().to_string_lossy().into_owned()),
            arch: std::env::consts::ARCH.to_owned(),
            container: container(),
        }
    }
}

fn cpu_model(text: &str) -> Option<String> {
    let model = text.lines().find(|line| line.starts_with("model name"))?;
    Some(model.split_once(':')?.1.trim().to_owned())
}

fn memory_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn os_name(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn container() -> Option<String> {
    if std::path::Path::new("/.dockerenv").exists() {
        return Some("docker".to_owned());
    }
    if std::path::Path::new("/run/.containerenv").exists() {
        return Some("podman".to_owned());
    }
    std::env::var_os("KUBERNETES_SERVICE_HOST").map(|_| "kubernetes".to_owned())
}

/// Git revision of a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Revision {
    /// Commit hash.
    pub commit: String,
    /// Branch, if one is checked out.
    pub branch: Option<String>,
    /// Tracked files differ from the commit.
    pub modified: bool,
}

impl Revision {
    /// Reads the revision of a folder; `None` outside git, or without git.
    pub fn in_folder(folder: &Path) -> Option<Self> {
        let git = |args: &[&str]| {
            let line = CommandLine::new("git")
                .arg("-C")
                .arg(folder)
                // A query must not write or wait for a lock.
                .arg("--no-optional-locks")
                .args(args.iter().copied())
                .env("GIT_TERMINAL_PROMPT", "0");
            let output = probe(&line, Duration::from_secs(10)).ok()?;
            output.success.then(|| output.stdout.trim().to_owned())
        };
        let commit = git(&["rev-parse", "HEAD"])?;
        let branch = git(&["rev-parse", "--abbrev-ref", "HEAD"]).filter(|name| name != "HEAD");
        let status = git(&["status", "--porcelain", "--untracked-files=no"]);
        Some(Self { commit, branch, modified: status.is_some_and(|text| !text.is_empty()) })
    }
}

#[cfg(test)]
mod revision_tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn clean_modified_and_not_under_git() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Revision::in_folder(folder.path()), None);
        let git = |args: &[&str]| {
            let done = Command::new("git")
                .arg("-C")
                .arg(folder.path())
                .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"])
                .args(args)
                .output();
            done.is_ok_and(|output| output.status.success())
        };
        if !crate::test_support::require("git", git(&["init", "-q", "-b", "main"])) {
            return;
        }
        std::fs::write(folder.path().join("a"), "1").unwrap();
        assert!(git(&["add", "a"]) && git(&["commit", "-q", "-m", "a", "--no-verify"]));
        let clean = Revision::in_folder(folder.path()).unwrap();
        assert_eq!((clean.commit.len(), clean.branch.as_deref(), clean.modified), (40, Some("main"), false));
        std::fs::write(folder.path().join("a"), "2").unwrap();
        assert!(Revision::in_folder(folder.path()).unwrap().modified);
    }
}

/// A Python interpreter and its packages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Python {
    /// Path of the interpreter.
    pub executable: PathBuf,
    /// Python version.
    pub version: String,
    /// Versions of the relevant packages that are installed.
    pub packages: BTreeMap<String, String>,
    /// CUPTI libraries in installed packages.
    pub cupti: Vec<PathBuf>,
}

/// Reads versions from package metadata: importing torch takes seconds and uses the GPU.
const QUERY: &str = include_str!("packages.py");

const PACKAGES: &[&str] = &[
    "torch",
    "transformers",
    "nvtx",
    "triton",
    "flash-attn",
    "xformers",
    "accelerate",
    "bitsandbytes",
    "safetensors",
    "tokenizers",
    "numpy",
    "hydra-core",
    "pillow",
    "pyyaml",
    "sentencepiece",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cublas-cu12",
    "nvidia-cudnn-cu12",
    "nvidia-cuda-cupti-cu12",
    "nvidia-cuda-runtime",
    "nvidia-cublas",
    "nvidia-cudnn-cu13",
    "nvidia-cuda-cupti",
];

impl Python {
    /// Queries an interpreter. `engines` are packages to look for beside the usual ones.
    pub fn query(
        interpreter: &Path,
        engines: impl IntoIterator<Item = &'static str>,
    ) -> Result<Python, ToolError> {
        let line =
            CommandLine::new(interpreter).args(["-c", QUERY]).args(PACKAGES.iter().copied()).args(engines);
        let output = probe(&line, Duration::from_secs(60))?;
        if !output.success {
            let message = output.text().trim().lines().next_back().unwrap_or("no output").to_owned();
            return Err(ToolError(format!("{} {}: {message}", interpreter.display(), output.ended)));
        }
        // A sitecustomize may print other lines first.
        let json = output.stdout.trim().lines().next_back().unwrap_or_default();
        serde_json::from_str(json)
            .map_err(|error| ToolError(format!("unexpected answer from {}: {error}", interpreter.display())))
    }

    /// Returns the version of a package, if it is installed.
    pub fn package(&self, name: &str) -> Option<&str> {
        self.packages.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_out_of_proc() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: AMD EPYC 9654: X\n").as_deref(),
            Some("AMD EPYC 9654: X")
        );
        assert_eq!(memory_total("MemTotal:       131072000 kB\nMemFree: 1 kB\n"), Some(131_072_000 * 1024));
        assert_eq!(os_name("ID=debian\nPRETTY_NAME=\"Debian 13\"\n").as_deref(), Some("Debian 13"));
        assert_eq!((cpu_model(""), memory_total("MemTotal: many"), os_name("")), (None, None, None));
    }

    #[test]
    fn this_machine_has_cores_and_a_kernel() {
        let machine = Machine::current();
        assert!(machine.cores.is_some_and(|cores| cores > 0));
        assert!(machine.kernel.is_some());
    }

    #[test]
    fn an_interpreter_answers_or_fails() {
        let query = |interpreter: &str| Python::query(Path::new(interpreter), []);
        for (interpreter, why) in [
            ("/no/such/python", "cannot start /no/such/python"),
            ("false", "false ended with status 1"),
            ("echo", "unexpected answer from echo"),
        ] {
            let error = query(interpreter).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
        let python = query("python3");
        if crate::test_support::require("python3", python.is_ok()) {
            let python = python.unwrap();
            assert!(python.version.starts_with("3.") && python.executable.is_absolute());
        }
    }
}

/// Variables that affect a workload and hold no secret.
const NAMES: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_CACHE_DISABLE",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "PYTHONHASHSEED",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "CONDA_DEFAULT_ENV",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LANG",
    "LC_ALL",
    "TZ",
];

/// Prefixes of such variables. A name that contains a word of [`SECRET`] is not allowed.
const PREFIXES: &[&str] =
    &["PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "NCCL_", "VLLM_", "NSYS_", "ROOFGAP_", "TRITON_"];

/// Words in the name of a variable that holds a secret.
const SECRET: &[&str] = &[
    "KEY",
    "TOKEN",
    "SECRET",
    "PASS",
    "_PWD",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "PRIVATE",
    "SESSION",
    "URL",
    "URI",
    "ENDPOINT",
    "PROXY",
];

/// Returns the variables of this process that are text.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Returns the variables of this process that may be recorded.
pub fn recorded_variables() -> BTreeMap<String, String> {
    variables().filter(|(name, _)| is_recorded_variable(name)).collect()
}

/// Tells whether a variable may be recorded: any other may be a secret.
pub fn is_recorded_variable(name: &str) -> bool {
    NAMES.contains(&name) || (PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !names_a_secret(name))
}

/// Tells whether the name of a variable has a word of secrets.
pub fn names_a_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRET.iter().any(|word| upper.contains(word))
}

#[cfg(test)]
mod variable_tests {
    use super::*;

    #[test]
    fn only_variables_on_the_list_are_kept() {
        let all = [
            "CUDA_VISIBLE_DEVICES",
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "PATH",
            "HOME",
            "VLLM_API_KEY",
            "VLLM_USE_V1",
            "NCCL_DEBUG",
            "TORCH_HUB_TOKEN",
            "PYTORCH_CUDA_ALLOC_CONF",
            "MY_NCCL_DEBUG",
            "ROOFGAP_PHASE",
        ];
        let kept: Vec<&str> = all.into_iter().filter(|name| is_recorded_variable(name)).collect();
        assert_eq!(
            kept,
            ["CUDA_VISIBLE_DEVICES", "VLLM_USE_V1", "NCCL_DEBUG", "PYTORCH_CUDA_ALLOC_CONF", "ROOFGAP_PHASE"]
        );
    }
}
