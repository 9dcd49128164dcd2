//! Load for an OpenAI-compatible server.
//!
//! - `props`: how much load, how long the prompts are, and when requests start
//! - `client`: one streaming request and the times of its tokens
//! - `run`: all requests, in a closed or an open loop
//! - `stats`: percentiles and throughput
//! - `server`: starting a server, waiting until it is ready, stopping it
//! - `account`: the workload account with the requests in it
//! - `metrics`: counters and gauges that a server exports
//! - `pairs`: overhead of the collector in a server
//! - `ratio`: the ratio of times measured in pairs, with its confidence interval

mod account;
mod client;
mod metrics;
mod pairs;
mod prompts;

mod props;
mod ratio;
mod run;
mod server;
mod stats;

pub use account::{server_account_path, write_account};
pub use props::{Arrivals, LoadProps, PairProps};
pub use ratio::PairedRatio;
pub use roofgap_runs::config::traffic::{LengthError, Lengths};
pub use run::{LoadRun, Progress, run};
pub use server::{ServerProps, ServerRun, serve_and_load};
