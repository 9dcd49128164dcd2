//! Arguments of the commands that run a program: `profile`, `doctor`, `config`, `try`, `watch`, `capture`, `load`, and of the embedded model.

use super::common::Composition;
use clap::Subcommand;
use roofgap_base::error::Error;
use roofgap_collect::command::CommandLine;
use roofgap_record::run::incident::Triggers;
use roofgap_runs::config::settings::DUTY;
use roofgap_runs::config::{ConfigProps, Span};
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Profile {
    #[command(flatten)]
    pub composition: Composition,
    /// Check everything and print the commands without running them
    #[arg(long)]
    pub dry_run: bool,
    /// Program to profile and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Python of the workload
    #[arg(long, default_value = "python3")]
    pub python: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show every value and its origin
    Show {
        #[command(flatten)]
        composition: Composition,
    },
    /// List every group and its options
    List {
        /// Folder of presets that override the built-in ones
        #[arg(long, value_name = "DIR")]
        config_dir: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
pub struct Try {
    /// Run: an id, a unique prefix of one, a folder, or `latest`
    pub run: String,
    /// Findings of the run, such as launch-bound, or single changes, such as hf.cuda_graphs; by default the first finding with a change
    #[arg(value_name = "CHANGE")]
    pub changes: Vec<String>,
    /// Try an environment variable of the program, as a change of its own
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Fewest pairs of runs of each change; noisy ones run up to four times as often
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub repeats: u32,
    /// Time to spend on runs
    #[arg(long, value_name = "TIME", default_value = "20m")]
    pub budget: Span,
    /// Keep changes that may change the output, such as another dtype
    #[arg(long)]
    pub accept_changed_output: bool,
    /// Start without asking
    #[arg(long)]
    pub yes: bool,
    /// Print the plan and its cost without running anything
    #[arg(long)]
    pub dry_run: bool,
}

/// Parses an environment variable.
fn variable(text: &str) -> Result<(String, String), Error> {
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let pair = text.split_once('=').filter(|(name, _)| is_name(name));
    pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| Error::new("expected NAME=VALUE, with a name of letters, digits and underscores"))
}

#[derive(Debug, clap::Args)]
pub struct Watch {
    /// Record the first 64 steps of a capture and then one of N, 8 in a row; 1 records all (default: 16; 1 with --record)
    #[arg(long, value_name = "N")]
    duty: Option<NonZeroU32>,
    /// Record all the time into a ring, and keep the last seconds as a run when a step is slow or does not end, and on SIGUSR1
    #[arg(long)]
    pub record: bool,
    /// A step is slow that takes this many times as long as others of its kind, for its tokens
    #[arg(long, value_name = "K", default_value_t = 3.0, requires = "record")]
    slow: f64,
    /// A step that is open for this long does not end
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "record")]
    hang: Span,
    /// Log of the program, and a text, such as vllm.log=ERROR; a line with the text is kept
    #[arg(long, value_name = "FILE=TEXT", requires = "record", value_parser = log_line)]
    log: Option<(PathBuf, String)>,
    /// Folder that gets the runs of incidents (default: artifacts.stage2_dir)
    #[arg(long, value_name = "DIR", requires = "record")]
    pub out: Option<PathBuf>,
    /// Program to start and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

impl Watch {
    /// Returns how many steps there are for each that is recorded.
    pub fn duty(&self) -> NonZeroU32 {
        self.duty.unwrap_or(if self.record { NonZeroU32::MIN } else { DUTY })
    }

    /// Returns the moments that are kept.
    pub fn triggers(&self) -> Triggers {
        Triggers { slow: self.slow.max(1.0), hang: self.hang.0, line: self.log.clone() }
    }
}

/// Parses a log and the text in one of its lines.
fn log_line(text: &str) -> Result<(PathBuf, String), Error> {
    let pair = text.split_once('=').filter(|(file, line)| !file.is_empty() && !line.is_empty());
    let pair = pair.map(|(file, line)| (PathBuf::from(file), line.to_owned()));
    pair.ok_or_else(|| Error::new("expected FILE=TEXT"))
}

/// Samples a second of the stacks in a ring.
pub const RING_STACKS_HZ: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

#[derive(Debug, clap::Args)]
pub struct Capture {
    /// Process of a watched program, or `latest`
    #[arg(value_name = "PID")]
    pub process: Option<String>,
    /// Length of the window, such as 5s; with --steps, the longest time to wait for them
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Span>,
    /// Record this many steps of the model instead of a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Sample the stacks of its Python processes, too
    #[arg(long)]
    pub stacks: bool,
    /// Sample the hardware counters of all GPUs, too
    #[arg(long)]
    pub counters: bool,
    /// Folder that gets the run (default: artifacts.stage2_dir)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Capture {
    /// Returns the length of the window.
    pub fn length(&self) -> (Duration, Option<u64>) {
        let time = self.time.map(|span| span.0);
        match self.steps {
            Some(count) => (time.unwrap_or(STEPS_LIMIT), Some(count)),
            None => (time.unwrap_or(DEFAULT_WINDOW), None),
        }
    }
}

/// Samples a second of `--stacks`.
pub const STACKS_HZ: NonZeroU32 = NonZeroU32::MIN.saturating_add(499);

/// Interval of `--counters`, us.
pub const COUNTERS_US: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);

/// Length of a window without `--for`.
const DEFAULT_WINDOW: Duration = Duration::from_secs(5);

/// Time limit of `--steps` without `--for`.
const STEPS_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub struct Load {
    /// Keys of `load` and `server`, such as load.prompt_tokens=512 load.requests=256 server.ready_timeout=20m
    #[arg(value_name = "OVERRIDE")]
    overrides: Vec<String>,
    /// Address of the server (default: http://127.0.0.1:8000)
    #[arg(long)]
    url: Option<String>,
    /// Requests in flight; with --rate, the most in flight (default: 8)
    #[arg(long, value_name = "N")]
    concurrency: Option<String>,
    /// Mean requests per second at random times, instead of a fixed number in flight
    #[arg(long, value_name = "N")]
    rate: Option<String>,
    /// Measured requests (default: 64)
    #[arg(long, value_name = "N")]
    requests: Option<String>,
    /// File for the account of the run (default: $ROOFGAP_WORKLOAD_JSON, if set)
    #[arg(long, value_name = "FILE")]
    account: Option<PathBuf>,
    /// Server to start and its arguments
    #[arg(last = true, value_name = "SERVER")]
    server: Vec<OsString>,
}

impl Load {
    /// Returns the properties of the configuration, in which each option sets its key.
    pub fn props(&self) -> ConfigProps {
        let options = [
            ("server.url", &self.url),
            ("load.concurrency", &self.concurrency),
            ("load.rate", &self.rate),
            ("load.requests", &self.requests),
        ];
        let options =
            options.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?)));
        let overrides = self.overrides.iter().cloned().chain(options).collect();
        ConfigProps { overrides, ..ConfigProps::default() }
    }

    /// Returns the file for the account.
    pub fn account(&self) -> Option<PathBuf> {
        self.account.clone().or_else(account_from_environment)
    }

    /// Returns the command line of the server to start.
    pub fn command(&self) -> Option<CommandLine> {
        let (program, args) = self.server.split_first()?;
        Some(CommandLine::new(program).args(args))
    }
}

/// Returns the file for the account that a session names.
pub fn account_from_environment() -> Option<PathBuf> {
    std::env::var_os("ROOFGAP_WORKLOAD_JSON").map(PathBuf::from)
}
