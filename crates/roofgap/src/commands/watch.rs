//! `roofgap watch`: starts a program with the native collector loaded and dormant.

use crate::args::Watch;
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::watch::Registry;
use roofgap_record::run::NativeLibrary;
use roofgap_record::run::attach::watch;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Replaces this process by the program: the same process id, streams, terminal, signals and exit status.
pub fn run(args: Watch, printer: &Printer) -> Result<Exit, Error> {
    let library = NativeLibrary::embedded().map_err(Error::new)?;
    let registry = Registry::open().map_err(Error::of)?;
    let Some(plan) = watch(&registry, &args.program, &library, args.duty)? else {
        return Ok(Exit::Usage);
    };
    let pid = plan.watched.registration.pid;
    printer.progress(&format_args!(
        "watching process {pid}; record a part of it with `roofgap capture {pid} --for 5s` in another terminal"
    ));
    let line = &plan.command;
    let mut command = Command::new(&line.program);
    command.args(&line.args);
    for (name, value) in &line.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let source = command.exec();
    let program = line.name();
    Err(Error::new(format!("cannot start {program}: {source}")))
}
