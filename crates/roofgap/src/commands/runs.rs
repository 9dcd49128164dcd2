//! `roofgap runs`: lists, shows, prunes and scrubs runs.

use super::answer;
use super::signals::cancel_on_signal;
use crate::args::{Composition, OneRun, Runs};
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_record::run::write_reports_with;
use roofgap_runs::config::compose;
use roofgap_runs::runs::{
    PruneProps, artifacts, execute, host_variables, list, merge, plan, resolve, scrub, show, text,
};
use std::path::Path;

pub fn run(args: Runs, dir: &Path, set_dir: Option<&Path>, printer: &Printer) -> Result<Exit, Error> {
    match args {
        Runs::List => answer(&list(dir)?, |runs, screen| text::list(runs, dir, screen), printer),
        Runs::Show(OneRun { run }) => answer(&show(&resolve(dir, &run)?)?, text::show, printer),
        Runs::Artifacts(OneRun { run }) => {
            answer(&artifacts(&resolve(dir, &run)?)?, text::artifacts, printer)
        }
        Runs::Merge { runs, out } => {
            let runs = runs.iter().map(|run| resolve(dir, run));
            let outcome = merge(&runs.collect::<Result<Vec<_>, _>>()?, &out)?;
            let rendered = write_reports_with(&out, &[])?;
            printer.warnings(&rendered.unreadable);
            answer(&outcome, |outcome, _| text::merged(outcome), printer)?;
            Ok(if rendered.unreadable.is_empty() { outcome.exit() } else { Exit::Partial })
        }
        Runs::Prune { dry_run, overrides } => {
            let composition = Composition { overrides, ..Composition::default() };
            let config = compose(&composition.props(&[], set_dir))?.config;
            let plan = plan(&PruneProps {
                base: config.artifacts.stage2_dir,
                keep: config.retention.keep as usize,
                max_run_bytes: config.retention.max_run_bytes.0,
            })?;
            if dry_run {
                return answer(&plan, text::plan, printer);
            }
            let outcome = execute(&plan, &cancel_on_signal()?, &mut |run, step| {
                printer.detail(&format_args!("{run}: {}", step.path.display()));
            });
            answer(&outcome, text::pruned, printer)?;
            Ok(outcome.exit())
        }
        Runs::Scrub { run: OneRun { run }, pack } => {
            let run = resolve(dir, &run)?;
            let pack = pack.unwrap_or_else(|| format!("{}.tar.gz", run.id).into());
            let outcome = scrub(&run, &host_variables(), &pack)?;
            answer(&outcome, text::scrubbed, printer)?;
            Ok(outcome.exit())
        }
    }
}
