//! Numbers of one run of the program.

use serde::{Deserialize, Serialize};

/// Numbers of one run: a prefill and the decode that follows it, as means over the runs of a capture.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PerRun {
    /// Number of runs.
    pub runs: u64,
    /// Time to first token, ns: prefill and the first step of decode.
    pub ttft_ns: Option<i64>,
    /// Time per generated token, ns: the time of decode divided by its tokens, all sequences together.
    pub token_ns: Option<i64>,
    /// Generated tokens per second of decode, all sequences together.
    pub tokens_per_s: Option<f64>,
}
