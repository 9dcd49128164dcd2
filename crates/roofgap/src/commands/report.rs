//! `roofgap report`: writes the reports of a run again.

use crate::args::Report;
use crate::printer::Printer;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_record::run::attach::add_requests;
use roofgap_record::run::write_reports_with;
use roofgap_runs::runs::resolve;

pub fn run(args: Report, printer: &Printer) -> Result<Exit, Error> {
    let run = resolve(&args.base.dir, &args.run)?.path;
    if let Some(load) = &args.requests {
        add_requests(&run, load)?;
    }
    let rendered = write_reports_with(&run, &args.overrides)?;
    for why in &rendered.unreadable {
        printer.warning(why);
    }
    let files = rendered.files.iter();
    let list: String = files.map(|file| format!("{}\n", file.display())).collect();
    printer.text(&list)?;
    Ok(if rendered.unreadable.is_empty() { Exit::Done } else { Exit::Partial })
}
