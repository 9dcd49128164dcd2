//! `roofgap report`.

use crate::args::Report;
use crate::failure::{Failure, PARTIAL};
use crate::printer::Printer;
use roofgap_session::run::write_reports;
use roofgap_session::runs::resolve;

pub(super) fn run(args: Report, printer: &Printer) -> Result<u8, Failure> {
    let rendered = write_reports(&resolve(&args.base.dir, &args.run)?.path)?;
    for why in &rendered.unreadable {
        printer.warning(why);
    }
    let list: String = rendered
        .files
        .iter()
        .map(|f| format!("{}\n", f.display()))
        .collect();
    printer.answer(&list).map_err(Failure::Print)?;
    Ok(if rendered.unreadable.is_empty() {
        0
    } else {
        PARTIAL
    })
}
