//! Arguments of the commands on runs: `runs`, `serve` and `mcp`.

use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct OneRun {
    /// Run: an id, a unique prefix of one, a folder, or `latest`
    pub run: String,
}

#[derive(Debug, Subcommand)]
pub enum Runs {
    /// List every run with its model, device, status, stage times and size
    List,
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
    },
    /// Compress older runs and delete files of large ones that can be regenerated
    Prune {
        /// Print what would be done and how much space it would free
        #[arg(long)]
        dry_run: bool,
        /// Overrides, such as retention.keep=3, retention.max_run_bytes=1GB
        #[arg(value_name = "OVERRIDE")]
        overrides: Vec<String>,
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

#[derive(Debug, clap::Args)]
pub struct Mcp {
    /// Folders whose captures may be read, beside the runs; no other file is (default: the current folder)
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub folders: Vec<PathBuf>,
    /// The nsys that exports a .nsys-rep file, if it is not on the PATH
    #[arg(long, value_name = "FILE")]
    pub nsys: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8791")]
    pub listen: std::net::SocketAddr,
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
