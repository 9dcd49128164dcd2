//! An HTTP server over the folder of the runs.
//!
//! [`serve`] listens until it is cancelled. Sessions are child processes of the server, one at a time, and the state of every run is
//! in its folder, so that a restarted server knows all of them.
//!
//! - `guard`: the bearer token and its file; checks of host, origin and token before every request;
//! - `request`: a request for a run, and its command line;
//! - `queue`: requested sessions, on disk and in order;
//! - `follow`: the events of a session;
//! - `download`: a file of a run, whole or in part, and its hash;
//! - `page`: the list of runs and the progress of a run for a browser;
//! - `handlers`: the operations, as in `openapi.json`;
//! - `listen`: connections and their limits, the certificate and its key.

mod api_error;
mod download;
mod follow;
mod guard;
mod handlers;
mod listen;
mod page;
mod queue;
mod request;

pub use guard::Token;
pub use handlers::OPENAPI;
pub use listen::{Server, serve};

use api_error::ApiError;
use download::Hashes;
use guard::Hosts;
use queue::Queue;
use roofgap_collect::child::Cancel;
use roofgap_collect::tool::Search;
use roofgap_runs::cache::OpenCache;
use roofgap_runs::open::Exporter;
use roofgap_runs::run_dir::folder::RunId;
use roofgap_runs::runs::RunRef;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Windows of timelines that are made at a time. Each takes the memory of its whole trace once more, and a thread while a run is opened.
const WINDOWS: usize = 2;

/// State that all requests share.
pub(crate) type Shared = Arc<AppState>;

/// Settings, queue, opened runs and hashes.
#[derive(Debug)]
pub(crate) struct AppState {
    pub props: ServeProps,
    pub token: Token,
    pub hosts: Hosts,
    pub queue: Arc<Queue>,
    /// Runs whose timeline was asked for.
    pub opened: OpenCache,
    /// Places for requests that make a window of a timeline; further ones wait.
    pub windows: Arc<Semaphore>,
    /// Hashes of the files of runs.
    pub hashes: Arc<Hashes>,
}

impl AppState {
    /// Makes the state of a server that is reached under `hosts`.
    pub fn new(props: ServeProps, hosts: Hosts, queue: Arc<Queue>) -> Shared {
        let exporter = Exporter::new(Search::from_env(None), props.cancel.clone());
        Arc::new(AppState {
            token: props.token.clone(),
            props,
            hosts,
            queue,
            opened: OpenCache::new(exporter),
            windows: Arc::new(Semaphore::new(WINDOWS)),
            hashes: Hashes::new(),
        })
    }

    /// Finds a run by its id, or by that of the request for it. Links are no runs.
    pub fn run(&self, id: &str) -> Result<RunRef, ApiError> {
        let unknown = || ApiError::no_run(id);
        let requested = || self.queue.find(id).and_then(|queued| queued.run_id);
        let run = RunId::parse(id).or_else(|| RunId::parse(&requested()?)).ok_or_else(unknown)?;
        let path = self.props.runs.join(run.as_str());
        if !fs::symlink_metadata(&path).is_ok_and(|facts| facts.is_dir()) {
            return Err(unknown());
        }
        Ok(RunRef { id: run.as_str().to_owned(), path })
    }
}

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
    /// Rights of clients to start programs.
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

/// Rights of clients to start programs.
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
