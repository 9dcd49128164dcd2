//! One file a command.

mod analyze;
mod compare;
mod config;
mod doctor;
mod meta;
mod profile;
mod report;
mod runs;
#[cfg(feature = "embedded")]
mod workload;

use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::printer::Printer;

/// Runs the command that was asked for; the exit status.
pub(crate) fn run(args: Args, printer: &Printer) -> Result<u8, Failure> {
    match args.command {
        Command::Profile(args) => profile::run(args, printer),
        Command::Report(args) => report::run(args, printer),
        Command::Compare(args) => compare::run(args, printer),
        Command::Runs(args) => runs::run(args, printer),
        Command::Doctor(args) => doctor::run(args, printer),
        Command::Config(args) => config::run(args, printer),
        Command::Analyze(args) => analyze::run(args, printer),
        #[cfg(feature = "embedded")]
        Command::Workload(args) => workload::run(args, printer),
        Command::Completions { shell } => meta::completions(shell, printer),
        Command::Man => meta::man(printer),
        Command::Schema => meta::schema(printer),
    }
}
