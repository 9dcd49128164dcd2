//! The load: lengths, arrivals and limits.

use roofgap_runs::config::Span;
use roofgap_runs::config::traffic::{Lengths, Load};
use std::path::PathBuf;
use std::time::Duration;

/// Start of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// A fixed number in flight: the next one starts when one is done.
    Closed {
        /// Requests in flight.
        concurrency: u32,
    },
    /// At random times with a mean rate, whether or not earlier ones are done (Poisson).
    Open {
        /// Mean requests per second.
        rate: f64,
        /// Most requests in flight; later ones wait, and their latency counts the wait.
        most_in_flight: u32,
    },
}

/// The load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadProps {
    /// Address of the server, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// Name of the model; the first that the server lists if `None`.
    pub model: Option<String>,
    /// Start of requests.
    pub arrivals: Arrivals,
    /// Tokens of the prompts.
    pub prompt_tokens: Lengths,
    /// Tokens of the answers.
    pub output_tokens: Lengths,
    /// Prompts of a JSONL file instead of random ones, used in turn.
    pub prompts: Option<PathBuf>,
    /// Random token ids are below this number. Every common vocabulary is larger.
    pub vocabulary: u32,
    /// Measured requests.
    pub requests: u64,
    /// Requests sent before, which are not measured.
    pub warmup: u64,
    /// Time after which no more requests start.
    pub duration: Option<Duration>,
    /// Time limit of one request.
    pub timeout: Duration,
    /// Seed of lengths, tokens and arrival times.
    pub seed: u64,
    /// Largest time to first token of a good request.
    pub good_ttft: Option<Duration>,
    /// Largest mean time between tokens of a good request.
    pub good_itl: Option<Duration>,
    /// Pairs of windows that measure the overhead of the collector in the server, after the load.
    pub pairs: Option<PairProps>,
}

impl LoadProps {
    /// Builds the load on a server from its options. Only a rate above 0 makes an open loop.
    pub fn new(url: String, options: Load, pairs: Option<PairProps>) -> Self {
        let span = |span: Span| span.0;
        Self {
            url,
            arrivals: match options.rate {
                None => Arrivals::Closed { concurrency: options.concurrency },
                Some(rate) => Arrivals::Open { rate, most_in_flight: options.concurrency },
            },
            model: options.model,
            prompt_tokens: options.prompt_tokens,
            output_tokens: options.output_tokens,
            prompts: options.prompts,
            vocabulary: options.vocabulary,
            requests: options.requests,
            warmup: options.warmup,
            duration: options.duration.map(span),
            timeout: options.timeout.0,
            seed: options.seed,
            good_ttft: options.good_ttft.map(span),
            good_itl: options.good_itl.map(span),
            pairs,
        }
    }
}

impl Default for LoadProps {
    fn default() -> Self {
        Self::new("http://127.0.0.1:8000".to_owned(), Load::default(), None)
    }
}

/// Pairs of windows to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct PairProps {
    /// Number of pairs.
    pub pairs: u32,
    /// Length of a window.
    pub window: Duration,
    /// Shortest measured load after which pairs are worth their time.
    pub after: Duration,
    /// Private folder of the control sockets of the server's processes.
    pub control: PathBuf,
}
