//! `roofgap config`.

use crate::args::{Composition, Config, Format};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_session::config::{Composed, ConfigProps, compose, list};
use std::fmt::Write;

pub(super) fn run(args: Config, printer: &Printer) -> Result<u8, Failure> {
    let answer = match args {
        Config::Show { composition, format } => show(composition, format)?,
        Config::List { config_dir } => {
            let mut out = String::new();
            for group in list(config_dir.as_deref())? {
                // Writing to a string cannot fail.
                let _ = writeln!(out, "{}: {}", group.name, group.about);
                for option in group.options {
                    let _ = writeln!(out, "  {}={:<20} {}", group.name, option.name, option.about);
                }
            }
            out
        }
    };
    printer.answer(&answer).map_err(Failure::Print)?;
    Ok(0)
}

fn show(composition: Composition, format: Format) -> Result<String, Failure> {
    let composed = composed(composition, Vec::new())?;
    Ok(match format {
        Format::Text => composed.to_annotated_yaml(),
        Format::Json => {
            let values: serde_json::Map<String, serde_json::Value> = composed
                .explain()
                .into_iter()
                .map(|e| (e.key, serde_json::json!({ "value": e.json, "origin": e.origin })))
                .collect();
            format!("{:#}\n", serde_json::Value::Object(values))
        }
    })
}

/// Composes a configuration from what stands on the command line.
pub(super) fn composed(composition: Composition, program: Vec<String>) -> Result<Composed, Failure> {
    let Composition {
        overrides,
        config_dir,
        config,
    } = composition;
    Ok(compose(&ConfigProps {
        config_dir,
        config,
        overrides,
        program,
    })?)
}
