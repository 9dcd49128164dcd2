//! The command line: arguments, printing and exit statuses.

mod args;
mod commands;
mod printer;
mod reading;

use args::ColorWhen;
use clap::Parser;
use commands::bug;
use printer::Printer;
use roofgap_base::exit::Exit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::Args::try_parse_from(args::with_command(std::env::args_os())) {
        Ok(args) => args,
        Err(error) => {
            // Help and version arrive here too, for stdout. An error quotes arguments, which may be file names from anywhere.
            let exit = if error.use_stderr() {
                Printer::new(false, false, ColorWhen::Auto).plain(&error.render());
                Exit::Usage
            } else {
                let _ = error.print();
                Exit::Done
            };
            return ExitCode::from(exit.code());
        }
    };
    let printer = Printer::new(args.quiet, args.verbose, args.color);
    // No state is used after a panic, so none can be seen half changed.
    let outcome = catch_unwind(AssertUnwindSafe(|| commands::run(args.command, &printer)));
    let exit = outcome.unwrap_or_else(|_| Err(bug("roofgap panicked"))).unwrap_or_else(|failure| {
        printer.failure(&failure);
        failure.exit()
    });
    ExitCode::from(exit.code())
}
