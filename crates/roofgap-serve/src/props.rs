//! Settings and limits of the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use roofgap_collect::child::Cancel;

use crate::token::Token;

/// Settings of the server.
#[derive(Debug, Clone)]
pub struct ServeProps {
    /// Folder that contains the runs.
    pub runs: PathBuf,
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Secret that every request must carry.
    pub token: Token,
    /// Names under which clients reach the server, beside its address and `localhost`.
    pub hosts: Vec<String>,
    /// Certificate and key; without them connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// True if a proxy in front encrypts the connections. Needed for an address that other machines can reach
    /// without `tls`.
    pub behind_tls_proxy: bool,
    /// What clients may start.
    pub permissions: Permissions,
    /// Folder of presets that override the built-in ones.
    pub config_dir: Option<PathBuf>,
    /// This program, which runs the sessions.
    pub executable: PathBuf,
    /// Version of roofgap.
    pub version: String,
    /// Limits on clients.
    pub limits: Limits,
    /// Cancellation flag: ends the server, and the session that it runs.
    pub cancel: Cancel,
}

/// Files of a certificate, in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of the server, followed by those that signed it.
    pub cert: PathBuf,
    /// Private key of the certificate, without a password.
    pub key: PathBuf,
}

/// What clients may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Permissions {
    /// Sessions of configured presets.
    pub run: bool,
    /// Sessions of any command line, which is the right to run any program on this machine.
    pub command: bool,
}

/// Limits on clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; further ones wait.
    pub connections: usize,
    /// Sessions that wait for their turn; further requests are refused.
    pub queue: usize,
    /// Size of a request body, bytes.
    pub body_bytes: usize,
    /// Time for a client to send a request, and to take a part of an answer.
    pub client: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { connections: 256, queue: 16, body_bytes: 64 << 10, client: Duration::from_secs(30) }
    }
}
