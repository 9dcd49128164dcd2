//! `roofgap config` and `doctor`: the configuration and the machine that a session finds.

use super::{answer, this_program};
use crate::args::{Config, Doctor};
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::doctor::{Check, DoctorProps, Status, SystemFacts, checks};
use roofgap_report::Screen;
use roofgap_runs::config::{Group, Origin, compose, list};
use roofgap_runs::run_dir::DEFAULT_BASE;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

pub fn run(args: Config, dir: Option<&Path>, printer: &Printer) -> Result<Exit, Error> {
    match args {
        Config::List { config_dir } => answer(list(config_dir.as_deref())?.as_slice(), groups, printer),
        Config::Show { composition } => {
            let composed = compose(&composition.props(&[], dir))?;
            for note in &composed.notes {
                printer.progress(&format_args!("note: {note}"));
            }
            let value = |(key, value, origin): (_, _, &Origin)| {
                (key, json!({ "value": value, "origin": origin.to_string() }))
            };
            let values: BTreeMap<_, _> = composed.explain().map(value).collect();
            answer(&values, |_, _| composed.to_annotated_yaml(), printer)
        }
    }
}

/// Lists the options of each group.
fn groups(groups: &[Group], screen: Screen) -> String {
    let mut out = String::new();
    for group in groups {
        // Writing to a string cannot fail.
        let line = format!("{}: {}", group.name, group.about);
        let _ = writeln!(out, "{}", screen.wrapped(&line, 2));
        for option in &group.options {
            let line = format!("  {}={:<20} {}", group.name, option.name, option.about);
            let _ = writeln!(out, "{}", screen.wrapped(&line, 4));
        }
    }
    out
}

/// Columns before the text of a check.
const INDENT: usize = 28;

/// Checks tools, versions, permissions and disk space.
pub fn doctor(args: Doctor, printer: &Printer) -> Result<Exit, Error> {
    let sampler = Some(this_program()?).filter(|_| cfg!(feature = "embedded"));
    let (python, folder) = (args.python, DEFAULT_BASE.into());
    let props = DoctorProps { python, folder, sampler, ..DoctorProps::default() };
    let checks = checks(&SystemFacts::collect(&props), &props);
    answer(checks.as_slice(), checks_text, printer)
}

fn checks_text(checks: &[Check], screen: Screen) -> String {
    let mut out = String::new();
    for check in checks {
        let word = match check.status {
            Status::Ok => "ok",
            Status::Warn => "warning",
            Status::Absent => "absent",
            Status::Bad => "bad",
        };
        // Writing to a string cannot fail.
        let word = screen.status(&format!("{word:<8}"));
        let line = format!("{word} {:<18} {}", check.id, check.found);
        let _ = writeln!(out, "{}", screen.wrapped(&line, INDENT));
        if let Some(remedy) = &check.remedy {
            let line = format!("{:INDENT$}do: {remedy}", "");
            let _ = writeln!(out, "{}", screen.wrapped(&line, 0));
        }
    }
    out
}
