//! One file a command.

mod analyze;
mod meta;
#[cfg(feature = "embedded")]
mod workload;

use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::printer::Printer;

/// Runs the command that was asked for; the exit status.
pub(crate) fn run(args: Args, printer: &Printer) -> Result<u8, Failure> {
    match args.command {
        Command::Analyze(args) => analyze::run(args, printer),
        #[cfg(feature = "embedded")]
        Command::Workload(args) => workload::run(args, printer),
        Command::Completions { shell } => meta::completions(shell, printer),
        Command::Man => meta::man(printer),
        Command::Schema => meta::schema(printer),
    }
}
