//! Reads capture files. The format is detected from content.

use std::path::PathBuf;

use roofgap_analyze::{Options, analyze};
use roofgap_report::Context;
use roofgap_trace::Input;

use super::error::LoadError;
use super::loaded::Loaded;
use super::nsys_report::{Export, Exporter};
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
    let options = Options {
        counters: input.counters,
        account: input.account,
        ..overrides.options()?
    };
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
        context: Context {
            title: title.join(", "),
            ..Context::default()
        },
        unreadable: Vec::new(),
    })
}

/// Reads captures; nsys reports are exported first.
pub(super) fn read(paths: &[PathBuf], exporter: &Exporter) -> Result<Input, LoadError> {
    let exports = paths
        .iter()
        .map(|path| Export::of(path, exporter))
        .collect::<Result<Vec<_>, _>>()?;
    let files: Vec<PathBuf> = paths
        .iter()
        .zip(&exports)
        .map(|(path, export)| export.as_ref().map_or(path, |export| &export.sqlite).clone())
        .collect();
    let mut input = roofgap_trace::read(&files)?;
    for export in exports.iter().flatten() {
        export.restore_name(&mut input.trace);
    }
    Ok(input)
}

/// Reads recordings of a session. An unreadable file is reported in `unreadable` and costs only itself.
pub(crate) fn read_each(paths: &[PathBuf], unreadable: &mut Vec<String>) -> Input {
    let (input, errors) = roofgap_trace::read_each(paths);
    unreadable.extend(errors.iter().map(ToString::to_string));
    input
}
