//! Commands, one file each. A command takes plain values, prints through the printer and returns an exit status.

mod analyze;
mod capture;
mod config;
mod explain;
mod export;
mod load;
mod meta;
mod open;
mod profile;
mod runs;
mod servers;
mod signals;
mod try_finding;
mod what_if;

use crate::args::{Args, Command, Format};
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::child::{Guardian, guard};
use roofgap_collect::command::{CommandLine, word_text};
#[cfg(all(feature = "embedded", target_os = "linux"))]
use roofgap_inject::sampler;
use roofgap_record::run::{NativeLibrary, ProfileProps};
use roofgap_report::{Screen, json};
use roofgap_runs::config::Composed;
use roofgap_runs::run_dir::DEFAULT_BASE;
use serde::Serialize;
use std::path::PathBuf;
#[cfg(all(feature = "embedded", target_os = "linux"))]
use std::time::Duration;

/// This program, even after its file was replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Runs a command.
pub fn run(args: Args, printer: &Printer) -> Result<Exit, Error> {
    let command = args.command;
    check_format(&command, args.global.format)?;
    let set_dir = args.global.dir.as_deref();
    let dir = &args.global.dir.clone().unwrap_or_else(|| DEFAULT_BASE.into());
    // `watch` becomes the program, which has the signals of its parent.
    if !matches!(command, Command::Watch(_)) {
        signals::take_defaults()?;
    }
    // Whatever a command starts dies with this process.
    let _guardian = Guardian::install(CommandLine::new(THIS_PROGRAM).arg("guard"));
    match command {
        Command::Guard { pid, start } => {
            guard(pid, start, &std::io::stdin());
            Ok(Exit::Done)
        }
        #[cfg(all(feature = "embedded", target_os = "linux"))]
        Command::SampleCounters { folder, interval_us, near } => {
            let interval = Duration::from_micros(interval_us);
            sample("counters", printer, |is_over| match &folder {
                Some(folder) => {
                    sampler::run(folder, interval, near, is_over).map(|samples| format!("{samples} samples"))
                }
                None => sampler::probe(),
            })
        }
        #[cfg(all(feature = "embedded", target_os = "linux"))]
        Command::SampleVitals { file, activity } => sample("vitals", printer, |is_over| match &file {
            Some(file) => {
                sampler::vitals::run(file, activity, is_over).map(|samples| format!("{samples} samples"))
            }
            None => sampler::vitals::probe(),
        }),
        Command::Profile(args) => profile::run(args, set_dir, printer),
        Command::Demo(args) => open::demo(args, printer),
        Command::Open(args) => open::open(args, dir, printer),
        Command::Report(args) => open::report(args, dir, printer),
        Command::Compare(args) => analyze::compare_captures(args, dir, printer),
        Command::Try(args) => try_finding::run(args, dir, printer),
        Command::Runs(args) => runs::run(args, dir, set_dir, printer),
        Command::Doctor(args) => config::doctor(args, printer),
        Command::Config(args) => config::run(args, set_dir, printer),
        Command::Analyze(args) => analyze::run(args, printer),
        Command::Export(args) => export::run(args, printer),
        #[cfg(feature = "embedded")]
        Command::Workload(args) => load::workload(args, printer),
        Command::Load(args) => load::run(args, printer),
        Command::Watch(args) => capture::watch(args, printer),
        Command::Capture(args) => capture::run(args, printer),
        Command::Mcp(args) => servers::mcp(args, dir),
        Command::Serve(args) => servers::serve(args, dir, printer),
        #[cfg(feature = "manual")]
        Command::Completions { shell } => meta::completions(&shell, printer),
        Command::Explain { finding, inputs } => explain::run(finding.as_deref(), &inputs, printer),
        Command::WhatIf { input, edits } => what_if::run(input, &edits, printer),
        #[cfg(feature = "manual")]
        Command::Man { command } => meta::man(&command, printer),
        #[cfg(not(feature = "manual"))]
        Command::Completions { .. } | Command::Man { .. } => Err(Error::new(
            "this roofgap was built without the commands man and completions",
        )
        .with_hint("an archive of a release has the manual page and the completions; `--features manual` builds the commands")),
        Command::Schema { document } => meta::schema(document, printer),
    }
}

/// Refuses a format in which a command does not answer.
fn check_format(command: &Command, format: Format) -> Result<(), Error> {
    use Format::{Html, Json, Markdown, Text};
    let formats: &[Format] = match command {
        Command::Analyze(_) => &[Text, Json, Markdown],
        Command::Compare(_) => &[Text, Json, Markdown, Html],
        Command::Profile(args) if args.dry_run => &[Text],
        Command::Demo(_)
        | Command::Open(_)
        | Command::Report(_)
        | Command::Export(_)
        | Command::Watch(_)
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Schema { .. } => &[Text],
        _ => &[Text, Json],
    };
    if formats.contains(&format) {
        return Ok(());
    }
    let name = |format: &Format| format!("{format:?}").to_lowercase();
    let known: Vec<String> = formats.iter().map(name).collect();
    let why = format!("no answer as {} here; --format is one of {}", name(&format), known.join(", "));
    Err(Error::new(why))
}

/// Samples until this process is interrupted.
#[cfg(all(feature = "embedded", target_os = "linux"))]
fn sample<E: std::fmt::Display>(
    what: &str,
    printer: &Printer,
    sample: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> Result<String, E>,
) -> Result<Exit, Error> {
    let cancel = signals::cancel_on_signal()?;
    let sampled = sample(&|| cancel.is_requested());
    printer.progress(&sampled.map_err(|why| Error::new(format!("cannot sample {what}: {why}")))?);
    Ok(Exit::Done)
}

fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe()
        .map_err(|error| Error::new(format!("cannot find the path of this program: {error}")))
}

/// Returns the words of the command line.
fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word_text(&word)).collect()
}

/// Returns the properties of a session that this program runs.
fn session(composed: Composed) -> Result<ProfileProps, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(ProfileProps {
        composed,
        command_line: command_line(),
        // By its path a session runs the embedded model.
        executable: this_program()?,
        version: env!("CARGO_PKG_VERSION").into(),
        search_path: std::env::split_paths(&path).collect(),
        native: NativeLibrary::embedded(),
    })
}

/// Makes the error of a bug.
pub fn bug(message: impl Into<String>) -> Error {
    Error::new(message)
        .with_exit(Exit::Bug)
        .with_hint("this is a bug; please report the command line and the output above")
}

/// Makes the error of a command or option that is a feature, and that this program was built without.
#[cfg(not(all(feature = "mcp", feature = "parquet", feature = "serve")))]
fn not_built(what: &str) -> Error {
    Error::new(format!("this roofgap was built without the {what}")).with_hint(
        "`cargo install --path crates/roofgap --features mcp,parquet,serve,stacks` builds it from the sources of roofgap; the programs of a release have it",
    )
}

/// Prints a value as JSON or as text.
fn answer<T: Serialize + ?Sized>(
    value: &T,
    text: impl FnOnce(&T, Screen) -> String,
    printer: &Printer,
) -> Result<Exit, Error> {
    match printer.format() {
        Format::Json => printer.document(&json::pretty(value))?,
        _ => printer.text(&text(value, printer.screen()))?,
    }
    Ok(Exit::Done)
}
