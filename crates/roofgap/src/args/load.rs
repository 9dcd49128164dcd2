//! Arguments of `load` and of the embedded model.

use super::common::Format;
use roofgap_base::error::Error;
use roofgap_collect::command::CommandLine;
use roofgap_record::traffic::{LoadProps, PairProps};
use roofgap_runs::config::Span;
use roofgap_runs::config::traffic::Load as LoadOptions;
use std::ffi::OsString;
use std::path::PathBuf;

#[cfg(feature = "embedded")]
#[derive(Debug, clap::Args)]
pub struct Workload {
    #[command(flatten)]
    pub props: roofgap_workload::WorkloadProps,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Debug, clap::Args)]
pub struct Load {
    /// Address of the server
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    pub url: String,
    #[command(flatten)]
    load: LoadOptions,
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
    pub fn props(&self) -> Result<LoadProps, Error> {
        if let Some(rate) = self.load.rate.filter(|rate| !rate.is_finite() || *rate <= 0.0) {
            let why = "requests per second is not a rate; give a number above 0";
            return Err(Error::new(format!("{rate} {why}")));
        }
        let pairs = self.overhead_pairs.map(|pairs| PairProps {
            pairs,
            window: self.overhead_window.0,
            after: self.overhead_after.0,
            control: std::env::temp_dir().join(format!("roofgap-pairs-{}", std::process::id())),
        });
        Ok(LoadProps::new(self.url.clone(), self.load.clone(), pairs))
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
