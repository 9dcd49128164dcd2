//! Arguments of `serve` and `mcp`.

use super::common::Base;
#[cfg(feature = "serve")]
use roofgap_serve::Limits;
use std::path::PathBuf;

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
    /// Certificate of the server in PEM form, followed by those that signed it; an address that other machines can reach needs it, or a proxy
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate; refused if everyone can read it
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// A proxy in front encrypts the connections
    #[arg(long)]
    pub behind_tls_proxy: bool,
    /// Let clients start sessions of configured presets
    #[arg(long)]
    pub allow_run: bool,
    /// Let clients start sessions of any command line, and so any program on this machine
    #[arg(long, requires = "allow_run")]
    pub allow_command: bool,
    /// Folder of presets that override the built-in ones
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,
    /// Connections at a time; further ones wait
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub max_connections: usize,
    /// Sessions that may wait for their turn; one runs at a time
    #[arg(long, value_name = "N", default_value_t = Limits::default().queue)]
    pub max_queue: usize,
    /// Seconds for a client to send a request, and to take a part of an answer
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().client.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub client_timeout: u64,
}
