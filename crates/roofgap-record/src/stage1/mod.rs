//! Stage 1 runners and other Hydra modules: configuring them for a session, and reading what they wrote.
//!
//! - `hydra`: a module, its configuration and its overrides;
//! - `runner`: the output folder of a Stage 1 runner.
//!
//! `read` takes the baseline from an earlier, unprofiled run: `stage1.run_dir`.

mod hydra;
mod runner;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use roofgap_analyze::Analysis;
use roofgap_base::file::{read_document, read_text};
use roofgap_trace::account::{self, Account};
use serde_json::{Value, json};

use roofgap_base::error::Error;

pub(crate) use hydra::configure_module;
pub use hydra::{AcceptedOverrides, ComposedConfig, HydraModule};
pub(crate) use runner::{complete_account, keep_operators, operator_count};

/// Names of an account in the folder of a run.
const ACCOUNTS: [&str; 3] = ["baseline/workload.json", "workload.json", "account.json"];

/// Account of an earlier run.
#[derive(Debug)]
pub(crate) struct Stage1 {
    /// File it was read from.
    pub path: PathBuf,
    /// Account.
    pub account: Account,
    /// Account as JSON.
    pub text: String,
}

/// Reads the account of an earlier run. An account is taken as it is; a `metrics.json` gives its stage times.
pub(crate) fn read(folder: &Path) -> Result<Stage1, Error> {
    let unusable =
        |path: &Path, why: &dyn Display| Error::new(format!("stage1.run_dir: {}: {why}", path.display()));
    let mut accounts = ACCOUNTS.iter().map(|name| folder.join(name));
    if let Some(path) = accounts.find(|path| path.is_file()) {
        let account = account::read(&path).map_err(|error| unusable(&path, &error))?;
        let text = read_text(&path).map_err(|error| unusable(&path, &error))?;
        return Ok(Stage1 { path, account, text });
    }
    if let Some(path) = runner::metrics_file(folder) {
        let account = runner::read(&path).map_err(|error| unusable(&path, &error.why))?;
        let text = account.to_json().map_err(|error| unusable(&path, &error))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        return Ok(Stage1 { path, account, text });
    }
    let path = folder.join("metrics.json");
    if !path.is_file() {
        let why = format!(
            "no account ({}) and no metrics.json, neither there nor in torch_profiler or stage1",
            ACCOUNTS.join(", ")
        );
        return Err(unusable(folder, &why));
    }
    let text = read_document(&path).map_err(|error| unusable(&path, &error))?;
    let analysis: Analysis = serde_json::from_slice(&text)
        .map_err(|error| unusable(&path, &format!("no {} analysis: {error}", roofgap_analyze::SCHEMA)))?;
    if analysis.stages.is_empty() {
        return Err(unusable(&path, &"no stages"));
    }
    let text = account_of(&analysis).to_string();
    let account = serde_json::from_str(&text).map_err(|error| unusable(&path, &error))?;
    Ok(Stage1 { path, account, text })
}

/// Converts the mean times of an analysis to an account with one repeat.
fn account_of(analysis: &Analysis) -> Value {
    let stage = |stage: &roofgap_analyze::Stage| json!({ "name": stage.name, "wall_ns": stage.wall_ns / (stage.instances.max(1) as i64) });
    let stages: Vec<Value> = analysis.stages.iter().map(stage).collect();
    json!({ "schema": account::SCHEMA, "repeats": [{ "warmup": false, "stages": stages }] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::Stage;

    #[test]
    fn an_analysis_gives_its_mean_stage_times() {
        let folder = tempfile::tempdir().unwrap();
        let path_of = |error: Error| {
            let text = error.to_string();
            let path = text.strip_prefix("stage1.run_dir: ").and_then(|rest| rest.split(": ").next());
            PathBuf::from(path.unwrap())
        };
        assert_eq!(path_of(read(folder.path()).unwrap_err()), folder.path());
        let mut decode = Stage::default();
        (decode.name, decode.wall_ns, decode.instances) = ("decode".into(), 300, 3);
        let mut analysis = Analysis::default();
        analysis.stages.push(decode);
        std::fs::write(folder.path().join("metrics.json"), serde_json::to_vec(&analysis).unwrap()).unwrap();
        let Stage1 { path, account, .. } = read(folder.path()).unwrap();
        assert!(path.ends_with("metrics.json"));
        assert_eq!(account.repeats[0].stages[0].wall_ns, 100);
        std::fs::write(folder.path().join("workload.json"), "{}").unwrap();
        assert!(
            path_of(read(folder.path()).unwrap_err()).ends_with("workload.json"),
            "an account comes before metrics.json"
        );
    }
}
