//! `roofgap runs`: lists, shows, prunes and scrubs runs.

use super::answer;
use super::signals::cancel_on_signal;
use crate::args::{AllRuns, Incidents, OneRun, Runs};
use crate::printer::Printer;
use roofgap_analyze::Incident;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_record::run::write_reports_with;
use roofgap_report::{columns, incident_text};
use roofgap_runs::config::compose;
use roofgap_runs::run_dir::Layout;
use roofgap_runs::run_dir::folder::read_json;
use roofgap_runs::run_dir::locate::all;
use roofgap_runs::runs::{
    PruneProps, artifacts, execute, host_variables, list, merge, plan, resolve, scrub, show, text,
};
use serde::Serialize;
use std::path::PathBuf;

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

/// An incident in the list.
#[derive(Debug, Serialize)]
struct IncidentRow {
    /// Run that has it.
    run: PathBuf,
    #[serde(flatten)]
    incident: Incident,
}

/// Lists or shows incidents.
pub fn incidents(args: Incidents, printer: &Printer) -> Result<Exit, Error> {
    let read = |run: PathBuf| {
        let file = Layout::of(&run).incident();
        file.is_file().then(|| read_json(&file).map(|incident| IncidentRow { run, incident }))
    };
    match args {
        Incidents::List(AllRuns { base, format }) => {
            let runs = all(&base.dir)?.into_iter();
            let rows = runs.filter_map(|run| read(run.path)).collect::<Result<Vec<_>, _>>()?;
            let cells = |row: &IncidentRow| {
                let name = row.run.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let Incident { at, trigger, what, .. } = &row.incident;
                [name, at.clone(), trigger.to_string(), what.clone(), row.incident.spoken_cause()]
            };
            let text = |rows: &Vec<IncidentRow>, screen| match rows.is_empty() {
                true => {
                    format!("no incidents in {}; `roofgap watch --record` keeps them\n", base.dir.display())
                }
                false => columns(["run", "at", "trigger", "what", "cause"], rows.iter().map(cells), screen),
            };
            answer(&rows, text, format, printer)
        }
        Incidents::Show(OneRun { run, base, format }) => {
            let run = resolve(&base.dir, &run)?.path;
            let none = || {
                Error::new(format!(
                    "{} has no incident.json; it was not kept by `roofgap watch --record`",
                    run.display()
                ))
            };
            let row = read(run.clone()).ok_or_else(none)??;
            answer(&row, |row, screen| incident_text(&row.incident, screen), format, printer)
        }
    }
}
