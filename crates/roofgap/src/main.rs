//! The command line: arguments, printing and exit statuses.

mod args;
mod commands;
mod printer;
mod reading;

use clap::FromArgMatches;
use commands::bug;
use printer::Printer;
use roofgap_base::exit::Exit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words = args::with_command(std::env::args_os());
    let parsed = args::definition().try_get_matches_from(words);
    let args = match parsed.and_then(|matches| args::Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) => {
            // Help and version arrive here too, for stdout. An error quotes arguments, which may be file names from anywhere.
            let exit = if error.use_stderr() {
                Printer::new(&args::Global::default()).plain(&error.render());
                Exit::Usage
            } else {
                let _ = error.print();
                Exit::Done
            };
            return ExitCode::from(exit.code());
        }
    };
    let printer = Printer::new(&args.global);
    // No state is used after a panic, so none can be seen half changed.
    let outcome = catch_unwind(AssertUnwindSafe(|| commands::run(args, &printer)));
    let exit = outcome.unwrap_or_else(|_| Err(bug("roofgap panicked"))).unwrap_or_else(|failure| {
        printer.failure(&failure);
        failure.exit()
    });
    ExitCode::from(exit.code())
}
