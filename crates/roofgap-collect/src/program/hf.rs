//! A Hugging Face model, run by `hf_driver.py`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::context::ProgramContext;
use crate::command::CommandLine;

/// Source of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HfModel {
    /// A local folder with `config.json` and weights.
    Folder(PathBuf),
    /// A `config.json`, with random weights.
    ConfigJson(PathBuf),
    /// A model type of transformers with default sizes and random weights.
    ModelType(String),
}

/// Output files of a run under torch.profiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorOutputs {
    /// Path of the account with operators.
    pub account: PathBuf,
    /// Path of the trace (`.json.gz`).
    pub trace: Option<PathBuf>,
}

/// Options of the driver. `None` uses the default of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HfDriver {
    /// Python interpreter.
    pub python: PathBuf,
    /// Path of the driver.
    pub script: PathBuf,
    /// Source of the model.
    pub model: HfModel,
    /// Configuration keys to set; dots separate nested keys.
    pub set: Vec<(String, String)>,
    /// Name of the model in reports.
    pub name: Option<String>,
    /// Revision of the weights.
    pub revision: Option<String>,
    /// Data type of the weights.
    pub dtype: Option<String>,
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    pub device: Option<String>,
    /// Prompt tokens.
    pub prompt_tokens: Option<u32>,
    /// Decode steps.
    pub new_tokens: Option<u32>,
    /// Batch size.
    pub batch: Option<u32>,
    /// Measured repeats.
    pub repeats: Option<u32>,
    /// Warm-up repeats.
    pub warmup: Option<u32>,
    /// Seed for weights, prompt and image.
    pub seed: Option<u64>,
    /// Use torch.compile for decode.
    pub compile: bool,
    /// Replay decode as a CUDA graph.
    pub cuda_graphs: bool,
    /// Text of the prompt.
    pub prompt: Option<String>,
    /// `made`, `none`, or the path of an image.
    pub image: Option<String>,
    /// Side of a generated image, pixels.
    pub image_size: Option<u32>,
    /// Manifest of images and prompts.
    pub manifest: Option<PathBuf>,
    /// Profile one repeat with torch.profiler.
    pub operators: Option<OperatorOutputs>,
    /// Further arguments.
    pub extra: Vec<String>,
}

impl HfDriver {
    /// Creates a run of a model with the defaults of the driver.
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

    /// Builds `python3 hf_driver.py --model=... --account=...`.
    pub fn command(&self, context: &ProgramContext) -> CommandLine {
        let number = |value: Option<u64>| value.map(|value| OsString::from(value.to_string()));
        let text = |value: &Option<String>| value.as_ref().map(OsString::from);
        let path = |value: Option<&PathBuf>| value.map(|value| value.clone().into_os_string());
        let (from, model): (&str, &OsStr) = match &self.model {
            HfModel::Folder(folder) => ("--model", folder.as_os_str()),
            HfModel::ConfigJson(file) => ("--config-json", file.as_os_str()),
            HfModel::ModelType(name) => ("--model-type", OsStr::new(name)),
        };
        // Always `--name=value`: a value may start with a dash.
        let mut line = CommandLine::new(&self.python).arg(&self.script).option(from, model);
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
            ("--profile-operators", path(self.operators.as_ref().map(|operators| &operators.account))),
            ("--trace-out", path(self.operators.as_ref().and_then(|operators| operators.trace.as_ref()))),
            ("--account", path(Some(&context.account))),
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
        // Buffered output would be lost when the program is killed.
        context.apply(line.args(self.extra.iter().map(String::as_str)).env("PYTHONUNBUFFERED", "1"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::example;
    use super::super::scripts::Scripts;
    use super::*;
    use crate::child::probe;
    use crate::test_support::has_python;
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
            operators: Some(OperatorOutputs {
                account: "/x/ops.json".into(),
                trace: Some("/x/t.json.gz".into()),
            }),
            extra: vec!["--attention=eager".to_owned()],
            ..HfDriver::new("python3", script, HfModel::ModelType("llama".to_owned()))
        }
    }

    #[test]
    fn the_shortest_command() {
        let line =
            HfDriver::new("python3", "/r/hf_driver.py", HfModel::Folder("/m/a b".into())).command(&example());
        assert_eq!(
            line.argv(),
            ["python3", "/r/hf_driver.py", "--model=/m/a b", "--account=/runs/1/baseline/workload.json"]
        );
    }

    #[test]
    fn the_driver_accepts_every_option() {
        let folder = tempfile::tempdir().unwrap();
        let scripts = Scripts::install(folder.path()).unwrap();
        let limit = Duration::from_secs(60);
        if !has_python() {
            return;
        }
        // The manifest is checked only after all arguments are parsed.
        let output = probe(&everything(scripts.driver).command(&example()), limit).unwrap();
        assert!(output.stderr.contains("no such file: --manifest"), "{}", output.text());
    }
}
