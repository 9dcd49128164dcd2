//! Arguments of `runs`.

use super::common::{Base, Composition, Format, OneRun};
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum Runs {
    /// List every run with its model, device, status, stage times and size
    List {
        #[command(flatten)]
        base: Base,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Show one run: its phases, what is missing, what to do first, and the command to repeat it
    Show(OneRun),
    /// List every file of a run with its size and SHA-256
    Artifacts(OneRun),
    /// Merge the runs of several nodes of one job into one run, and write its reports
    Merge {
        /// Runs: ids, unique prefixes of ids, or folders
        #[arg(required = true, value_name = "RUN")]
        runs: Vec<String>,
        /// Folder of the merged run
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        #[command(flatten)]
        base: Base,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Compress older runs and delete files of large ones that can be regenerated
    Prune {
        /// Print what would be done and how much space it would free
        #[arg(long)]
        dry_run: bool,
        /// Folder that contains the runs (default: artifacts.stage2_dir)
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Number of the newest runs to keep whole (default: retention.keep)
        #[arg(long, value_name = "N")]
        keep: Option<usize>,
        /// Overrides such as retention.keep=3, retention.max_run_bytes=1GB, artifacts.stage2_dir=DIR
        #[command(flatten)]
        composition: Composition,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Remove host names, user names, home paths and secrets from the documents and reports of a run
    Scrub {
        #[command(flatten)]
        run: OneRun,
        /// Write an archive to share (.tar.gz): records, configuration, analysis, reports, native captures and counters, without private data
        #[arg(long, value_name = "FILE")]
        pack: Option<PathBuf>,
        /// Also pack this file of the run as it is, such as nsys/run.sqlite, unless a secret is found in it; can be repeated
        #[arg(long, value_name = "PATH", requires = "pack")]
        include: Vec<PathBuf>,
        /// List what would be removed, without a change
        #[arg(long)]
        dry_run: bool,
    },
}
