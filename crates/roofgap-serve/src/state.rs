//! State that all requests share.

use std::fs;
use std::sync::Arc;

use roofgap_collect::tool::Search;
use roofgap_runs::cache::LoadCache;
use roofgap_runs::open::Exporter;
use roofgap_runs::run_dir::folder::RunId;
use roofgap_runs::runs::RunRef;
use tokio::sync::Semaphore;

use crate::api_error::ApiError;
use crate::guard::Hosts;
use crate::hashes::Hashes;
use crate::props::ServeProps;
use crate::queue::Queue;
use crate::token::Token;

/// Windows of timelines that are made at a time. Each takes the memory of its whole trace once more, and a thread while a run is loaded.
const WINDOWS: usize = 2;

/// State that all requests share.
pub type Shared = Arc<AppState>;

/// Settings, queue, loaded runs and hashes.
#[derive(Debug)]
pub struct AppState {
    pub props: ServeProps,
    pub token: Token,
    pub hosts: Hosts,
    pub queue: Arc<Queue>,
    /// Runs whose timeline was asked for.
    pub loaded: LoadCache,
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
            loaded: LoadCache::new(exporter),
            windows: Arc::new(Semaphore::new(WINDOWS)),
            hashes: Hashes::new(),
        })
    }

    /// Finds a run by its id, or by that of the job that started it. Links are no runs.
    pub fn run(&self, id: &str) -> Result<RunRef, ApiError> {
        let unknown = || ApiError::NoRun(id.chars().take(100).collect());
        let job = || self.queue.find(id).and_then(|job| job.run_id);
        let run = RunId::parse(id).or_else(|| RunId::parse(&job()?)).ok_or_else(unknown)?;
        let path = self.props.runs.join(run.as_str());
        if !fs::symlink_metadata(&path).is_ok_and(|facts| facts.is_dir()) {
            return Err(unknown());
        }
        Ok(RunRef { id: run.as_str().to_owned(), path })
    }
}
