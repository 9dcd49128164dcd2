//! The Python files inside this binary, written into a run directory.

use std::io;
use std::path::{Path, PathBuf};

use roofgap_base::file::write_atomic;

macro_rules! scripts {
    ($($name:literal,)*) => { &[$(($name, include_str!(concat!("../../python/", $name))),)*] };
}

/// Scripts and their paths. They find each other by these relative paths.
const SCRIPTS: &[(&str, &str)] = scripts![
    "hf_driver.py",
    "hf_common.py",
    "hf_model.py",
    "hf_loop.py",
    "hf_deepseek_ocr.py",
    "roofgap_probe.py",
    "annotate/sitecustomize.py",
    "annotate/roofgap_annotate.py",
    "adapters/roofgap_steps.py",
    "adapters/roofgap_layers.py",
    "adapters/vllm.py",
    "adapters/vllm_offline.py",
    "adapters/vllm_layers.py",
    "adapters/sglang_graphs.py",
    "adapters/sglang.py",
    "adapters/tensorrt_llm.py",
    "adapters/transformers_batching.py",
    "adapters/counters_rank.py",
    "adapters/torch_distributed.py",
];

/// Paths of the written scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scripts {
    /// Driver of Hugging Face models.
    pub driver: PathBuf,
    /// Folder for the `PYTHONPATH` of an annotated program.
    pub annotate: PathBuf,
}

impl Scripts {
    /// Writes the scripts into `folder`. Creates it if it is missing.
    pub fn install(folder: &Path) -> io::Result<Scripts> {
        for (name, text) in SCRIPTS {
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            write_atomic(&path, text.as_bytes())?;
        }
        Ok(Scripts::of(folder))
    }

    /// Returns the paths of scripts in `folder`.
    pub fn of(folder: &Path) -> Scripts {
        Scripts { driver: folder.join("hf_driver.py"), annotate: folder.join("annotate") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::probe;
    use crate::command::CommandLine;
    use crate::program::Annotation;
    use crate::test_support::has_python;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn the_installed_driver_prints_its_help() {
        let folder = tempfile::tempdir().unwrap();
        let scripts = Scripts::install(&folder.path().join("a b")).unwrap();
        if !has_python() {
            return;
        }
        let output = probe(&CommandLine::new("python3").arg(&scripts.driver).arg("--help"), LIMIT).unwrap();
        assert!(output.success && output.stdout.contains("--profile-operators"), "{}", output.text());
    }

    #[test]
    fn a_program_runs_under_annotation_as_without() {
        let folder = tempfile::tempdir().unwrap();
        let scripts = Scripts::install(folder.path()).unwrap();
        if !has_python() {
            return;
        }
        let program = CommandLine::new("python3")
            .args(["-c", "import sys; print('sitecustomize' in sys.modules); sys.exit(5)"]);
        let annotated = Annotation { folder: scripts.annotate, sync: true, inherited: None }.apply(program);
        let output = probe(&annotated, LIMIT).unwrap();
        assert_eq!(
            (output.stdout.trim(), output.ended.as_str()),
            ("True", "ended with status 5"),
            "{}",
            output.stderr
        );
    }
}
