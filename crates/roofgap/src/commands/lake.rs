//! `roofgap lake`: hands over to `roofgap-lake`, a program of its own because its query engine is larger than roofgap.

use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::command::is_executable;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "roofgap-lake";

/// Way to get the program.
const INSTALL: &str = "`cargo install --path lake` builds it from the sources of roofgap; release archives made with LAKE=1 have it beside roofgap";

/// Help without the program.
const HELP: &str = include_str!("lake_help.txt");

pub fn run(args: &[OsString], printer: &Printer) -> Result<Exit, Error> {
    let Some(path) = find() else {
        let asks_for_help =
            args.first().is_none_or(|arg| ["--help", "-h", "help"].iter().any(|help| arg == help));
        if asks_for_help {
            printer.text(&format!("{HELP}{INSTALL}.\n"))?;
            return Ok(Exit::Done);
        }
        return Err(Error::new("roofgap-lake is neither beside this program nor on PATH").with_hint(INSTALL));
    };
    // It replaces this process, so that streams, signals and the exit status are its own. It returns only on failure.
    Err(Error::io("start", &path)(Command::new(&path).args(args).exec()))
}

/// Finds the program beside this one, then on PATH.
fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(PROGRAM))
        .find(|path| is_executable(path))
}
