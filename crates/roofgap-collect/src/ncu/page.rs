//! Reading a report as CSV.

use std::path::Path;

use crate::command::CommandLine;
use crate::tool::Ncu;

/// A page of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Wide: a row a launch, a column a metric.
    Raw,
    /// Long: a row a metric, and ncu's own rules.
    Details,
}

/// `ncu --import REPORT --page ... --csv`, with units that do not depend on the values. The CSV is its standard output.
pub fn import(ncu: &Ncu, report: &Path, page: Page) -> CommandLine {
    let page = match page {
        Page::Raw => "raw",
        Page::Details => "details",
    };
    CommandLine::new(&ncu.path).arg("--import").arg(report).args([
        "--page",
        page,
        "--csv",
        "--print-units",
        "base",
    ])
}
