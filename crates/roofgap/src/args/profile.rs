//! Arguments of `profile`, `doctor` and `config`.

use super::common::{Composition, Format};
use clap::Subcommand;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Profile {
    #[command(flatten)]
    pub composition: Composition,
    /// Check everything and print the commands without running them
    #[arg(long)]
    pub dry_run: bool,
    /// Output format; json prints the run, its state, what is missing and the paths of its files
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "dry_run")]
    pub format: Format,
    /// Program to profile and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
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
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// List every group and its options
    List {
        /// Folder of presets that override the built-in ones
        #[arg(long, value_name = "DIR")]
        config_dir: Option<PathBuf>,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}
