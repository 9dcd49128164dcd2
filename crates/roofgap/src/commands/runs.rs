//! `roofgap runs`: lists, shows, prunes and scrubs runs.

use super::answer;
use super::signals::cancel_on_signal;
use crate::args::{AllRuns, OneRun, Runs};
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_record::run::write_reports_with;
use roofgap_runs::config::compose;
use roofgap_runs::runs::{
    PruneProps, artifacts, execute, host_variables, list, merge, plan, resolve, scrub, show, text,
};

pub fn run(args: Runs, printer: &Printer) -> Result<Exit, Error> {
    match args {
        Runs::List(AllRuns { base, format }) => {
            answer(&list(&base.dir)?, |runs, screen| text::list(runs, &base.dir, screen), format, printer)
        }
        Runs::Show(OneRun { run, base, format }) => {
            answer(&show(&resolve(&base.dir, &run)?)?, text::show, format, printer)
        }
        Runs::Artifacts(OneRun { run, base, format }) => {
            answer(&artifacts(&resolve(&base.dir, &run)?)?, text::artifacts, format, printer)
        }
        Runs::Merge { runs, out, base, format } => {
            let runs = runs.iter().map(|run| resolve(&base.dir, run));
            let outcome = merge(&runs.collect::<Result<Vec<_>, _>>()?, &out)?;
            let rendered = write_reports_with(&out, &[])?;
            printer.warnings(&rendered.unreadable);
            answer(&outcome, |outcome, _| text::merged(outcome), format, printer)?;
            Ok(if rendered.unreadable.is_empty() { outcome.exit() } else { Exit::Partial })
        }
        Runs::Prune { dry_run, dir, keep, composition, format } => {
            let config = compose(&composition.props(&[]))?.config;
            let plan = plan(&PruneProps {
                base: dir.unwrap_or(config.artifacts.stage2_dir),
                keep: keep.unwrap_or(config.retention.keep as usize),
                max_run_bytes: config.retention.max_run_bytes.0,
            })?;
            if dry_run {
                return answer(&plan, text::plan, format, printer);
            }
            let outcome = execute(&plan, &cancel_on_signal()?, &mut |run, step| {
                printer.detail(&format_args!("{run}: {}", step.path.display()));
            });
            answer(&outcome, text::pruned, format, printer)?;
            Ok(outcome.exit())
        }
        Runs::Scrub { run: OneRun { run, base, format }, pack } => {
            let run = resolve(&base.dir, &run)?;
            let pack = pack.unwrap_or_else(|| format!("{}.tar.gz", run.id).into());
            let outcome = scrub(&run, &host_variables(), &pack)?;
            answer(&outcome, text::scrubbed, format, printer)?;
            Ok(outcome.exit())
        }
    }
}
