//! `roofgap demo`: analyses the capture inside the binary and opens its page.

use super::analyze::{exporter, write_reports};
use super::open::kept_folder;
use crate::args::Demo;
use crate::printer::Printer;
use crate::{browser, demo};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_report::text;
use roofgap_runs::open::load;

/// Kernels to list: the page has all of them.
const KERNELS: usize = 5;

pub fn run(args: Demo, printer: &Printer) -> Result<Exit, Error> {
    let folder = args.out.map_or_else(kept_folder, Ok)?;
    let captures = demo::write(&folder)?;
    let mut loaded = load(&captures, &demo::overrides(), &exporter(None))?;
    loaded.context.title = demo::TITLE.to_owned();
    let page = write_reports(&folder, &loaded, printer)?;
    let look = printer.text_options(KERNELS);
    printer.text(&text::render(&loaded.analysis, look))?;
    printer.page(&page)?;
    if !args.no_browser
        && let Err(why) = browser::open(&page)
    {
        printer.progress(&why);
    }
    Ok(Exit::Done)
}
