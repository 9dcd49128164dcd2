//! Errors that end the server.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Error that prevents the server from running.
#[expect(missing_docs, reason = "the messages name the fields")]
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The token file cannot be read or written.
    #[error("cannot {action} the token file {}: {source}", path.display())]
    TokenFile { action: &'static str, path: PathBuf, source: std::io::Error },
    /// The token file can be read by others.
    #[error("the token file {} can be read by others; `chmod 600` it, or delete it to get a new token", path.display())]
    TokenExposed { path: PathBuf },
    /// The token file holds no token.
    #[error("{} holds no token of at least 32 characters without spaces; delete it to get a new one", path.display())]
    TokenMalformed { path: PathBuf },
    /// No random numbers are available.
    #[error("cannot make a token: {0}")]
    Random(String),
    /// The address can be reached from other machines without encryption.
    #[error(
        "{listen} can be reached from other machines, and connections are not encrypted; listen on 127.0.0.1, add --tls-cert and \
         --tls-key, or put a proxy with TLS in front and add --behind-tls-proxy"
    )]
    NotEncrypted { listen: SocketAddr },
    /// A file of the certificate cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    TlsFile { path: PathBuf, source: std::io::Error },
    /// The key can be read by everyone.
    #[error("the key {} can be read by everyone; `chmod 600` it", path.display())]
    TlsKeyExposed { path: PathBuf },
    /// A file holds no certificate or key.
    #[error("{} must hold {wanted}: {why}", path.display())]
    TlsMalformed { path: PathBuf, wanted: &'static str, why: String },
    /// The certificate and the key cannot be used together.
    #[error("cannot use the certificate {} with the key {}: {why}", cert.display(), key.display())]
    Tls { cert: PathBuf, key: PathBuf, why: String },
    /// The names under which the server is reached are unknown.
    #[error("{listen} is every address of this machine; name the host that clients use with --host")]
    NoHost { listen: SocketAddr },
    /// The address is not available.
    #[error("cannot listen on {listen}: {source}")]
    Listen { listen: SocketAddr, source: std::io::Error },
    /// The folder of the queue is not usable.
    #[error("cannot use the folder of the runs {}: {source}", path.display())]
    Runs { path: PathBuf, source: std::io::Error },
    /// The runtime of the server cannot start.
    #[error("cannot start the server: {0}")]
    Runtime(std::io::Error),
}
