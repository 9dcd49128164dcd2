//! An unprofiled run as the baseline instead of running one: `stage1.run_dir`.

use std::path::{Path, PathBuf};

use roofgap_analyze::Analysis;
use roofgap_trace::account::{self, Account};
use serde_json::{Value, json};

/// Where an account lies in the folder of a run, ours or another's.
const ACCOUNTS: [&str; 3] = ["baseline/workload.json", "workload.json", "account.json"];

/// The account in a folder: the file, and its text in our schema.
///
/// A program's own account is taken as it is. A `metrics.json` of ours gives its stage times.
pub(super) fn read(folder: &Path) -> Result<(PathBuf, Account, String), String> {
    let unusable = |path: &Path, why: String| format!("stage1.run_dir: {}: {why}", path.display());
    if let Some(path) = ACCOUNTS
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
    {
        let account = account::read(&path).map_err(|error| format!("stage1.run_dir: {error}"))?;
        let text = std::fs::read_to_string(&path).map_err(|error| unusable(&path, error.to_string()))?;
        return Ok((path, account, text));
    }
    let path = folder.join("metrics.json");
    if !path.is_file() {
        return Err(format!(
            "stage1.run_dir: {} holds neither an account ({}) nor a metrics.json",
            folder.display(),
            ACCOUNTS.join(", ")
        ));
    }
    let text = std::fs::read(&path).map_err(|error| unusable(&path, error.to_string()))?;
    let analysis: Analysis = serde_json::from_slice(&text)
        .map_err(|error| unusable(&path, format!("no {} analysis: {error}", roofgap_analyze::SCHEMA)))?;
    if analysis.stages.is_empty() {
        return Err(unusable(&path, "it has no stages".to_owned()));
    }
    let text = account_of(&analysis).to_string();
    let account = serde_json::from_str(&text).map_err(|error| unusable(&path, error.to_string()))?;
    Ok((path, account, text))
}

/// Mean times of an analysis as one repeat.
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
        assert!(read(folder.path()).unwrap_err().contains("neither an account"));
        let mut decode = Stage::default();
        (decode.name, decode.wall_ns, decode.instances) = ("decode".into(), 300, 3);
        let mut analysis = Analysis::default();
        analysis.stages.push(decode);
        std::fs::write(
            folder.path().join("metrics.json"),
            serde_json::to_vec(&analysis).unwrap(),
        )
        .unwrap();
        let (path, account, _) = read(folder.path()).unwrap();
        assert!(path.ends_with("metrics.json"));
        assert_eq!(account.repeats[0].stages[0].wall_ns, 100);
        std::fs::write(folder.path().join("workload.json"), "{}").unwrap();
        assert!(
            read(folder.path()).unwrap_err().contains("workload.json"),
            "an account comes first, and must be one"
        );
    }
}
