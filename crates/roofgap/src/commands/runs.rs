//! `roofgap runs`: lists, shows, prunes and scrubs runs.

use super::answer;
use super::signals::cancel_on_signal;
use crate::args::{Base, Composition, Format, OneRun, Runs};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_session::config::compose;
use roofgap_session::exit::Exit;
use roofgap_session::run::write_reports_with;
use roofgap_session::runs::scrub::HostFacts;
use roofgap_session::runs::{
    PruneProps, ScrubProps, artifacts, execute, list, merge, plan, resolve, scrub, show, text,
};
use std::path::{Path, PathBuf};

pub(super) fn run(args: Runs, printer: &Printer) -> Result<Exit, Failure> {
    match args {
        Runs::List { base, format } => {
            answer(&list(&base.dir)?, |runs| text::list(runs), format, printer)?;
        }
        Runs::Show(OneRun { run, base, format }) => {
            answer(&show(&resolve(&base.dir, &run)?)?, text::show, format, printer)?;
        }
        Runs::Artifacts(OneRun { run, base, format }) => {
            let files = artifacts(&resolve(&base.dir, &run)?)?;
            answer(&files, text::artifacts, format, printer)?;
        }
        Runs::Merge {
            runs,
            out,
            base,
            format,
        } => return merge_runs(&runs, &out, &base, format, printer),
        Runs::Prune {
            dry_run,
            dir,
            composition,
            format,
        } => return prune(dry_run, dir, composition, format, printer),
        Runs::Scrub { run, pack, dry_run } => {
            let OneRun { run, base, format } = run;
            let props = ScrubProps {
                host: HostFacts::here(),
                pack,
                dry_run,
            };
            let outcome = scrub(&resolve(&base.dir, &run)?, &props)?;
            answer(&outcome, text::scrubbed, format, printer)?;
            return Ok(outcome.exit());
        }
    }
    Ok(Exit::Done)
}

fn merge_runs(
    runs: &[String],
    out: &Path,
    base: &Base,
    format: Format,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let runs = runs.iter().map(|run| resolve(&base.dir, run));
    let outcome = merge(&runs.collect::<Result<Vec<_>, _>>()?, out)?;
    let rendered = write_reports_with(out, &[])?;
    for why in &rendered.unreadable {
        printer.warning(why);
    }
    answer(&outcome, text::merged, format, printer)?;
    Ok(if rendered.unreadable.is_empty() {
        outcome.exit()
    } else {
        Exit::Partial
    })
}

fn prune(
    dry_run: bool,
    dir: Option<PathBuf>,
    composition: Composition,
    format: Format,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let config = compose(&composition.props(&[]))?.config;
    let plan = plan(&PruneProps {
        base: dir.unwrap_or(config.artifacts.stage2_dir),
        keep: config.retention.keep as usize,
        max_run_bytes: config.retention.max_run_bytes.0,
    })?;
    if dry_run {
        answer(&plan, text::plan, format, printer)?;
        return Ok(Exit::Done);
    }
    let outcome = execute(&plan, &cancel_on_signal()?, &mut |run, step| {
        printer.detail(&format_args!("{run}: {}", step.path.display()));
    });
    answer(&outcome, text::pruned, format, printer)?;
    Ok(outcome.exit())
}
