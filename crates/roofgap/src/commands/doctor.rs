//! `roofgap doctor`: checks tools, versions, permissions and disk space.

use super::answer;
use crate::args::Doctor;
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_collect::doctor::{Check, DoctorProps, Status, SystemFacts, checks};
use roofgap_session::exit::Exit;
use std::fmt::Write;

pub(super) fn run(args: Doctor, printer: &Printer) -> Result<Exit, Failure> {
    let props = DoctorProps {
        python: args.python,
        ..DoctorProps::default()
    };
    let checks = checks(&SystemFacts::collect(&props), &props);
    answer(&checks, |checks| text(checks), args.format, printer)?;
    Ok(Exit::Done)
}

fn text(checks: &[Check]) -> String {
    let mut out = String::new();
    for check in checks {
        let word = match check.status {
            Status::Ok => "ok",
            Status::Warn => "warning",
            Status::Absent => "absent",
            Status::Bad => "bad",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{:<8} {:<18} {}", word, check.id, check.found);
        if let Some(remedy) = &check.remedy {
            let _ = writeln!(out, "{:<27} do: {remedy}", "");
        }
    }
    out
}
