//! Arguments of several commands.

use clap::ValueEnum;
use roofgap_analyze::Options;
use roofgap_analyze::gpu::{Dtype, UserLimits};
use roofgap_analyze::model::{Architecture, Tokens, preset};
use roofgap_base::clock::ns;
use roofgap_base::error::Error;
use roofgap_collect::command::word_text;
use roofgap_runs::config::{ConfigProps, Span};
use roofgap_runs::open::Overrides as LoadOverrides;
use roofgap_runs::run_dir::default_base;
use std::ffi::OsString;
use std::path::PathBuf;

/// Output format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Tables for people
    #[default]
    Text,
    /// JSON for programs
    Json,
}

/// Facts that override what the inputs say.
#[derive(Debug, clap::Args)]
pub struct AnalysisOverrides {
    // Not a doc comment: rustdoc would read the brackets as a link.
    #[arg(
        long,
        value_name = "NAME=PATTERN",
        help = "Replace or add a stage: its name and its ranges, as [domain@]name, separated by commas"
    )]
    pub stage: Vec<String>,
    /// Time of a step of a stage without the profiler, such as decode=21.3ms; the report then also shows the stage without the
    /// profiler's cost
    #[arg(long, value_name = "STAGE=TIME", value_parser = unprofiled)]
    pub unprofiled: Vec<(String, i64)>,
    /// Model that ran: a preset such as deepseek_ocr, a config.json, or a folder with one
    #[arg(long, value_name = "NAME|config.json")]
    pub model: Option<String>,
    /// Number of ranks that share every layer (tensor parallelism)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tp: Option<u32>,
    /// Number of ranks that the experts of a mixture of experts are divided among (expert parallelism)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ep: Option<u32>,
    /// Number format of weights and matrix products, such as bf16 or fp8; by default that of the model
    #[arg(long)]
    pub dtype: Option<Dtype>,
    /// Prompt tokens, including image tokens
    #[arg(long, value_name = "N")]
    pub prompt_tokens: Option<u64>,
    /// Tokens generated per run
    #[arg(long, value_name = "N")]
    pub new_tokens: Option<u64>,
    /// Image tokens in the prompt
    #[arg(long, value_name = "N")]
    pub vision_tokens: Option<u64>,
    /// Batch size: sequences decoded together
    #[arg(long, value_name = "N")]
    pub batch: Option<u64>,
    /// Dense peak of the GPU, TFLOP/s; replaces the known value
    #[arg(long, value_name = "TFLOPS")]
    pub peak_tflops: Option<f64>,
    /// Memory bandwidth of the GPU, GB/s; replaces the known value
    #[arg(long, value_name = "GBS")]
    pub bandwidth_gbs: Option<f64>,
    /// The nsys that exports a .nsys-rep file, if it is not on the PATH
    #[arg(long, value_name = "FILE")]
    pub nsys: Option<PathBuf>,
}

impl AnalysisOverrides {
    /// Returns the overrides for the loader; reads the model file if one is named.
    pub fn props(&self) -> Result<LoadOverrides, Error> {
        Ok(LoadOverrides {
            stages: self.stage.clone(),
            given: Options {
                model: self.model.as_deref().map(model).transpose()?,
                tokens: Tokens {
                    prompt: self.prompt_tokens,
                    generated: self.new_tokens,
                    batch: self.batch,
                    vision: self.vision_tokens,
                },
                unprofiled: self.unprofiled.clone(),
                tensor_parallel: self.tp,
                expert_parallel: self.ep,
                dtype: self.dtype,
                limits: UserLimits { peak_tflops: self.peak_tflops, bandwidth_gbs: self.bandwidth_gbs },
                ..Options::default()
            },
            ..LoadOverrides::default()
        })
    }
}

/// Reads a stage and the time of its step, ns.
fn unprofiled(text: &str) -> Result<(String, i64), Error> {
    let (stage, span) =
        text.split_once('=').ok_or_else(|| Error::new("write STAGE=TIME, such as decode=21.3ms"))?;
    let Span(span) = span.parse()?;
    if span.is_zero() {
        return Err(Error::new("a step takes more than no time"));
    }
    Ok((stage.to_owned(), ns(span)))
}

/// Returns the model that `--model` names: a preset, or a Hugging Face `config.json`.
fn model(name: &str) -> Result<Architecture, Error> {
    let unknown = match preset(name) {
        Ok(architecture) => return Ok(architecture),
        Err(error) => error,
    };
    let mut path = PathBuf::from(name);
    if path.is_dir() {
        path.push("config.json");
    }
    if !path.is_file() {
        return Err(Error::new(format!("{unknown}, and {name} is not a file")));
    }
    let read = || -> Result<Architecture, Box<dyn std::error::Error>> {
        let config: serde_json::Value = serde_json::from_slice(&roofgap_base::file::read_document(&path)?)?;
        Ok(Architecture::from_config(&config)?)
    };
    read().map_err(|why| {
        Error::new(format!("cannot use {} as a model: {why}", path.display()))
            .with_hint("give the config.json of a Hugging Face model")
    })
}

/// Sources of a configuration.
#[derive(Debug, clap::Args)]
pub struct Composition {
    /// Overrides: group=option, key=value, +key=value, ~key
    #[arg(value_name = "OVERRIDE")]
    pub overrides: Vec<String>,
    /// Folder of presets that override the built-in ones
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,
    /// Resolved configuration, such as the config.yaml of a run
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl Composition {
    /// Returns the properties that a configuration is composed from.
    pub fn props(self, program: &[OsString]) -> ConfigProps {
        ConfigProps {
            config_dir: self.config_dir,
            config: self.config,
            overrides: self.overrides,
            program: program.iter().map(|word| word_text(word)).collect(),
        }
    }
}

/// Folder that contains the runs.
#[derive(Debug, clap::Args)]
pub struct Base {
    /// Folder that contains the runs (default: roofgap-runs, or tmp/stage2 where there is one)
    #[arg(long, value_name = "DIR", default_value_os_t = default_base(), hide_default_value = true)]
    pub dir: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct OneRun {
    /// Run: an id, a unique prefix of one, a folder, or `latest`
    pub run: String,
    #[command(flatten)]
    pub base: Base,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
