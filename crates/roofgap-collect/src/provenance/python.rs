//! The Python of a workload and the packages that matter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::child::probe;
use crate::command::CommandLine;

/// A Python and what it can import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// The interpreter itself.
    pub executable: PathBuf,
    /// Its version.
    pub version: String,
    /// The versions of the packages that matter, where they are installed.
    pub packages: BTreeMap<String, String>,
    /// The CUPTI libraries that packages brought along.
    #[serde(default)]
    pub cupti: Vec<PathBuf>,
}

/// Versions come from the packages' own records: importing torch would take seconds and touch the GPU.
const QUESTION: &str = r"
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
    "vllm",
    "sglang",
    "accelerate",
    "bitsandbytes",
    "safetensors",
    "tokenizers",
    "numpy",
    "hydra-core",
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
    /// Asks an interpreter; the error says why there is no answer.
    pub fn ask(interpreter: &Path) -> Result<Python, String> {
        let line = CommandLine::new(interpreter)
            .args(["-c", QUESTION])
            .args(PACKAGES.iter().copied());
        let answer = probe(&line, Duration::from_secs(60)).map_err(|error| error.to_string())?;
        if !answer.ok {
            let last = answer
                .text()
                .trim()
                .lines()
                .next_back()
                .unwrap_or("it says nothing")
                .to_owned();
            return Err(format!("{} {}: {last}", interpreter.display(), answer.how));
        }
        // What a sitecustomize prints comes before.
        let json = answer.stdout.trim().lines().next_back().unwrap_or_default();
        serde_json::from_str(json)
            .map_err(|error| format!("{} answers oddly: {error}", interpreter.display()))
    }

    /// The version of a package, where it is installed.
    pub fn package(&self, name: &str) -> Option<&str> {
        self.packages.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_answers_or_the_reason_is_told() {
        let error = Python::ask(Path::new("/no/such/python")).unwrap_err();
        assert!(error.contains("/no/such/python"), "{error}");
        let error = Python::ask(Path::new("false")).unwrap_err();
        assert!(error.contains("ended with status 1"), "{error}");
        let error = Python::ask(Path::new("echo")).unwrap_err();
        assert!(error.contains("answers oddly"), "{error}");
        match Python::ask(Path::new("python3")) {
            Ok(python) => assert!(python.version.starts_with("3.") && python.executable.is_absolute()),
            Err(why) => println!("skipped: {why}"),
        }
    }
}
