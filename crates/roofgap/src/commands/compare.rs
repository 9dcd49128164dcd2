//! `roofgap compare`: compares two runs or captures.

use super::analyze::exporter;
use crate::args::{Compare, CompareFormat};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_analyze::compare::{CompareOptions, Gate, Side, SideFacts, compare};
use roofgap_analyze::{Options, StageSet};
use roofgap_report::{compare as render, text::Look};
use roofgap_session::exit::Exit;
use roofgap_session::inputs::{Exporter, Given, InputError, is_report, load};
use roofgap_session::runs::{LoadedSide, gate_exit, load_side};
use std::path::{Path, PathBuf};

pub(super) fn run(args: Compare, printer: &Printer) -> Result<Exit, Failure> {
    let mut gates = Vec::new();
    for limit in &args.fail_on {
        gates.extend(Gate::parse_list(limit)?);
    }
    let overrides = args.overrides.props()?;
    let sides = [PathBuf::from(&args.before), PathBuf::from(&args.after)];
    let exporter = exporter(&sides, args.nsys)?;
    let side = |wanted: &str| load_one(&args.base.dir, wanted, &overrides, &exporter);
    let (before, after) = (side(&args.before)?, side(&args.after)?);
    let options = CompareOptions {
        gates,
        ..CompareOptions::default()
    };
    let comparison = compare(as_side(&before), as_side(&after), &options);
    let look = Look {
        color: printer.color(),
        kernels: args.top,
    };
    match args.format {
        CompareFormat::Text => printer.text(&render::text(&comparison, look))?,
        CompareFormat::Json => printer.document(&render::json(&comparison))?,
        CompareFormat::Markdown => printer.document(&render::markdown(&comparison))?,
        CompareFormat::Html => printer.document(&render::html(&comparison))?,
    }
    Ok(gate_exit(comparison.verdict()))
}

fn as_side(loaded: &LoadedSide) -> Side<'_> {
    Side {
        analysis: &loaded.analysis,
        facts: &loaded.facts,
    }
}

/// Loads one side: a run by name or path, or a capture.
fn load_one(
    base: &Path,
    wanted: &str,
    overrides: &Given,
    exporter: &Exporter,
) -> Result<LoadedSide, Failure> {
    if is_report(Path::new(wanted)) {
        return Ok(LoadedSide {
            analysis: load(&[PathBuf::from(wanted)], overrides, exporter)?.analysis,
            facts: SideFacts {
                title: wanted.to_owned(),
                ..SideFacts::default()
            },
        });
    }
    let mut stages = StageSet::default();
    for stage in &overrides.stages {
        stages.set(stage).map_err(InputError::Stage)?;
    }
    let options = Options {
        stages,
        model: overrides.model.clone(),
        tokens: overrides.tokens.clone(),
        limits: overrides.limits,
        ..Options::default()
    };
    Ok(load_side(base, wanted, &options)?)
}
