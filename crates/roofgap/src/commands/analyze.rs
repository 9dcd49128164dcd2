//! `roofgap analyze`: analyses captures. `roofgap compare`: compares two runs or captures.

use super::export::check_folder;
use super::signals::request_on_signal;
use crate::args::{Analyze, Compare, Format};
use crate::printer::Printer;
use crate::reading::open;
use roofgap_analyze::About;
use roofgap_analyze::compare::{Gate, compare};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::write_atomic;
use roofgap_collect::child::Cancel;
use roofgap_collect::tool::Search;
use roofgap_report::{Bundle, compare as render, json, markdown, tried_text};
use roofgap_runs::open::{Exporter, Opened, Overrides, open_side};
use roofgap_runs::run_dir::Layout;
use std::path::{Path, PathBuf};

pub fn run(args: Analyze, printer: &Printer) -> Result<Exit, Error> {
    let exporter = exporter(args.overrides.nsys());
    let mut overrides = Overrides { rank: args.rank, ..args.overrides.props()? };
    overrides.given.unprofiled = args.unprofiled;
    let selection = args.shown.props()?;
    args.out.as_deref().map_or(Ok(()), check_folder)?;
    let opened = open(&args.inputs, &overrides, &exporter, printer)?;
    check_stage(args.shown.only.as_deref(), &opened)?;
    let missing = missing_stages(&args.overrides.stage, &opened);
    printer.warnings(&missing);
    let page = match &args.out {
        Some(dir) => Some(write_reports(dir, &opened, printer)?),
        None => None,
    };
    let analysis = selection.of(&opened.analysis);
    let part = Bundle { analysis: &analysis, ..opened.bundle() };
    match printer.format() {
        Format::Json => printer.document(&json::pretty(&analysis))?,
        Format::Markdown => printer.document(&markdown::report(part))?,
        _ => {
            printer.text(&args.shown.text(&analysis, printer)?)?;
            if let Some(trial) = &opened.context.trial {
                let screen = printer.screen();
                printer.text(&format!("\n{}\n{}", screen.bold("Tried"), tried_text(trial, screen)))?;
            }
            match &page {
                Some(page) => printer.page(page)?,
                None if printer.is_live() => {
                    printer.progress(&"`--full` prints everything; `roofgap INPUT` opens the page");
                }
                None => {}
            }
        }
    }
    Ok(if opened.unreadable.is_empty() && missing.is_empty() { Exit::Done } else { Exit::Partial })
}

/// Checks that the analysis has the stage of `--only`.
fn check_stage(only: Option<&str>, opened: &Opened) -> Result<(), Error> {
    let stages = &opened.analysis.stages;
    match only {
        Some(stage) if stages.iter().all(|known| known.name != stage) => {
            let known: Vec<&str> = stages.iter().map(|known| known.name.as_str()).collect();
            let known = match known.as_slice() {
                [] => "the analysis has no stages".to_owned(),
                known => format!("the stages are {}", known.join(", ")),
            };
            Err(Error::new(format!("no stage {stage}; {known}")))
        }
        _ => Ok(()),
    }
}

/// Writes all reports into a folder and returns the path of the page.
pub fn write_reports(dir: &Path, opened: &Opened, printer: &Printer) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(dir).map_err(Error::io("write", dir))?;
    for file in roofgap_report::files(opened.bundle()) {
        let path = dir.join(file.name);
        write_atomic(&path, &file.bytes).map_err(Error::io("write", &path))?;
        printer.wrote(&path);
    }
    Ok(Layout::of(dir).page())
}

/// Explains each stage that `--stage` names and that the analysis does not have.
fn missing_stages(requested: &[String], opened: &Opened) -> Vec<String> {
    let names = requested.iter().filter_map(|text| text.split_once('=')).map(|(name, _)| name);
    let absent = names.filter(|name| opened.analysis.stages.iter().all(|stage| stage.name != *name));
    let why = |name: &str| {
        let about = About::Stage(name.to_owned());
        let reasons = &opened.analysis.reasons;
        let reason = reasons.iter().find(|reason| reason.about == about || reason.about == About::Stages);
        reason.map_or("no range matches it", |reason| &reason.why).to_owned()
    };
    absent.map(|name| format!("no stage {name}: {}", why(name))).collect()
}

/// Finds the nsys that exports reports. Signals are only handled while it runs: otherwise Ctrl-C ends the program at once.
pub fn exporter(nsys: Option<PathBuf>) -> Exporter {
    Exporter { before_export: request_on_signal, ..Exporter::new(Search::from_env(nsys), Cancel::new()) }
}

/// Compares two runs or captures.
pub fn compare_captures(args: Compare, dir: &Path, printer: &Printer) -> Result<Exit, Error> {
    let mut gates = Vec::new();
    for limit in &args.fail_on {
        gates.extend(Gate::parse_list(limit)?);
    }
    let mut overrides = args.overrides.props()?;
    overrides.given.unprofiled = args.unprofiled;
    let exporter = exporter(args.overrides.nsys());
    let side = |wanted: &str| open_side(dir, wanted, &overrides, &exporter);
    let (before, after) = (side(&args.before)?, side(&args.after)?);
    let comparison = compare(before.as_side(), after.as_side(), &gates);
    let look = printer.text_options(args.top);
    match printer.format() {
        Format::Text => printer.text(&render::text(&comparison, look))?,
        Format::Json => printer.document(&json::pretty(&comparison))?,
        Format::Markdown => printer.document(&render::markdown(&comparison))?,
        Format::Html => {
            let shown = [&before, &after]
                .map(|side| render::Shown { analysis: &side.analysis, page: side.page.as_deref() });
            printer.document(&render::html(&comparison, shown))?;
        }
    }
    Ok(comparison.verdict())
}
