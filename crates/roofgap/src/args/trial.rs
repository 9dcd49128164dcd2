//! Arguments of `try`.

use super::common::{Base, Format};
use roofgap_base::error::Error;
use roofgap_runs::config::Span;

#[derive(Debug, clap::Args)]
pub struct Try {
    /// Run: an id, a unique prefix of one, a folder, or `latest`; with --history, the folder that contains the runs
    #[arg(required_unless_present = "history")]
    pub run: Option<String>,
    /// Findings of the run, such as launch-bound, or single changes, such as hf.cuda_graphs; by default the first finding with a change
    #[arg(value_name = "FINDING")]
    pub findings: Vec<String>,
    /// Try the changes of every finding
    #[arg(long, conflicts_with = "findings")]
    pub all: bool,
    /// Try an environment variable of the program, as a change of its own
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Time to spend on runs
    #[arg(long, value_name = "TIME", default_value = "20m")]
    pub budget: Span,
    /// Fewest runs of each workload; noisy ones run up to four times as often
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub repeats: u32,
    /// Keep changes that may change the output, such as another dtype
    #[arg(long)]
    pub accept_changed_output: bool,
    /// Start without asking
    #[arg(long)]
    pub yes: bool,
    /// Print the plan and its cost without running anything
    #[arg(long)]
    pub dry_run: bool,
    /// Compare predicted with measured gains of all runs in a folder
    #[arg(long, conflicts_with_all = ["findings", "all", "env", "dry_run", "yes"])]
    pub history: bool,
    #[command(flatten)]
    pub base: Base,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
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
