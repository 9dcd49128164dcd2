//! `roofgap open`, `demo` and `report`: pages of runs and captures.

use super::analyze::{exporter, write_reports};
use crate::args::{Demo, Open, Report};
use crate::printer::Printer;
use crate::reading::keep_private;
use crate::{browser, demo};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_record::run::attach::add_requests;
use roofgap_record::run::write_reports_with;
use roofgap_report::text;
use roofgap_runs::open::{Overrides, load};
use roofgap_runs::run_dir::{Layout, locate};
use roofgap_runs::runs::resolve;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Opens the page of a run or a capture.
pub fn open(args: Open, printer: &Printer) -> Result<Exit, Error> {
    let page = page(&args, printer)?;
    printer.text(&format!("{}\n", page.display()))?;
    if args.no_browser {
        return Ok(Exit::Done);
    }
    match browser::open(&page) {
        Ok(()) => Ok(Exit::Done),
        Err(why) => {
            printer.warning(&why);
            Ok(Exit::Partial)
        }
    }
}

/// Finds the page of the input, or writes it.
fn page(args: &Open, printer: &Printer) -> Result<PathBuf, Error> {
    let run = match args.inputs.as_slice() {
        [] => "latest",
        [one] if is_run_name(one) => one,
        [one] if Layout::of(Path::new(one)).page().is_file() => return Ok(Layout::of(Path::new(one)).page()),
        inputs => return capture_page(inputs, printer),
    };
    let run = resolve(&args.base.dir, run)?.path;
    let page = Layout::of(&run).page();
    if !page.is_file() {
        for why in &write_reports_with(&run, &[])?.unreadable {
            printer.warning(why);
        }
    }
    Ok(page)
}

/// Returns true for a run directory, and for an id or a part of one, which never has the form of a path.
fn is_run_name(text: &str) -> bool {
    let path = Path::new(text);
    locate::is_run(path) || (!path.exists() && !text.contains(['/', '.']))
}

/// Writes the reports of captures into a folder of their own, because nothing is written beside an input.
fn capture_page(inputs: &[String], printer: &Printer) -> Result<PathBuf, Error> {
    let inputs: Vec<PathBuf> = inputs.iter().map(PathBuf::from).collect();
    keep_private(&inputs);
    let loaded = load(&inputs, &Overrides::default(), &exporter(None))?;
    for why in &loaded.unreadable {
        printer.warning(why);
    }
    write_reports(&kept_folder()?, &loaded, printer)
}

/// Creates a folder for temporary files that stays, because a browser reads it later.
fn kept_folder() -> Result<PathBuf, Error> {
    // Others can list the folder for temporary files.
    let owner_only = std::fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().prefix("roofgap-").permissions(owner_only).tempdir();
    folder.map(tempfile::TempDir::keep).map_err(Error::io("write", &std::env::temp_dir()))
}

/// Analyses the capture inside the binary and opens its page.
pub fn demo(args: Demo, printer: &Printer) -> Result<Exit, Error> {
    let folder = args.out.map_or_else(kept_folder, Ok)?;
    let captures = demo::write(&folder)?;
    let mut loaded = load(&captures, &demo::overrides(), &exporter(None))?;
    loaded.context.title = demo::TITLE.to_owned();
    let page = write_reports(&folder, &loaded, printer)?;
    printer.text(&text::brief(&loaded.analysis, printer.text_options(0)))?;
    printer.page(&page)?;
    if !args.no_browser
        && let Err(why) = browser::open(&page)
    {
        printer.progress(&why);
    }
    Ok(Exit::Done)
}

/// Writes the reports of a run again.
pub fn report(args: Report, printer: &Printer) -> Result<Exit, Error> {
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
