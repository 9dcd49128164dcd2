//! Python interpreter and package versions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::child::probe;
use crate::command::CommandLine;
use crate::tool::ToolError;

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
const QUERY: &str = r"
import glob, json, os, sys
try:
    from importlib import metadata
except ImportError:
    metadata = None
packages = {}
for name in sys.argv[1:]:
    try:
        packages[name] = metadata.version(name)
    except Exception:
        pass
cupti = []
for folder in sys.path:
    cupti += glob.glob(os.path.join(folder, 'nvidia', '*', 'lib', 'libcupti.so*'))
print(json.dumps({'executable': sys.executable, 'version': '%d.%d.%d' % sys.version_info[:3],
                  'packages': packages, 'cupti': sorted(set(cupti))}))
";

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
