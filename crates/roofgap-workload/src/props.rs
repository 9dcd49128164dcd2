//! Properties of a run, and its progress events.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use roofgap_base::error::Error;

/// A size of the embedded model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Preset {
    /// Smallest that has every part; for tests.
    Nano,
    /// About a quarter of DeepSeek-OCR in every width; a few seconds on two cores.
    #[default]
    Tiny,
    /// About half of DeepSeek-OCR in every width; about a gigabyte of weights.
    Small,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nano => "nano",
            Self::Tiny => "tiny",
            Self::Small => "small",
        })
    }
}

/// Length of a prompt, and whether an image comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptShape {
    /// Text tokens.
    pub tokens: usize,
    /// True for a prompt with an image.
    pub has_image: bool,
}

impl FromStr for PromptShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (tokens, has_image) = match text.strip_suffix("+image") {
            Some(tokens) => (tokens, true),
            None => (text, false),
        };
        let tokens = tokens.parse().map_err(|_| format!("expected TOKENS or TOKENS+image, not {text:?}"))?;
        Ok(Self { tokens, has_image })
    }
}

/// Properties of a run, and the options of `roofgap workload`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct WorkloadProps {
    /// Size of the model: nano, tiny or small
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub preset: Preset,
    /// Seed of the weights, the image and the prompt
    #[arg(long, default_value_t = WorkloadProps::default().seed)]
    pub seed: u64,
    /// Text tokens of the prompt
    #[arg(long, default_value_t = WorkloadProps::default().prompt_tokens)]
    pub prompt_tokens: usize,
    /// Text tokens of one prompt, with +image where an image comes with it; each repeat takes the next, instead of --prompt-tokens
    #[arg(long = "prompt", value_name = "TOKENS[+image]")]
    pub prompts: Vec<PromptShape>,
    /// Tokens to generate
    #[arg(long, default_value_t = WorkloadProps::default().new_tokens)]
    pub new_tokens: usize,
    /// Measured repeats
    #[arg(long, default_value_t = WorkloadProps::default().repeats)]
    pub repeats: usize,
    /// Warm-up repeats before them
    #[arg(long, default_value_t = WorkloadProps::default().warmup)]
    pub warmup: usize,
    /// Width and height of the image, pixels
    #[arg(long)]
    pub image_size: Option<usize>,
    /// Threads (default: all processors)
    #[arg(long)]
    pub threads: Option<usize>,
    /// Decode without a KV cache: a deliberately slow path, to try the tool on
    #[arg(long = "no-kv-cache", action = clap::ArgAction::SetFalse)]
    pub kv_cache: bool,
    /// With --no-kv-cache: read only the last N positions again, which changes the output
    #[arg(long, value_name = "N", requires = "kv_cache")]
    pub context_limit: Option<usize>,
    /// File for the account of the run (default: $ROOFGAP_WORKLOAD_JSON, if set)
    #[arg(long, value_name = "FILE")]
    pub account: Option<PathBuf>,
}

impl Default for WorkloadProps {
    fn default() -> Self {
        Self {
            preset: Preset::default(),
            seed: 0,
            prompt_tokens: 64,
            prompts: Vec::new(),
            new_tokens: 32,
            repeats: 3,
            warmup: 1,
            image_size: None,
            threads: None,
            kv_cache: true,
            context_limit: None,
            account: None,
        }
    }
}

impl WorkloadProps {
    /// Lists the prompts that the repeats take in turn.
    pub(crate) fn prompt_shapes(&self) -> Vec<PromptShape> {
        match self.prompts.as_slice() {
            [] => vec![PromptShape { tokens: self.prompt_tokens, has_image: true }],
            prompts => prompts.to_vec(),
        }
    }

    /// Checks every bound that does not depend on the shape of the model.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let longest = self.prompt_shapes().iter().map(|prompt| prompt.tokens).max().unwrap_or(0);
        let shortest = self.prompt_shapes().iter().map(|prompt| prompt.tokens).min().unwrap_or(0);
        let bounds = [
            ("prompt_tokens", shortest, 1, 8192),
            ("prompt_tokens", longest, 1, 8192),
            ("new_tokens", self.new_tokens, 1, 8192),
            ("repeats", self.repeats, 1, 1000),
            ("warmup", self.warmup, 0, 1000),
            ("threads", self.threads.unwrap_or(1), 1, 4096),
            ("context_limit", self.context_limit.unwrap_or(1), 1, 1 << 20),
        ];
        for (property, value, least, most) in bounds {
            if value < least || value > most {
                return Err(refused(property, value, format!("it must be from {least} to {most}")));
            }
        }
        Ok(())
    }
}

/// Progress of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The run begins: nothing has been allocated yet.
    Started {
        /// Size of the model.
        preset: Preset,
        /// Number of parameters it will have.
        parameters: u64,
        /// Seed of the random weights.
        seed: u64,
        /// Threads in use.
        threads: usize,
    },
    /// The random weights are in memory.
    WeightsReady {
        /// Time, ns.
        wall_ns: i64,
    },
    /// The peak of this machine was measured.
    PeakMeasured {
        /// Arithmetic peak, in operations a second.
        flops_per_s: u64,
        /// Memory bandwidth, in bytes a second.
        bytes_per_s: u64,
    },
    /// One repeat is over.
    RepeatDone {
        /// Counted from 1, warm-ups first.
        index: usize,
        /// All repeats, warm-ups included.
        of: usize,
        /// True for a warm-up.
        warmup: bool,
        /// Wall time of its prefill.
        prefill_ns: i64,
        /// Wall time of its decode.
        decode_ns: i64,
    },
    /// The account was written.
    AccountWritten {
        /// Path.
        path: PathBuf,
    },
}

/// Refuses a value that the model cannot run with.
pub(crate) fn refused(property: &str, value: usize, rule: String) -> Error {
    Error::new(format!("{property} is {value}: {rule}"))
}
