//! Arguments of several commands.

use clap::ValueEnum;
use roofgap_analyze::Options;
use roofgap_analyze::gpu::Dtype;
use roofgap_analyze::model::{Architecture, preset};
use roofgap_base::clock::ns;
use roofgap_base::error::Error;
use roofgap_collect::command::word_text;
use roofgap_runs::config::{ConfigProps, Span};
use roofgap_runs::open::Overrides as LoadOverrides;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Output format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Tables for people
    #[default]
    Text,
    /// JSON for programs
    Json,
    /// Markdown, of analyze and compare
    Markdown,
    /// A page, of compare
    Html,
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
    /// Model that ran: a preset such as deepseek_ocr, a config.json, or a folder with one
    #[arg(long, value_name = "NAME|config.json")]
    pub model: Option<String>,
    /// Set a fact that the inputs do not tell, by its key: workload.prompt_tokens (with those of images), workload.vision_tokens,
    /// workload.tokens, workload.batch, model.dtype, model.tp, model.ep (ranks that share a layer, or its experts),
    /// hardware.peak_tflops, hardware.bandwidth_gbs, profiling.nsys.path
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = fact)]
    facts: Vec<(String, String)>,
}

impl AnalysisOverrides {
    /// Returns the overrides for the loader; reads the model file if one is named.
    pub fn props(&self) -> Result<LoadOverrides, Error> {
        let mut given =
            Options { model: self.model.as_deref().map(model).transpose()?, ..Options::default() };
        for (key, value) in &self.facts {
            set(&mut given, key, value).map_err(|why| Error::new(format!("--set {key}={value}: {why}")))?;
        }
        Ok(LoadOverrides { stages: self.stage.clone(), given, ..LoadOverrides::default() })
    }

    /// Returns the nsys that exports reports, if one is set.
    pub fn nsys(&self) -> Option<PathBuf> {
        let (_, path) = self.facts.iter().rev().find(|(key, _)| key == NSYS)?;
        Some(PathBuf::from(path))
    }
}

/// Key of the path of nsys.
const NSYS: &str = "profiling.nsys.path";

/// Splits a fact into its key and its value.
fn fact(text: &str) -> Result<(String, String), Error> {
    let (key, value) = text.split_once('=').ok_or_else(|| Error::new("write KEY=VALUE"))?;
    Ok((key.trim_start_matches('+').to_owned(), value.to_owned()))
}

/// Sets a fact by its key in a configuration.
fn set(given: &mut Options, key: &str, value: &str) -> Result<(), Error> {
    let count = || value.parse::<u64>().map_err(|_| Error::new("expected a whole number of 0 or more"));
    let ranks = || match value.parse::<u32>() {
        Ok(ranks) if ranks > 0 => Ok(ranks),
        _ => Err(Error::new("expected a number of ranks")),
    };
    let number = || value.parse::<f64>().map_err(|_| Error::new("expected a number"));
    match key {
        "workload.prompt_tokens" => given.tokens.prompt = Some(count()?),
        "workload.vision_tokens" => given.tokens.vision = Some(count()?),
        "workload.tokens" => given.tokens.generated = Some(count()?),
        "workload.batch" => given.tokens.batch = Some(count()?),
        "model.dtype" => given.dtype = Some(value.parse::<Dtype>().map_err(Error::of)?),
        "model.tp" => given.tensor_parallel = Some(ranks()?),
        "model.ep" => given.expert_parallel = Some(ranks()?),
        "hardware.peak_tflops" => given.limits.peak_tflops = Some(number()?),
        "hardware.bandwidth_gbs" => given.limits.bandwidth_gbs = Some(number()?),
        NSYS => {}
        _ => return Err(Error::new("there is no such fact; `roofgap analyze --help` lists them")),
    }
    Ok(())
}

/// Reads a stage and the time of its step, ns.
pub fn unprofiled(text: &str) -> Result<(String, i64), Error> {
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
#[derive(Debug, Default, clap::Args)]
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
    /// Returns the properties that a configuration is composed from. `dir` is the folder of runs, if `--dir` names one.
    pub fn props(mut self, program: &[OsString], dir: Option<&Path>) -> ConfigProps {
        let dir = dir.map(|dir| serde_json::Value::from(word_text(dir.as_os_str())));
        self.overrides.extend(dir.map(|dir| format!("artifacts.stage2_dir={dir}")));
        ConfigProps {
            config_dir: self.config_dir,
            config: self.config,
            overrides: self.overrides,
            program: program.iter().map(|word| word_text(word)).collect(),
        }
    }
}
