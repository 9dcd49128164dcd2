//! `roofgap analyze`: analyses captures.

use super::export::{Exporting, check_outputs};
use super::signals::request_on_signal;
use crate::args::{AnalysisFormat, Analyze};
use crate::printer::Printer;
use crate::reading::{keep_private, with_bar};
use roofgap_analyze::{About, Trials};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::write_atomic;
use roofgap_collect::child::Cancel;
use roofgap_collect::tool::Search;
use roofgap_record::trial;
use roofgap_report::{Bundle, json, markdown};
use roofgap_runs::open::{Exporter, Loaded, Overrides, load};
use roofgap_runs::run_dir::Layout;
use std::path::{Path, PathBuf};

pub fn run(args: Analyze, printer: &Printer) -> Result<Exit, Error> {
    let exporter = exporter(args.nsys.clone());
    let overrides = Overrides { rank: args.rank, ..args.overrides.props()? };
    let selection = args.shown.props()?;
    let exports = args.exports.all();
    check_outputs(args.out.as_deref(), &exports)?;
    keep_private(&args.inputs);
    let loaded = with_bar(&args.inputs, printer, || load(&args.inputs, &overrides, &exporter))?;
    check_stage(args.shown.only.as_deref(), &loaded)?;
    for why in &loaded.unreadable {
        printer.warning(why);
    }
    let missing = missing_stages(&args.overrides.stage, &loaded);
    for why in &missing {
        printer.warning(why);
    }
    let page = match &args.out {
        Some(dir) => Some(write_reports(dir, &loaded, printer)?),
        None => None,
    };
    let job = Exporting { inputs: &args.inputs, loaded: &loaded, overrides: &overrides, exporter: &exporter };
    let exported = job.write_all(&exports, printer);
    let analysis = selection.of(&loaded.analysis);
    let part = Bundle { analysis: &analysis, ..bundle(&loaded) };
    match args.format {
        AnalysisFormat::Text => {
            printer.text(&args.shown.text(&analysis, printer)?)?;
            let trials = loaded.context.trials.as_ref();
            if let Some(trial) = trials.and_then(Trials::latest) {
                let screen = printer.screen();
                let result = trial::text::result(trial, screen);
                printer.text(&format!("\n{}\n{result}", screen.bold("Tried")))?;
            }
            match &page {
                Some(page) => printer.page(page)?,
                None if printer.is_live() => {
                    printer.progress(&"`--full` prints everything; `roofgap INPUT` opens the page");
                }
                None => {}
            }
        }
        AnalysisFormat::Json => printer.document(&json::pretty(&analysis))?,
        AnalysisFormat::Markdown => printer.document(&markdown::report(part))?,
    }
    exported?;
    Ok(if loaded.unreadable.is_empty() && missing.is_empty() { Exit::Done } else { Exit::Partial })
}

/// Checks that the analysis has the stage of `--only`.
fn check_stage(only: Option<&str>, loaded: &Loaded) -> Result<(), Error> {
    let stages = &loaded.analysis.stages;
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
pub fn write_reports(dir: &Path, loaded: &Loaded, printer: &Printer) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(dir).map_err(Error::io("write", dir))?;
    for file in roofgap_report::files(bundle(loaded)) {
        let path = dir.join(file.name);
        write_atomic(&path, &file.bytes).map_err(Error::io("write", &path))?;
        printer.progress(&format_args!("wrote {}", path.display()));
    }
    Ok(Layout::of(dir).page())
}

/// Explains each stage that `--stage` names and that the analysis does not have.
fn missing_stages(requested: &[String], loaded: &Loaded) -> Vec<String> {
    let names = requested.iter().filter_map(|text| text.split_once('=')).map(|(name, _)| name);
    let absent = names.filter(|name| loaded.analysis.stages.iter().all(|stage| stage.name != *name));
    let why = |name: &str| {
        let about = About::Stage(name.to_owned());
        let reasons = &loaded.analysis.reasons;
        let reason = reasons.iter().find(|reason| reason.about == about || reason.about == About::Stages);
        reason.map_or("no range matches it", |reason| &reason.why).to_owned()
    };
    absent.map(|name| format!("no stage {name}: {}", why(name))).collect()
}

/// Finds the nsys that exports reports. Signals are only handled while it runs: otherwise Ctrl-C ends the program at once.
pub fn exporter(nsys: Option<PathBuf>) -> Exporter {
    Exporter { before_export: request_on_signal, ..Exporter::new(Search::from_env(nsys), Cancel::new()) }
}

pub fn bundle(loaded: &Loaded) -> Bundle<'_> {
    Bundle {
        analysis: &loaded.analysis,
        stages: &loaded.stages,
        trace: Some(&loaded.trace),
        context: &loaded.context,
    }
}
