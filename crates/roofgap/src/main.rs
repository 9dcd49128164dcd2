//! The command line: arguments, printing, exit statuses; nothing else.

mod args;
mod commands;
mod failure;
mod printer;

use clap::Parser;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version come this way too; clap knows which stream each belongs to.
            let status = if error.use_stderr() { failure::USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    let printer = printer::Printer::new(args.quiet, args.verbose);
    // Nothing is used after it, so that nothing half done can be seen.
    let outcome = catch_unwind(AssertUnwindSafe(|| commands::run(args, &printer)));
    let outcome = outcome.unwrap_or_else(|_| {
        let what = "the program gave up; please report the command line and what stands above";
        Err(failure::Failure::Bug(what.to_owned()))
    });
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            printer.error(&failure);
            ExitCode::from(failure.status())
        }
    }
}
