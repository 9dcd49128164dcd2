//! Loads capture files as one analysis.

use std::path::PathBuf;

use roofgap_analyze::{Options, analyze};
use roofgap_report::Context;

use super::error::LoadError;
use super::input::read;
use super::loaded::Loaded;
use super::nsys_report::Exporter;
use super::overrides::Overrides;
use super::ranks;

/// Loads captures as one analysis: one timeline with its counters, or several ranks of a job. An unreadable file is an error, except
/// for one of several ranks.
pub(super) fn load(
    paths: &[PathBuf],
    overrides: &Overrides,
    exporter: &Exporter,
) -> Result<Loaded, LoadError> {
    let files = ranks::expand(paths);
    if let Some(division) = ranks::divide(&files)? {
        return ranks::load(&division, overrides, exporter);
    }
    let input = read(&files, exporter)?;
    let options = Options { counters: input.counters, account: input.account, ..overrides.options()? };
    if let Some(divided) = ranks::load_divided(&input.trace, &options, overrides.rank) {
        return divided;
    }
    if let Some(rank) = overrides.rank {
        let own = input.trace.distributed.as_ref().and_then(|job| job.rank);
        if own != Some(rank) {
            let given = own.into_iter().collect();
            return Err(LoadError::NoRank { rank, given });
        }
    }
    let title: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let analyzed = analyze(&input.trace, &options);
    Ok(Loaded {
        analysis: analyzed.analysis,
        stages: analyzed.stages,
        trace: input.trace,
        context: Context { title: title.join(", "), ..Context::default() },
        unreadable: Vec::new(),
    })
}
