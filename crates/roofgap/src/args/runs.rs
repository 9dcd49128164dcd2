//! Arguments of the commands on runs: `runs`, `serve` and `mcp`.

use super::common::{Base, Composition, Format, OneRun};
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct AllRuns {
    #[command(flatten)]
    pub base: Base,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

#[derive(Debug, Subcommand)]
pub enum Runs {
    /// List every run with its model, device, status, stage times and size
    List(AllRuns),
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
        #[arg(long, value_enum, default_value_t)]
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
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Pack what can be shared of a run: reports, results, counters and timelines without host names, user names, home paths and secrets
    Scrub {
        #[command(flatten)]
        run: OneRun,
        /// Archive to write (default: RUN.tar.gz in the current folder)
        #[arg(long, value_name = "FILE")]
        pack: Option<PathBuf>,
    },
}

#[cfg(feature = "mcp")]
#[derive(Debug, clap::Args)]
pub struct Mcp {
    /// Folders whose captures may be read, beside the runs; no other file is (default: the current folder)
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub folders: Vec<PathBuf>,
    #[command(flatten)]
    pub base: Base,
    /// The nsys that exports a .nsys-rep file, if it is not on the PATH
    #[arg(long, value_name = "FILE")]
    pub nsys: Option<PathBuf>,
}

#[cfg(feature = "serve")]
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8791")]
    pub listen: std::net::SocketAddr,
    #[command(flatten)]
    pub base: Base,
    /// File of the token that every request must carry; made if it is missing (default: roofgap/serve-token in the state folder)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Name under which clients reach the server, beside its address; can be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// A proxy in front encrypts the connections; needed for an address that other machines can reach
    #[arg(long)]
    pub behind_tls_proxy: bool,
}
