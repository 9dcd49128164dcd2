//! The profiled program as a command line: its environment, annotation of Python, and what a command starts.
//! The Python files that do it are inside this binary and written into a run directory.

use crate::command::CommandLine;
use roofgap_base::file::write_atomic;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Environment of a profiled program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramContext {
    /// Run directory, absolute.
    pub run_dir: PathBuf,
    /// Name of the phase of the session.
    pub phase: &'static str,
    /// Path for the account the program may write.
    pub account: PathBuf,
    /// Working folder; the current one if `None`.
    pub cwd: Option<PathBuf>,
    /// Variables set by the user.
    pub env: Vec<(String, String)>,
}

impl ProgramContext {
    /// Adds the context to a command line. User variables override those of the program, but not the three `ROOFGAP_`
    /// variables.
    pub fn apply(&self, program: CommandLine) -> CommandLine {
        let mut program = program;
        for (name, value) in &self.env {
            program = program.env(name, value);
        }
        program = program
            .env("ROOFGAP_RUN_DIR", &self.run_dir)
            .env("ROOFGAP_PHASE", self.phase)
            .env("ROOFGAP_WORKLOAD_JSON", &self.account);
        match &self.cwd {
            Some(folder) => program.cwd(folder),
            None => program,
        }
    }
}

/// NVTX ranges in an unmodified Python program, from a `sitecustomize` that Python imports at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// Folder of `sitecustomize.py`.
    pub folder: PathBuf,
    /// Wait for the GPU between prefill and decode, so that their times are separate.
    pub sync: bool,
    /// Inherited `PYTHONPATH`.
    pub inherited: Option<OsString>,
}

impl Annotation {
    /// Creates an annotation that keeps the `PYTHONPATH` of this process.
    pub fn from_env(folder: impl Into<PathBuf>, sync: bool) -> Self {
        Self { folder: folder.into(), sync, inherited: std::env::var_os("PYTHONPATH") }
    }

    /// Puts the folder first on the `PYTHONPATH`.
    pub fn apply(&self, program: CommandLine) -> CommandLine {
        let set = program.env_value("PYTHONPATH").map(|value| value.map(OsString::from));
        let rest = set.unwrap_or_else(|| self.inherited.clone()).filter(|path| !path.is_empty());
        let mut path = self.folder.clone().into_os_string();
        if let Some(rest) = rest {
            path.push(":");
            path.push(rest);
        }
        program
            .env("PYTHONPATH", path)
            .env("ROOFGAP_ANNOTATE", "1")
            .env("ROOFGAP_ANNOTATE_SYNC", if self.sync { "1" } else { "0" })
    }
}

/// Commands that start a process for each rank.
const COMMANDS: &[&str] = &["torchrun", "mpirun", "mpiexec", "orterun", "srun", "accelerate", "deepspeed"];

/// Python modules that do, and their names.
const MODULES: &[(&str, &str)] = &[
    ("torch.distributed.run", "torchrun"),
    ("torch.distributed.launch", "torch.distributed.launch"),
    ("accelerate.commands.launch", "accelerate"),
];

/// Returns the launcher that a command starts, such as `torchrun --nproc-per-node=8 ...` or `python3 -m torch.distributed.run ...`.
pub fn launcher(words: &[OsString]) -> Option<&'static str> {
    let program = words.first().and_then(|word| Path::new(word).file_name());
    let command = COMMANDS.iter().find(|known| program.is_some_and(|name| name == **known));
    let module = words.iter().skip_while(|word| *word != "-m").nth(1);
    let by_module = || {
        let known = MODULES.iter().find(|(known, _)| module.is_some_and(|name| name == *known));
        known.map(|(_, name)| *name)
    };
    command.copied().or_else(by_module)
}

macro_rules! scripts {
    ($($name:literal,)*) => { &[$(($name, include_str!(concat!("../python/", $name))),)*] };
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
    "adapters/operators.py",
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
        Ok(Self::in_folder(folder))
    }

    /// Returns the paths of scripts in `folder`.
    pub fn in_folder(folder: &Path) -> Self {
        Self { driver: folder.join("hf_driver.py"), annotate: folder.join("annotate") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::probe;
    use crate::command::CommandLine;
    use crate::program::Annotation;
    use crate::test_support::has_python;
    use std::ffi::OsStr;
    use std::time::Duration;

    fn example() -> ProgramContext {
        ProgramContext {
            run_dir: "/runs/1".into(),
            phase: "baseline",
            account: "/runs/1/baseline/workload.json".into(),
            ..ProgramContext::default()
        }
    }

    #[test]
    fn user_variables_never_replace_those_of_roofgap() {
        let mut context = example();
        context.cwd = Some("/data".into());
        context.env = [("A", "user"), ("ROOFGAP_PHASE", "user")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        let line = context.apply(CommandLine::new("p").env("A", "kind"));
        assert_eq!(
            line.to_string(),
            "cd /data && env A=user ROOFGAP_RUN_DIR=/runs/1 ROOFGAP_PHASE=baseline \
             ROOFGAP_WORKLOAD_JSON=/runs/1/baseline/workload.json p"
        );
    }

    #[test]
    fn python_is_annotated_through_its_path() {
        let annotation =
            Annotation { folder: "/runs/1/annotate".into(), sync: false, inherited: Some("/a:/b".into()) };
        let line = example().apply(annotation.apply(CommandLine::new("bash").arg("serve.sh")));
        assert_eq!(line.argv(), ["bash", "serve.sh"]);
        assert_eq!(line.env_value("PYTHONPATH"), Some(Some(OsStr::new("/runs/1/annotate:/a:/b"))));
        assert_eq!(line.env_value("ROOFGAP_ANNOTATE_SYNC"), Some(Some(OsStr::new("0"))));
    }

    #[test]
    fn a_path_the_program_sets_itself_is_the_one_that_is_chained() {
        let annotation = Annotation { folder: "/f".into(), sync: true, inherited: Some("/inherited".into()) };
        let path =
            |line: CommandLine| annotation.apply(line).env_value("PYTHONPATH").unwrap().unwrap().to_owned();
        assert_eq!(path(CommandLine::new("p")), "/f:/inherited");
        assert_eq!(path(CommandLine::new("p").env("PYTHONPATH", "/own")), "/f:/own");
        assert_eq!(path(CommandLine::new("p").env_remove("PYTHONPATH")), "/f");
        assert_eq!(path(CommandLine::new("p").env("PYTHONPATH", "")), "/f");
    }

    #[test]
    fn launchers_are_known_by_command_and_module() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            launcher(&words)
        };
        assert_eq!(of("/opt/venv/bin/torchrun --nproc-per-node=2 train.py"), Some("torchrun"));
        assert_eq!(of("python3 -m torch.distributed.run train.py"), Some("torchrun"));
        assert_eq!(of("mpirun -n 2 python3 train.py"), Some("mpirun"));
        assert_eq!(of("srun --ntasks=8 python3 train.py"), Some("srun"));
        assert_eq!(of("python3 torchrun.py"), None);
        assert_eq!(of("echo torchrun"), None);
        assert_eq!(launcher(&[]), None);
    }

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
