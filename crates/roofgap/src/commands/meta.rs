//! Shell completions, the manual pages and the JSON Schema.

#[cfg(feature = "manual")]
use crate::args::Args;
use crate::args::Document;
use crate::printer::Printer;
#[cfg(feature = "manual")]
use clap::CommandFactory;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;

/// Prints a completion script for a shell.
#[cfg(feature = "manual")]
pub fn completions(shell: &str, printer: &Printer) -> Result<Exit, Error> {
    let unknown =
        |_| Error::new(format!("no completions for {shell}; expected bash, elvish, fish, powershell or zsh"));
    let shell: clap_complete::Shell = shell.parse().map_err(unknown)?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "roofgap", &mut script);
    print(&script, printer)
}

/// Prints the manual page of a command.
#[cfg(feature = "manual")]
pub fn man(words: &[String], printer: &Printer) -> Result<Exit, Error> {
    let mut all = Args::command();
    all.build();
    let mut command = &all;
    for word in words {
        let unknown = || format!("no command {:?}; `roofgap --help` lists all", words.join(" "));
        command = command.find_subcommand(word).ok_or_else(|| Error::new(unknown()))?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).replace(' ', "-");
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut page).map_err(Error::of)?;
    print(&page, printer)
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
