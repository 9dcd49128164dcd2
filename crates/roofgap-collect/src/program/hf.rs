//! A Hugging Face model through the driver.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::setting::Setting;
use crate::command::CommandLine;

/// Where the model comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HfModel {
    /// A local folder with `config.json` and weights.
    Folder(PathBuf),
    /// A `config.json`; the weights are random.
    ConfigJson(PathBuf),
    /// A model type of transformers at its default sizes; the weights are random.
    ModelType(String),
}

/// Where a run under torch.profiler leaves what it saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operators {
    /// An account with operators.
    pub account: PathBuf,
    /// The trace itself (`.json.gz`).
    pub trace: Option<PathBuf>,
}

/// What the driver is told. What is `None` is left to the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HfDriver {
    /// The Python that runs it.
    pub python: PathBuf,
    /// Where the script lies.
    pub script: PathBuf,
    /// The model.
    pub model: HfModel,
    /// Keys of its configuration to set, dots going into parts of it.
    pub set: Vec<(String, String)>,
    /// What to call it.
    pub name: Option<String>,
    /// The revision of its weights.
    pub revision: Option<String>,
    /// The type of its weights.
    pub dtype: Option<String>,
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    pub device: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u32>,
    /// Decode steps.
    pub new_tokens: Option<u32>,
    /// Sequences at once.
    pub batch: Option<u32>,
    /// Measured repeats.
    pub repeats: Option<u32>,
    /// Repeats before them.
    pub warmup: Option<u32>,
    /// Seed of weights, prompt and image.
    pub seed: Option<u64>,
    /// torch.compile for decode.
    pub compile: bool,
    /// Decode as a CUDA graph.
    pub cuda_graphs: bool,
    /// The text of the prompt.
    pub prompt: Option<String>,
    /// `made`, `none`, or a file.
    pub image: Option<String>,
    /// The side of a made image.
    pub image_size: Option<u32>,
    /// Images and prompts.
    pub manifest: Option<PathBuf>,
    /// One repeat under torch.profiler.
    pub operators: Option<Operators>,
    /// Further arguments, as they are.
    pub extra: Vec<String>,
}

impl HfDriver {
    /// A model, with everything else left to the driver.
    pub fn new(python: impl Into<PathBuf>, script: impl Into<PathBuf>, model: HfModel) -> Self {
        HfDriver {
            python: python.into(),
            script: script.into(),
            model,
            set: Vec::new(),
            name: None,
            revision: None,
            dtype: None,
            device: None,
            prompt_tokens: None,
            new_tokens: None,
            batch: None,
            repeats: None,
            warmup: None,
            seed: None,
            compile: false,
            cuda_graphs: false,
            prompt: None,
            image: None,
            image_size: None,
            manifest: None,
            operators: None,
            extra: Vec::new(),
        }
    }

    /// `python3 hf_driver.py --model=... --account=...`
    pub fn command(&self, setting: &Setting) -> CommandLine {
        let number = |value: Option<u64>| value.map(|value| OsString::from(value.to_string()));
        let text = |value: &Option<String>| value.as_ref().map(OsString::from);
        let path = |value: Option<&PathBuf>| value.map(|value| value.clone().into_os_string());
        let (from, model): (&str, &OsStr) = match &self.model {
            HfModel::Folder(folder) => ("--model", folder.as_os_str()),
            HfModel::ConfigJson(file) => ("--config-json", file.as_os_str()),
            HfModel::ModelType(name) => ("--model-type", OsStr::new(name)),
        };
        // `--name=value` throughout: a value may start with a dash.
        let mut line = CommandLine::new(&self.python)
            .arg(&self.script)
            .option(from, model);
        for (key, value) in &self.set {
            line = line.option("--set", format!("{key}={value}"));
        }
        let options = [
            ("--name", text(&self.name)),
            ("--revision", text(&self.revision)),
            ("--dtype", text(&self.dtype)),
            ("--device", text(&self.device)),
            ("--prompt-tokens", number(self.prompt_tokens.map(u64::from))),
            ("--new-tokens", number(self.new_tokens.map(u64::from))),
            ("--batch", number(self.batch.map(u64::from))),
            ("--repeats", number(self.repeats.map(u64::from))),
            ("--warmup", number(self.warmup.map(u64::from))),
            ("--seed", number(self.seed)),
            ("--prompt", text(&self.prompt)),
            ("--image", text(&self.image)),
            ("--image-size", number(self.image_size.map(u64::from))),
            ("--manifest", path(self.manifest.as_ref())),
            (
                "--profile-operators",
                path(self.operators.as_ref().map(|operators| &operators.account)),
            ),
            (
                "--trace-out",
                path(
                    self.operators
                        .as_ref()
                        .and_then(|operators| operators.trace.as_ref()),
                ),
            ),
            ("--account", path(Some(&setting.account))),
        ];
        for (name, value) in options {
            if let Some(value) = value {
                line = line.option(name, value);
            }
        }
        for (name, wanted) in [("--compile", self.compile), ("--cuda-graphs", self.cuda_graphs)] {
            if wanted {
                line = line.arg(name);
            }
        }
        // Output held back in a buffer would be lost when the program is ended from outside.
        setting.apply(
            line.args(self.extra.iter().map(String::as_str))
                .env("PYTHONUNBUFFERED", "1"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::scripts::Scripts;
    use super::super::setting::example;
    use super::*;
    use crate::child::probe;
    use std::time::Duration;

    fn everything(script: PathBuf) -> HfDriver {
        HfDriver {
            set: vec![("text_config.num_hidden_layers".to_owned(), "2".to_owned())],
            name: Some("tiny".to_owned()),
            revision: Some("main".to_owned()),
            dtype: Some("bf16".to_owned()),
            device: Some("cpu".to_owned()),
            prompt_tokens: Some(16),
            new_tokens: Some(4),
            batch: Some(2),
            repeats: Some(1),
            warmup: Some(0),
            seed: Some(7),
            compile: true,
            cuda_graphs: true,
            prompt: Some("-what is this?".to_owned()),
            image: Some("none".to_owned()),
            image_size: Some(64),
            manifest: Some("/no/such/manifest.yaml".into()),
            operators: Some(Operators {
                account: "/x/ops.json".into(),
                trace: Some("/x/t.json.gz".into()),
            }),
            extra: vec!["--attention=eager".to_owned()],
            ..HfDriver::new("python3", script, HfModel::ModelType("llama".to_owned()))
        }
    }

    #[test]
    fn the_least_that_is_said() {
        let line =
            HfDriver::new("python3", "/r/hf_driver.py", HfModel::Folder("/m/a b".into())).command(&example());
        assert_eq!(
            line.argv(),
            [
                "python3",
                "/r/hf_driver.py",
                "--model=/m/a b",
                "--account=/runs/1/baseline/workload.json"
            ]
        );
    }

    #[test]
    fn the_driver_knows_every_option_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let scripts = Scripts::install(folder.path()).unwrap();
        let limit = Duration::from_secs(60);
        if !probe(&CommandLine::new("python3").arg("--version"), limit).is_ok_and(|answer| answer.ok) {
            println!("skipped: no python3");
            return;
        }
        // The missing manifest is found only after all arguments were understood.
        let answer = probe(&everything(scripts.driver).command(&example()), limit).unwrap();
        assert!(
            answer.stderr.contains("no such file: --manifest"),
            "{}",
            answer.text()
        );
    }
}
