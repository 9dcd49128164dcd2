//! A read-only HTTP server over the folder of the runs: lists, pages, files, comparisons and windows of timelines.
//!
//! [`serve`] listens until it is cancelled. The state of every run is in its folder, so that a restarted server knows all of them.
//!
//! - `guard`: the bearer token and its file; checks of host, origin, token and method before every request;
//! - `download`: a file of a run, whole or in part, and its hash;
//! - `page`: the list of runs and the progress of a run for a browser;
//! - `handlers`: the operations, as in `openapi.json`;
//! - `listen`: connections and their limits.

mod api_error;
mod download;
mod guard;
mod handlers;
mod listen;
mod page;

pub use guard::Token;
pub use handlers::OPENAPI;
pub use listen::{Server, serve};

use api_error::ApiError;
use download::Hashes;
use guard::Hosts;
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

/// Settings, opened runs and hashes.
#[derive(Debug)]
pub(crate) struct AppState {
    pub props: ServeProps,
    pub hosts: Hosts,
    /// Runs whose timeline was asked for.
    pub opened: OpenCache,
    /// Places for requests that make a window of a timeline; further ones wait.
    pub windows: Arc<Semaphore>,
    /// Hashes of the files of runs.
    pub hashes: Arc<Hashes>,
}

impl AppState {
    /// Makes the state of a server that is reached under `hosts`.
    pub fn new(props: ServeProps, hosts: Hosts) -> Shared {
        let exporter = Exporter::new(Search::from_env(None), props.cancel.clone());
        Arc::new(AppState {
            props,
            hosts,
            opened: OpenCache::new(exporter),
            windows: Arc::new(Semaphore::new(WINDOWS)),
            hashes: Hashes::new(),
        })
    }

    /// Finds a run by its id. Links are no runs.
    pub fn run(&self, id: &str) -> Result<RunRef, ApiError> {
        let run = RunId::parse(id).ok_or_else(|| ApiError::no_run(id))?;
        let path = self.props.runs.join(run.as_str());
        if !fs::symlink_metadata(&path).is_ok_and(|facts| facts.is_dir()) {
            return Err(ApiError::no_run(id));
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
    /// True if a proxy in front encrypts the connections. Needed for an address that other machines can reach.
    pub behind_tls_proxy: bool,
    /// Version of roofgap.
    pub version: String,
    /// Limits on clients.
    pub limits: Limits,
    /// Cancellation flag: ends the server.
    pub cancel: Cancel,
}

/// Limits on clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; further ones wait.
    pub connections: usize,
    /// Time for a client to send a request, and to take a part of an answer.
    pub client: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { connections: 256, client: Duration::from_secs(30) }
    }
}
