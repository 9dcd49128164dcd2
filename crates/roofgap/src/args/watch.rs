//! Arguments of `watch` and `capture`.

use super::common::Format;
use roofgap_record::run::attach::WindowLength;
use roofgap_runs::config::Span;
use roofgap_runs::config::settings::DUTY;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Watch {
    /// Record the first 64 steps of a capture and then one of N, 8 in a row; 1 records all
    #[arg(long, value_name = "N", default_value_t = DUTY)]
    pub duty: NonZeroU32,
    /// Program to start and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

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
    stacks: bool,
    /// Folder that gets the run (default: artifacts.stage2_dir)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

impl Capture {
    /// Returns how often stacks are sampled, times a second.
    pub fn stacks_hz(&self) -> Option<NonZeroU32> {
        self.stacks.then_some(STACKS_HZ)
    }

    /// Returns the length of the window.
    pub fn length(&self) -> WindowLength {
        let time = self.time.map(|span| span.0);
        match self.steps {
            Some(count) => WindowLength::Steps { count, limit: time.unwrap_or(STEPS_LIMIT) },
            None => WindowLength::Time(time.unwrap_or(DEFAULT_WINDOW)),
        }
    }
}

/// Samples a second of `--stacks`.
const STACKS_HZ: NonZeroU32 = NonZeroU32::MIN.saturating_add(499);

/// Length of a window without `--for`.
const DEFAULT_WINDOW: Duration = Duration::from_secs(5);

/// Time limit of `--steps` without `--for`.
const STEPS_LIMIT: Duration = Duration::from_secs(60);
