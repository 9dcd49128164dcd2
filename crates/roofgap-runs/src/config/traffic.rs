//! The load on a server.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::quantity::Span;

/// The load on a server: `load` in a configuration, and the options of `roofgap load`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
#[group(skip)]
pub struct Load {
    /// Model to ask for (default: the first that the server lists)
    #[arg(long)]
    pub model: Option<String>,
    /// Requests in flight; with --rate, the most in flight
    #[arg(long, default_value_t = Load::default().concurrency, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub concurrency: u32,
    /// Mean requests per second at random times, instead of a fixed number in flight
    #[arg(long)]
    pub rate: Option<f64>,
    /// Measured requests
    #[arg(long, default_value_t = Load::default().requests)]
    pub requests: u64,
    /// Requests before them that are not measured
    #[arg(long, default_value_t = Load::default().warmup)]
    pub warmup: u64,
    /// Time after which no more requests start, such as 30s or 5m
    #[arg(long)]
    pub duration: Option<Span>,
    /// Tokens of each prompt, which are random
    #[arg(long, default_value_t = Load::default().prompt_tokens)]
    pub prompt_tokens: NonZeroU32,
    /// Generated tokens of each request
    #[arg(long, default_value_t = Load::default().output_tokens)]
    pub output_tokens: NonZeroU32,
    /// JSONL file of prompts, used in turn: {"prompt": ...} or {"messages": ...}, with "output_tokens"
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
    /// Random token ids are below this number
    #[arg(long, default_value_t = Load::default().vocabulary)]
    pub vocabulary: u32,
    /// Time limit of one request
    #[arg(long, default_value_t = Load::default().timeout)]
    pub timeout: Span,
    /// Seed of tokens and arrival times
    #[serde(skip)]
    #[arg(long, default_value_t = Load::default().seed)]
    pub seed: u64,
    /// Largest time to first token of a good request, such as 0.5s
    #[arg(long)]
    pub good_ttft: Option<Span>,
    /// Largest mean time between tokens of a good request, such as 0.05s
    #[arg(long)]
    pub good_itl: Option<Span>,
}

/// Default lengths.
const PROMPT_TOKENS: NonZeroU32 = NonZeroU32::MIN.saturating_add(511);
const OUTPUT_TOKENS: NonZeroU32 = NonZeroU32::MIN.saturating_add(127);

impl Default for Load {
    fn default() -> Self {
        Self {
            model: None,
            concurrency: 8,
            rate: None,
            requests: 64,
            warmup: 8,
            duration: None,
            prompt_tokens: PROMPT_TOKENS,
            output_tokens: OUTPUT_TOKENS,
            prompts: None,
            // Every common vocabulary is larger.
            vocabulary: 10_000,
            timeout: Span(Duration::from_secs(300)),
            seed: 0,
            good_ttft: None,
            good_itl: None,
        }
    }
}
