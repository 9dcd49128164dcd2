//! `tune_propose`, `tune_status` and `tune_certificate`: the search of `roofgap tune` on a run. Only its measurements declare a gain.

use super::{Page, State};
use roofgap_analyze::{HashedFile, OutputEffect, Trial, TrialState, TrialVerdict};
use roofgap_base::error::Error;
use roofgap_base::file::{hash_file, sha256, write_atomic};
use roofgap_runs::config::read_space;
use roofgap_runs::run_dir::{Layout, read_trial_file};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Request for a search.
#[derive(Deserialize, JsonSchema)]
pub struct StatusRequest {
    /// A run (id, unique prefix or `latest`) with a search.
    pub input: String,
    #[serde(flatten)]
    pub page: Page,
}

/// A search.
#[derive(Serialize, JsonSchema)]
pub struct TuneAnswer {
    /// The search without its single runs. `tune_status` has a page of its rows; `tune_certificate` those that are kept, and the hashes.
    pub search: Trial,
    /// Number of all rows.
    pub row_count: usize,
    /// Number of all runs.
    pub run_count: usize,
    /// `tune.json` and its hash.
    pub file: HashedFile,
    /// Command that checks it.
    pub verify_command: String,
}

/// A change to propose: one of flag, remove, env and setting.
#[derive(Deserialize, Serialize, JsonSchema)]
pub struct Proposal {
    /// Flag of the program to add, with its dashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
    /// Switch of the program to leave out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<String>,
    /// Environment variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// Key of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// Values to try.
    #[serde(default)]
    pub values: Vec<String>,
    /// Effect on the output: by default none, so that other tokens are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputEffect>,
}

/// Request to try a change.
#[derive(Deserialize, JsonSchema)]
pub struct ProposeRequest {
    /// A run with a search that was started with `--accept-proposals`.
    pub input: String,
    /// The change.
    pub change: Proposal,
}

/// A proposal that the search takes up before its next stage.
#[derive(Serialize, JsonSchema)]
pub struct ProposeAnswer {
    /// File of the proposal.
    pub file: String,
    /// What happens to it.
    pub next: &'static str,
}

/// Answers with the state of a search.
pub fn status(state: &State, request: &StatusRequest) -> Result<TuneAnswer, Error> {
    let mut answer = answer(state, request)?;
    let rows = request.page.of(&answer.search.rows).to_vec();
    answer.search.rows = rows;
    if let Some(search) = &mut answer.search.search {
        search.files.clear();
    }
    Ok(answer)
}

/// Answers with the evidence of a search.
pub fn certificate(state: &State, request: &StatusRequest) -> Result<TuneAnswer, Error> {
    let mut answer = answer(state, request)?;
    answer.search.rows.retain(|row| row.verdict == TrialVerdict::Kept);
    Ok(answer)
}

fn answer(state: &State, request: &StatusRequest) -> Result<TuneAnswer, Error> {
    let (layout, mut trial) = find(state, &request.input)?;
    let path = layout.search();
    let hash = hash_file(&path).map_err(Error::io("read", &path))?;
    let path = path.display().to_string();
    if let Some(search) = &mut trial.search {
        search.candidates.clear();
    }
    Ok(TuneAnswer {
        verify_command: format!("roofgap tune verify {path}"),
        file: HashedFile { path, sha256: hash.sha256 },
        row_count: trial.rows.len(),
        run_count: std::mem::take(&mut trial.runs).len(),
        search: trial,
    })
}

/// Writes a proposal into the folder of the search.
pub fn propose(state: &State, request: &ProposeRequest) -> Result<ProposeAnswer, Error> {
    let (layout, trial) = find(state, &request.input)?;
    let next = match trial.state {
        TrialState::Running => "the search tries it in its next stage; `tune_status` has its row then",
        _ => "the search has ended; `roofgap tune` with the same options continues it",
    };
    if !trial.search.is_some_and(|search| search.accepts_proposals) {
        return Err(Error::new(
            "the search takes no proposals; `roofgap tune --accept-proposals` starts one that does",
        ));
    }
    let text = serde_json::to_string(&[&request.change]).map_err(Error::of)?;
    let folder = layout.proposals();
    let name = sha256(text.as_bytes());
    let file = folder.join(format!("{}.yaml", name.get(..16).unwrap_or(&name)));
    read_space(&text, &file)?;
    let written = std::fs::create_dir_all(&folder).and_then(|()| write_atomic(&file, text.as_bytes()));
    written.map_err(Error::io("write", &file))?;
    Ok(ProposeAnswer { file: file.display().to_string(), next })
}

/// Finds the search of a run.
fn find(state: &State, input: &str) -> Result<(Layout, Trial), Error> {
    let layout = Layout::of(&state.roots.find(input)?);
    let trial = read_trial_file(&layout.search())?.and_then(|mut trials| trials.trials.pop());
    let none = || Error::new(format!("{input} has no search; `roofgap tune {input}` starts one"));
    Ok((layout, trial.ok_or_else(none)?))
}
