//! The load on a server: requests, and the lengths of prompts and answers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use roofgap_base::error::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::quantity::{Span, amount};

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
    /// Prompt tokens: 512, 100-900 or lognormal:MEDIAN:SIGMA
    #[arg(long, default_value_t = Load::default().prompt_tokens)]
    pub prompt_tokens: Lengths,
    /// Generated tokens, in the same form
    #[arg(long, default_value_t = Load::default().output_tokens)]
    pub output_tokens: Lengths,
    /// JSONL file of prompts, used in turn: {"prompt": ...}, {"messages": ...} or {"prompt_tokens": N}, with "output_tokens"
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
    /// Random token ids are below this number
    #[arg(long, default_value_t = Load::default().vocabulary)]
    pub vocabulary: u32,
    /// Time limit of one request
    #[arg(long, default_value_t = Load::default().timeout)]
    pub timeout: Span,
    /// Seed of lengths, tokens and arrival times
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

impl Default for Load {
    fn default() -> Self {
        Self {
            model: None,
            concurrency: 8,
            rate: None,
            requests: 64,
            warmup: 8,
            duration: None,
            prompt_tokens: Lengths::Fixed(512),
            output_tokens: Lengths::Fixed(128),
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

/// Number of tokens of prompts or answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lengths {
    /// The same for all requests.
    Fixed(u32),
    /// Even over a span, both ends included.
    Uniform {
        /// Smallest length.
        min: u32,
        /// Largest length.
        max: u32,
    },
    /// Log-normal, as the lengths of real prompts are.
    LogNormal {
        /// Median length.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

/// Forms of a length.
const LENGTHS: &str = "512, 100-900 or lognormal:MEDIAN:SIGMA";

/// Limit of a drawn length, tokens.
const MOST_TOKENS: f64 = 1_000_000.0;

impl Lengths {
    /// Draws a length of at least one token.
    pub fn draw(self, random: &mut fastrand::Rng) -> u32 {
        match self {
            Self::Fixed(length) => length,
            Self::Uniform { min, max } => random.u32(min..=max),
            Self::LogNormal { median, sigma } => {
                // Box-Muller; one minus the number, so that the logarithm is finite.
                let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * random.f64()).cos();
                (median * (sigma * normal).exp()).round().clamp(1.0, MOST_TOKENS) as u32
            }
        }
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(length) => write!(f, "{length}"),
            Self::Uniform { min, max } => write!(f, "{min}-{max}"),
            Self::LogNormal { median, sigma } => write!(f, "lognormal:{median}:{sigma}"),
        }
    }
}

impl FromStr for Lengths {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            if let Some(rest) = text.strip_prefix("lognormal:") {
                let (median, sigma) = rest.split_once(':')?;
                let (median, sigma): (f64, f64) = (median.parse().ok()?, sigma.parse().ok()?);
                let valid = (1.0..=MOST_TOKENS).contains(&median) && (0.0..=10.0).contains(&sigma);
                return valid.then_some(Self::LogNormal { median, sigma });
            }
            let length = |text: &str| {
                let length: u32 = text.trim().parse().ok()?;
                (length > 0).then_some(length)
            };
            match text.split_once('-') {
                Some((min, max)) => {
                    let (min, max) = (length(min)?, length(max)?);
                    (min <= max).then_some(Self::Uniform { min, max })
                }
                None => length(text).map(Self::Fixed),
            }
        };
        parse().ok_or_else(|| Error::new(format!("{text:?} is no length; write {LENGTHS}")))
    }
}

impl Serialize for Lengths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(length) => serializer.serialize_u32(*length),
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Lengths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        amount(deserializer, LENGTHS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_and_written_alike() {
        for text in ["512", "100-900", "lognormal:300:0.7"] {
            assert_eq!(text.parse::<Lengths>().unwrap().to_string(), text);
        }
        for wrong in ["", "0", "-5", "9-3", "0-3", "x", "lognormal:3", "lognormal:0:1", "lognormal:9:NaN"] {
            assert!(wrong.parse::<Lengths>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn drawn_lengths_follow_their_distribution() {
        let mut random = fastrand::Rng::with_seed(1);
        let uniform: Vec<u32> =
            (0..2_000).map(|_| Lengths::Uniform { min: 3, max: 6 }.draw(&mut random)).collect();
        assert_eq!((uniform.iter().min(), uniform.iter().max()), (Some(&3), Some(&6)));
        let lengths = Lengths::LogNormal { median: 300.0, sigma: 0.5 };
        let mut drawn: Vec<u32> = (0..4_001).map(|_| lengths.draw(&mut random)).collect();
        drawn.sort_unstable();
        assert!((270..330).contains(&drawn[2_000]), "median {}", drawn[2_000]);
        // One standard deviation up: 300 * e^0.5 = 495.
        assert!((430..560).contains(&drawn[3_366]), "84th percentile {}", drawn[3_366]);
    }
}
