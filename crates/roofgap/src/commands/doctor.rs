//! `roofgap doctor`.

use crate::args::{Doctor, Format};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_collect::doctor::{DoctorProps, Status, SystemFacts, checks};
use std::fmt::Write;

pub(super) fn run(args: Doctor, printer: &Printer) -> Result<u8, Failure> {
    let props = DoctorProps {
        python: args.python,
        ..DoctorProps::default()
    };
    let checks = checks(&SystemFacts::collect(&props), &props);
    let answer = match args.format {
        Format::Json => {
            let json = serde_json::to_string_pretty(&checks).map_err(|e| Failure::Bug(e.to_string()))?;
            format!("{json}\n")
        }
        Format::Text => {
            let mut out = String::new();
            for check in &checks {
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
    };
    printer.answer(&answer).map_err(Failure::Print)?;
    Ok(0)
}
