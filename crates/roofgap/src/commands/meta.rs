//! Completions, the manual page and the schema.

use crate::args::Args;
use crate::failure::Failure;
use crate::printer::Printer;
use clap::CommandFactory;

pub(super) fn completions(shell: clap_complete::Shell, printer: &Printer) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "roofgap", &mut script);
    answer(&script, printer)
}

pub(super) fn man(printer: &Printer) -> Result<u8, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Args::command())
        .render(&mut page)
        .map_err(Failure::Print)?;
    answer(&page, printer)
}

pub(super) fn schema(printer: &Printer) -> Result<u8, Failure> {
    answer(roofgap_report::json::SCHEMA.as_bytes(), printer)
}

fn answer(bytes: &[u8], printer: &Printer) -> Result<u8, Failure> {
    printer
        .answer(&String::from_utf8_lossy(bytes))
        .map_err(Failure::Print)?;
    Ok(0)
}
