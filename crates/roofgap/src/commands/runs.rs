//! `roofgap runs`.

use super::config::composed;
use super::profile::cancel;
use crate::args::{Composition, Format, OneRun, Runs};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_session::runs::scrub::HostFacts;
use roofgap_session::runs::{
    PruneProps, ScrubProps, artifacts, execute, list, plan, resolve, scrub, show, text,
};
use serde::Serialize;
use std::path::PathBuf;

pub(super) fn run(args: Runs, printer: &Printer) -> Result<u8, Failure> {
    match args {
        Runs::List { base, format } => {
            let runs = list(&base.dir)?;
            answer(&runs, text::list(&runs), format, printer)?;
            Ok(0)
        }
        Runs::Show(OneRun { run, base, format }) => {
            let details = show(&resolve(&base.dir, &run)?)?;
            answer(&details, text::show(&details), format, printer)?;
            Ok(0)
        }
        Runs::Artifacts(OneRun { run, base, format }) => {
            let files = artifacts(&resolve(&base.dir, &run)?)?;
            answer(&files, text::artifacts(&files), format, printer)?;
            Ok(0)
        }
        Runs::Prune {
            dry_run,
            composition,
            format,
        } => prune(dry_run, composition, format, printer),
        Runs::Scrub { run, pack } => {
            let OneRun { run, base, format } = run;
            let props = ScrubProps {
                host: HostFacts::here(),
                pack,
            };
            let outcome = scrub(&resolve(&base.dir, &run)?, &props)?;
            answer(&outcome, text::scrubbed(&outcome), format, printer)?;
            Ok(outcome.exit().code())
        }
    }
}

fn prune(dry_run: bool, composition: Composition, format: Format, printer: &Printer) -> Result<u8, Failure> {
    let config = composed(composition, Vec::new())?.config;
    let plan = plan(&PruneProps {
        base: PathBuf::from(&config.artifacts.stage2_dir),
        keep: config.retention.keep as usize,
        max_run_bytes: config.retention.max_run_bytes.0,
    })?;
    if dry_run {
        answer(&plan, text::plan(&plan), format, printer)?;
        return Ok(0);
    }
    let outcome = execute(&plan, &cancel()?, &mut |run, deed| {
        printer.detail(&format_args!("{run}: {}", deed.path.display()));
    });
    answer(&outcome, text::pruned(&outcome), format, printer)?;
    Ok(outcome.exit().code())
}

/// Prints a value as JSON, or the text that says the same.
fn answer(value: &impl Serialize, text: String, format: Format, printer: &Printer) -> Result<(), Failure> {
    let answer = match format {
        Format::Text => text,
        Format::Json => {
            let json = serde_json::to_string_pretty(value).map_err(|e| Failure::Bug(e.to_string()))?;
            format!("{json}\n")
        }
    };
    printer.answer(&answer).map_err(Failure::Print)
}
