//! `roofgap doctor`: checks tools, versions, permissions and disk space.

use super::answer;
use crate::args::Doctor;
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::doctor::{Check, DoctorProps, Status, SystemFacts, checks};
use roofgap_report::Screen;
use std::fmt::Write;

/// Columns before the text of a check.
const INDENT: usize = 28;

pub fn run(args: Doctor, printer: &Printer) -> Result<Exit, Error> {
    let props = DoctorProps { python: args.python, ..DoctorProps::default() };
    let checks = checks(&SystemFacts::collect(&props), &props);
    let screen = printer.screen();
    answer(&checks, |checks| text(checks, screen), args.format, printer)?;
    Ok(Exit::Done)
}

fn text(checks: &[Check], screen: Screen) -> String {
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
