//! The run of several nodes: sessions with the same `run.id` and folder become one run.
//!
//! Each session writes a run directory of its own, `ID/nodes/RUN`, so that none can harm another. The one that ends last finds that
//! all others have ended, and makes the run `ID` of all of them. Where a node died, `roofgap report ID` makes it.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use roofgap_base::error::Error;
use roofgap_runs::run_dir::folder::{RunState, cannot_create, run_state};

use super::phases::report::write_reports;
use super::props::SharedRunOutcome;
use roofgap_runs::config::Config;
use roofgap_runs::run_dir::layout::nodes_in;
use roofgap_runs::run_dir::locate;

/// The folder of a run of several nodes.
#[derive(Debug, Clone)]
pub struct SharedRun {
    folder: PathBuf,
}

impl SharedRun {
    /// Returns the shared run of a configuration; `None` for a session of its own.
    pub fn of(config: &Config) -> Option<Self> {
        let id = config.run.id.as_ref()?;
        let base = &config.artifacts.stage2_dir;
        let base = std::path::absolute(base).unwrap_or_else(|_| base.clone());
        Some(SharedRun { folder: base.join(id) })
    }

    /// Returns the folder of the sessions.
    pub fn nodes(&self) -> PathBuf {
        nodes_in(&self.folder)
    }

    /// Creates the folder of the sessions, which only its owner may read.
    pub fn create_nodes(&self) -> Result<PathBuf, Error> {
        let nodes = self.nodes();
        let base = self.folder.parent().unwrap_or(&self.folder);
        let created = std::fs::create_dir_all(base).and_then(|()| {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(&nodes)
        });
        created.map_err(cannot_create(&nodes))?;
        Ok(nodes)
    }

    /// Writes the shared run once all of its sessions have ended. This one has.
    pub fn end(&self) -> SharedRunOutcome {
        let mut outcome = SharedRunOutcome { path: self.folder.clone(), ..SharedRunOutcome::default() };
        if let Err(error) = self.write(&mut outcome) {
            outcome.problems.push(error.to_string());
        }
        outcome
    }

    fn write(&self, outcome: &mut SharedRunOutcome) -> Result<(), Error> {
        let runs = locate::all(&self.nodes())?;
        outcome.nodes = runs.len();
        let under_way = runs.iter().filter(|run| is_under_way(&run.path));
        outcome.under_way = under_way.map(|run| run.id.clone()).collect();
        if outcome.under_way.is_empty() {
            outcome.problems = write_reports(&self.folder)?.unreadable;
        }
        Ok(())
    }
}

fn is_under_way(run: &Path) -> bool {
    run_state(run) == RunState::UnderWay
}
