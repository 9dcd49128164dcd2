//! Shell completions, the manual page and the JSON Schema.

use crate::args::{Args, Shell};
use crate::failure::Failure;
use crate::printer::Printer;
use clap::CommandFactory;
use roofgap_session::exit::Exit;

pub(super) fn completions(shell: Shell, printer: &Printer) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "roofgap", &mut script);
    print(&script, printer)
}

pub(super) fn man(printer: &Printer) -> Result<Exit, Failure> {
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(Args::command()).render(&mut page);
    rendered.map_err(Failure::Stdout)?;
    print(&page, printer)
}

pub(super) fn schema(printer: &Printer) -> Result<Exit, Failure> {
    print(roofgap_report::json::SCHEMA.as_bytes(), printer)
}

fn print(bytes: &[u8], printer: &Printer) -> Result<Exit, Failure> {
    printer.document(&String::from_utf8_lossy(bytes))?;
    Ok(Exit::Done)
}
