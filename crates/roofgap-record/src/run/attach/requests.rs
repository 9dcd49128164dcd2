//! Joins the requests of a load generator with a captured window.

use std::path::Path;

use roofgap_base::file::{read_document, write_atomic};
use roofgap_trace::account::{Account, SCHEMA};

use super::error::AttachError;
use roofgap_runs::open::accounts::account_at;
use roofgap_runs::run_dir::{Layout, PhaseName, SessionRecord};

/// Adds the requests in the account that `roofgap load --account` wrote to a run of `roofgap capture`.
pub fn add_requests(run_dir: &Path, load: &Path) -> Result<(), AttachError> {
    let wrong = |why: String| AttachError::Requests { path: load.to_owned(), why };
    let record = SessionRecord::read(run_dir).map_err(|error| wrong(error.to_string()))?;
    let baseline = record.phase(PhaseName::Baseline);
    if baseline.is_some_and(|phase| phase.requested) {
        return Err(wrong("the run is not one of `roofgap capture`".to_owned()));
    }
    let text = read_document(load).map_err(|error| wrong(error.to_string()))?;
    let account = Account::from_json(&text).map_err(|error| wrong(error.to_string()))?;
    let Some(requests) = account.requests else {
        return Err(wrong(
            "the account has no requests; `roofgap load --account FILE` writes them".to_owned(),
        ));
    };
    let path = Layout::of(run_dir).native_account();
    let joined = Account {
        schema: SCHEMA.to_owned(),
        requests: Some(requests),
        ..account_at(path.clone()).unwrap_or_default()
    };
    let text = joined.to_json().map_err(|error| wrong(error.to_string()))?;
    write_atomic(&path, &text).map_err(|source| AttachError::Write { path, source })
}
