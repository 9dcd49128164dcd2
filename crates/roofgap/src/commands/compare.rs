//! `roofgap compare`.

use super::analyze::{exporter, given};
use crate::args::{Compare, CompareFormat};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_analyze::compare::{CompareOptions, Gate, Side, SideFacts, compare};
use roofgap_analyze::{Options, StageSet};
use roofgap_report::{compare as print, json, text::TextOptions};
use roofgap_session::inputs::{Exporter, Given, InputError, is_report, load};
use roofgap_session::runs::{LoadedSide, gate_exit, load_side};
use std::path::{Path, PathBuf};

pub(super) fn run(args: Compare, printer: &Printer) -> Result<u8, Failure> {
    let mut gates = Vec::new();
    for limit in &args.fail_on {
        gates.extend(Gate::parse_list(limit)?);
    }
    let given = given(&args.stated)?;
    let sides = [PathBuf::from(&args.before), PathBuf::from(&args.after)];
    let exporter = exporter(&sides, args.nsys)?;
    let side = |wanted: &str| one_side(&args.base.dir, wanted, &given, &exporter);
    let (before, after) = (side(&args.before)?, side(&args.after)?);
    let options = CompareOptions {
        gates,
        ..CompareOptions::default()
    };
    let comparison = compare(as_side(&before), as_side(&after), &options);
    let look = TextOptions {
        color: printer.color(),
        kernels: args.top,
    };
    let answer = match args.format {
        CompareFormat::Text => print::text(&comparison, look),
        CompareFormat::Json => json::pretty(&comparison),
        CompareFormat::Markdown => print::markdown(&comparison),
        CompareFormat::Html => print::html(&comparison),
    };
    printer.answer(&answer).map_err(Failure::Print)?;
    Ok(gate_exit(comparison.verdict()).code())
}

fn as_side(loaded: &LoadedSide) -> Side<'_> {
    Side {
        analysis: &loaded.analysis,
        facts: &loaded.facts,
    }
}

fn one_side(base: &Path, wanted: &str, given: &Given, exporter: &Exporter) -> Result<LoadedSide, Failure> {
    if is_report(Path::new(wanted)) {
        return Ok(LoadedSide {
            analysis: load(&[PathBuf::from(wanted)], given, exporter)?.analysis,
            facts: SideFacts {
                title: wanted.to_owned(),
                ..SideFacts::default()
            },
        });
    }
    let mut stages = StageSet::default();
    for stage in &given.stages {
        stages.set(stage).map_err(InputError::Stage)?;
    }
    let options = Options {
        stages,
        model: given.model.clone(),
        tokens: given.tokens.clone(),
        limits: given.limits,
        ..Options::default()
    };
    Ok(load_side(base, wanted, &options)?)
}
