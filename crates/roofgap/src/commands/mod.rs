//! Commands, one file each. A command takes plain values, prints through the printer and returns an exit status.

mod analyze;
mod capture;
mod compare;
mod config;
mod demo;
mod doctor;
mod explain;
mod lake;
mod load;
#[cfg(feature = "mcp")]
mod mcp;
mod meta;
mod open;
mod profile;
mod progress;
mod report;
mod runs;
#[cfg(feature = "serve")]
mod serve;
mod signals;
mod try_finding;
mod watch;
#[cfg(feature = "embedded")]
mod workload;

use crate::args::{Command, Format};
use crate::failure::Failure;
use crate::printer::Printer;
use roofgap_base::exit::Exit;
use roofgap_collect::child::{Guardian, guard};
use roofgap_collect::command::CommandLine;
use serde::Serialize;

/// This program, even after its file was replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Runs a command.
pub fn run(command: Command, printer: &Printer) -> Result<Exit, Failure> {
    // Whatever a command starts dies with this process.
    let _guardian = Guardian::install(CommandLine::new(THIS_PROGRAM).arg("guard"));
    match command {
        Command::Guard { pid, start } => {
            guard(pid, start, &std::io::stdin());
            Ok(Exit::Done)
        }
        Command::Profile(args) => profile::run(args, printer),
        Command::Demo(args) => demo::run(args, printer),
        Command::Open(args) => open::run(args, printer),
        Command::Report(args) => report::run(args, printer),
        Command::Compare(args) => compare::run(args, printer),
        Command::Try(args) => try_finding::run(args, printer),
        Command::Runs(args) => runs::run(args, printer),
        Command::Doctor(args) => doctor::run(args, printer),
        Command::Config(args) => config::run(args, printer),
        Command::Analyze(args) => analyze::run(args, printer),
        #[cfg(feature = "embedded")]
        Command::Workload(args) => workload::run(args, printer),
        Command::Load(args) => load::run(args, printer),
        Command::Watch(args) => watch::run(args, printer),
        Command::Capture(args) => capture::run(args, printer),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => mcp::run(args),
        #[cfg(not(feature = "mcp"))]
        Command::Mcp { .. } => Err(Failure::NotBuilt { what: "command mcp" }),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(args, printer),
        #[cfg(not(feature = "serve"))]
        Command::Serve { .. } => Err(Failure::NotBuilt { what: "command serve" }),
        Command::Lake { args } => lake::run(&args, printer),
        Command::Completions { shell } => meta::completions(shell, printer),
        Command::Explain { finding, format } => explain::run(finding.as_deref(), format, printer),
        Command::Man { command, dir } => meta::man(&command, dir.as_deref(), printer),
        Command::Schema { document } => meta::schema(document, printer),
    }
}

/// Prints a value as JSON or as text.
fn answer<T: Serialize>(
    value: &T,
    text: impl FnOnce(&T) -> String,
    format: Format,
    printer: &Printer,
) -> Result<(), Failure> {
    match format {
        Format::Text => printer.text(&text(value)),
        Format::Json => printer.document(&format!("{}\n", serde_json::to_string_pretty(value)?)),
    }
}
