//! The result of a session as JSON, for programs that start one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::props::{JobOutcome, Outcome};
use roofgap_runs::run_dir::SessionState;
use roofgap_runs::run_dir::layout::has_content;

/// Schema of the answer.
pub const SCHEMA: &str = "roofgap.profile/1";

/// Names of the files of an answer, and their paths in the run directory.
const FILES: [(&str, &str); 10] = [
    ("session", "session.json"),
    ("environment", "env.json"),
    ("config", "config.yaml"),
    ("inputs", "inputs.yaml"),
    ("analysis", "metrics.json"),
    ("summary", "stakeholder_summary.md"),
    ("report", "report.md"),
    ("page", "report.html"),
    ("kernels", "kernels.md"),
    ("operators", "operators.md"),
];

/// The result of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileAnswer {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Id of the run.
    pub run_id: String,
    /// Run directory.
    pub path: PathBuf,
    /// State of the session: `done`, `partial`, `failed` or `interrupted`.
    pub state: SessionState,
    /// Exit status.
    pub exit_status: u8,
    /// Requested results that are missing, each with the reason.
    pub missing: Vec<String>,
    /// Files that were written, by name.
    pub files: BTreeMap<&'static str, PathBuf>,
    /// Run of the job of several nodes that the session belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobOutcome>,
}

impl ProfileAnswer {
    /// Builds the answer of a session.
    pub fn of(outcome: &Outcome) -> Self {
        let files = FILES
            .into_iter()
            .map(|(name, file)| (name, outcome.run_dir.join(file)))
            .filter(|(_, path)| has_content(path));
        ProfileAnswer {
            schema: SCHEMA,
            run_id: outcome.record.run_id.clone(),
            path: outcome.run_dir.clone(),
            state: outcome.record.state,
            exit_status: outcome.exit.code(),
            missing: outcome.record.missing.clone(),
            files: files.collect(),
            job: outcome.job.clone(),
        }
    }
}
