//! Arguments of `load` and of the embedded model.

use super::common::Format;
use roofgap_base::error::Error;
use roofgap_collect::command::CommandLine;
use roofgap_runs::config::Span;
use std::ffi::OsString;
use std::path::PathBuf;

#[cfg(feature = "embedded")]
#[derive(Debug, clap::Args)]
pub struct Workload {
    /// Size of the model: nano, tiny or small
    #[arg(long, default_value = "tiny")]
    pub preset: roofgap_workload::Preset,
    /// Seed of the weights, the image and the prompt
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Text tokens of the prompt
    #[arg(long, default_value_t = 64)]
    pub prompt_tokens: usize,
    /// Tokens to generate
    #[arg(long, default_value_t = 32)]
    pub new_tokens: usize,
    /// Measured repeats
    #[arg(long, default_value_t = 3)]
    pub repeats: usize,
    /// Warm-up repeats before them
    #[arg(long, default_value_t = 1)]
    pub warmup: usize,
    /// Width and height of the image, pixels
    #[arg(long)]
    pub image_size: Option<usize>,
    /// Threads (default: all processors)
    #[arg(long)]
    pub threads: Option<usize>,
    /// Decode without a KV cache: a deliberately slow path, to try the tool on
    #[arg(long)]
    pub no_kv_cache: bool,
    /// With --no-kv-cache: read only the last N positions again, which changes the output
    #[arg(long, value_name = "N", requires = "no_kv_cache")]
    pub context_limit: Option<usize>,
    /// File for the account of the run (default: $ROOFGAP_WORKLOAD_JSON, if set)
    #[arg(long, value_name = "FILE")]
    pub account: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[cfg(feature = "embedded")]
impl Workload {
    /// Returns the properties of the embedded model's run.
    pub fn props(self) -> roofgap_workload::WorkloadProps {
        let from_environment = || std::env::var_os("ROOFGAP_WORKLOAD_JSON").map(PathBuf::from);
        roofgap_workload::WorkloadProps {
            preset: self.preset,
            seed: self.seed,
            prompt_tokens: self.prompt_tokens,
            new_tokens: self.new_tokens,
            repeats: self.repeats,
            warmup: self.warmup,
            image_size: self.image_size,
            threads: self.threads,
            kv_cache: !self.no_kv_cache,
            context_limit: self.context_limit,
            account: self.account.or_else(from_environment),
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct Load {
    /// Address of the server
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    pub url: String,
    /// Model to ask for (default: the first that the server lists)
    #[arg(long)]
    pub model: Option<String>,
    /// Requests in flight; with --rate, the most in flight
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub concurrency: u32,
    /// Mean requests per second at random times, instead of a fixed number in flight
    #[arg(long)]
    pub rate: Option<f64>,
    /// Measured requests
    #[arg(long, default_value_t = 64)]
    pub requests: u64,
    /// Requests before them that are not measured
    #[arg(long, default_value_t = 8)]
    pub warmup: u64,
    /// Time after which no more requests start, such as 30s or 5m
    #[arg(long)]
    pub duration: Option<Span>,
    /// Prompt tokens: 512, 100-900 or lognormal:MEDIAN:SIGMA
    #[arg(long, default_value = "512")]
    pub prompt_tokens: roofgap_record::traffic::Lengths,
    /// Generated tokens, in the same form
    #[arg(long, default_value = "128")]
    pub output_tokens: roofgap_record::traffic::Lengths,
    /// JSONL file of prompts, used in turn: {"prompt": ...}, {"messages": ...} or {"prompt_tokens": N}, with "output_tokens"
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
    /// Random token ids are below this number
    #[arg(long, default_value_t = 10_000)]
    pub vocabulary: u32,
    /// Time limit of one request
    #[arg(long, default_value = "5m")]
    pub timeout: Span,
    /// Seed of lengths, tokens and arrival times
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Largest time to first token of a good request, such as 0.5s
    #[arg(long)]
    pub good_ttft: Option<Span>,
    /// Largest mean time between tokens of a good request, such as 0.05s
    #[arg(long)]
    pub good_itl: Option<Span>,
    /// Path that answers with status 200 once the server is ready (default: /health, then /v1/models)
    #[arg(long)]
    pub health: Option<String>,
    /// Time limit for the server to get ready
    #[arg(long, default_value = "10m")]
    pub ready_timeout: Span,
    /// Time that the server has to end after SIGINT, and again after SIGTERM, before SIGKILL
    #[arg(long, default_value = "10s")]
    pub grace: Span,
    /// Pairs of windows, with the native collector armed and dormant, that measure its overhead in the server after the load
    #[arg(long, value_name = "N", requires = "server", value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub overhead_pairs: Option<u32>,
    /// Length of such a window
    #[arg(long, default_value = "0.5s")]
    pub overhead_window: Span,
    /// Shortest load after which the overhead is measured
    #[arg(long, default_value = "0s")]
    pub overhead_after: Span,
    /// File for the account of the run (default: $ROOFGAP_WORKLOAD_JSON, if set)
    #[arg(long, value_name = "FILE")]
    account: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Server to start and its arguments
    #[arg(last = true, value_name = "SERVER")]
    server: Vec<OsString>,
}

impl Load {
    /// Returns the properties of the load.
    pub fn props(&self) -> Result<roofgap_record::traffic::LoadProps, Error> {
        let arrivals = match self.rate {
            None => roofgap_record::traffic::Arrivals::Closed { concurrency: self.concurrency },
            Some(rate) if rate > 0.0 && rate.is_finite() => {
                roofgap_record::traffic::Arrivals::Open { rate, most_in_flight: self.concurrency }
            }
            Some(rate) => {
                let why = "requests per second is not a rate; give a number above 0";
                return Err(Error::new(format!("{rate} {why}")));
            }
        };
        Ok(roofgap_record::traffic::LoadProps {
            url: self.url.clone(),
            model: self.model.clone(),
            arrivals,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            prompts: self.prompts.clone(),
            vocabulary: self.vocabulary,
            requests: self.requests,
            warmup: self.warmup,
            duration: self.duration.map(|span| span.0),
            timeout: self.timeout.0,
            seed: self.seed,
            good_ttft: self.good_ttft.map(|span| span.0),
            good_itl: self.good_itl.map(|span| span.0),
            pairs: self.overhead_pairs.map(|pairs| roofgap_record::traffic::PairProps {
                pairs,
                window: self.overhead_window.0,
                after: self.overhead_after.0,
                control: std::env::temp_dir().join(format!("roofgap-pairs-{}", std::process::id())),
            }),
        })
    }

    /// Returns the file for the account.
    pub fn account(&self) -> Option<PathBuf> {
        let from_environment = || std::env::var_os("ROOFGAP_WORKLOAD_JSON").map(PathBuf::from);
        self.account.clone().or_else(from_environment)
    }

    /// Returns the command line of the server to start.
    pub fn command(&self) -> Option<CommandLine> {
        let (program, args) = self.server.split_first()?;
        Some(CommandLine::new(program).args(args))
    }
}
