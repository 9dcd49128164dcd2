//! `roofgap compare`.

use super::analyze::{exporter, given};
use crate::args::{Compare, CompareFormat};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_analyze::compare::{CompareOptions, Gate, Side, compare};
use roofgap_report::{compare as print, text::Look};
use roofgap_session::exit::Exit;
use roofgap_session::load::{LoadedSide, load_side};
use std::path::PathBuf;

pub(super) fn run(args: Compare, printer: &Printer) -> Result<u8, Failure> {
    let mut gates = Vec::new();
    for limit in &args.fail_on {
        gates.extend(Gate::parse_list(limit)?);
    }
    let given = given(&args.stated)?;
    let sides = [PathBuf::from(&args.before), PathBuf::from(&args.after)];
    let exporter = exporter(&sides, args.nsys)?;
    let side = |wanted: &str| load_side(&args.base.dir, wanted, &given, &exporter);
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
    let answer = match args.format {
        CompareFormat::Text => print::text(&comparison, look),
        CompareFormat::Json => print::json(&comparison),
        CompareFormat::Markdown => print::markdown(&comparison),
        CompareFormat::Html => print::html(&comparison),
    };
    printer.answer(&answer).map_err(Failure::Print)?;
    Ok(Exit::from(comparison.verdict()).code())
}

fn as_side(loaded: &LoadedSide) -> Side<'_> {
    Side {
        analysis: &loaded.analysis,
        facts: &loaded.facts,
    }
}
