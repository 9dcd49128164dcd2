//! Shell completions, the manual pages and the JSON Schema.

use crate::args::{Args, Document, Shell};
use crate::printer::Printer;
use clap::{Command, CommandFactory};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::write_atomic;
use std::path::Path;

pub fn completions(shell: Shell, printer: &Printer) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "roofgap", &mut script);
    print(&script, printer)
}

/// Prints the manual page of a command, or writes all pages into a folder.
pub fn man(command: &[String], dir: Option<&Path>, printer: &Printer) -> Result<Exit, Error> {
    let mut all = Args::command();
    all.build();
    if let Some(dir) = dir {
        std::fs::create_dir_all(dir).map_err(Error::io("write", dir))?;
        write_pages(&all, dir, printer)?;
        return Ok(Exit::Done);
    }
    let mut found = &all;
    for word in command {
        let unknown = || format!("no command {:?}; `roofgap --help` lists all", command.join(" "));
        found = found.find_subcommand(word).ok_or_else(|| Error::new(unknown()))?;
    }
    print(&page(found)?, printer)
}

/// Writes the page of a command and those of its subcommands, named as `roofgap-runs-list.1`.
fn write_pages(command: &Command, dir: &Path, printer: &Printer) -> Result<(), Error> {
    let path = dir.join(format!("{}.1", page_name(command)));
    write_atomic(&path, &page(command)?).map_err(Error::io("write", &path))?;
    printer.wrote(&path);
    let shown = |sub: &&Command| !sub.is_hide_set() && sub.get_name() != "help";
    for sub in command.get_subcommands().filter(shown) {
        write_pages(sub, dir, printer)?;
    }
    Ok(())
}

/// Returns the name of a command with those of its parents, such as `roofgap-runs-list`.
fn page_name(command: &Command) -> String {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    name.replace(' ', "-")
}

fn page(command: &Command) -> Result<Vec<u8>, Error> {
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone()).title(page_name(command));
    man.render(&mut page).map_err(Error::of)?;
    Ok(page)
}

pub fn schema(document: Document, printer: &Printer) -> Result<Exit, Error> {
    let schema = match document {
        Document::Analysis => roofgap_report::json::SCHEMA,
        Document::Try => roofgap_report::json::TRY_SCHEMA,
    };
    print(schema.as_bytes(), printer)
}

fn print(bytes: &[u8], printer: &Printer) -> Result<Exit, Error> {
    printer.document(&String::from_utf8_lossy(bytes))?;
    Ok(Exit::Done)
}
