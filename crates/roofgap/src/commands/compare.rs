//! `roofgap compare`: compares two runs or captures.

use super::analyze::exporter;
use crate::args::{Compare, CompareFormat};
use crate::printer::Printer;
use roofgap_analyze::compare::{CompareOptions, Gate, Side, compare};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_report::{compare as render, json};
use roofgap_runs::open::{OpenedSide, open_side, open_timeline};

pub fn run(args: Compare, printer: &Printer) -> Result<Exit, Error> {
    let mut gates = Vec::new();
    for limit in &args.fail_on {
        gates.extend(Gate::parse_list(limit).map_err(Error::of)?);
    }
    let overrides = args.overrides.props()?;
    let exporter = exporter(args.nsys);
    let side = |wanted: &str| open_side(&args.base.dir, wanted, &overrides, &exporter);
    let (before, after) = (side(&args.before)?, side(&args.after)?);
    let options = CompareOptions { gates, ..CompareOptions::default() };
    let comparison = compare(as_side(&before), as_side(&after), &options);
    let look = printer.text_options(args.top);
    match args.format {
        CompareFormat::Text => printer.text(&render::text(&comparison, look))?,
        CompareFormat::Json => printer.document(&json::pretty(&comparison))?,
        CompareFormat::Markdown => printer.document(&render::markdown(&comparison))?,
        CompareFormat::Html => {
            let timeline = |wanted: &str| open_timeline(&args.base.dir, wanted, &overrides, &exporter);
            let opened = [(&before, timeline(&args.before)), (&after, timeline(&args.after))];
            let shown = opened.each_ref().map(|(side, more)| render::Shown {
                analysis: &side.analysis,
                timeline: more.as_ref().map(|(opened, _)| (&opened.trace, &opened.stages)),
                page: more.as_ref().and_then(|(_, page)| page.as_deref()),
            });
            printer.document(&render::html(&comparison, &shown))?;
        }
    }
    Ok(comparison.verdict().into())
}

fn as_side(opened: &OpenedSide) -> Side<'_> {
    Side { analysis: &opened.analysis, facts: &opened.facts }
}
