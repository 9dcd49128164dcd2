//! `roofgap what-if`: predicts the time of a step with changes.

use super::analyze::exporter;
use super::answer;
use crate::printer::Printer;
use crate::reading::open;
use roofgap_analyze::{Edit, WhatIf, what_if};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_report::{Screen, columns, prediction};
use roofgap_runs::open::Overrides;
use std::path::PathBuf;

pub fn run(input: PathBuf, edits: &[Edit], printer: &Printer) -> Result<Exit, Error> {
    let opened = open(&[input], &Overrides::default(), &exporter(None), printer)?;
    let bundle = opened.bundle();
    let trace = bundle.trace.ok_or_else(|| Error::new("it has no timeline to replay".to_owned()))?;
    let stages = what_if(trace, bundle.stages, bundle.analysis, edits);
    if stages.is_empty() {
        return Err(Error::new("it has no stage of its timeline".to_owned()));
    }
    let is_predicted = stages.iter().any(|stage| stage.step.is_some());
    answer(&stages, |stages, screen| table(stages, screen), printer)?;
    Ok(if is_predicted { Exit::Done } else { Exit::Partial })
}

fn table(stages: &[WhatIf], screen: Screen) -> String {
    let rows = stages.iter().map(|stage| {
        let why = || stage.why.clone().unwrap_or_default();
        let limit = stage.step.as_ref().map_or("", |step| step.limit.as_str());
        [stage.stage.clone(), stage.step.as_ref().map_or_else(why, prediction), limit.to_owned()]
    });
    let mut out = columns(["stage", "a step now, and with the change", "then follows"], rows, screen);
    for (stage, step) in stages.iter().filter_map(|stage| Some((stage, stage.step.as_ref()?))) {
        if !step.unused.is_empty() {
            out.push_str(
                &screen
                    .wrapped(&format!("{}: nothing to change by {}", stage.stage, step.unused.join(", ")), 0),
            );
            out.push('\n');
        }
    }
    out
}
