//! The report files of a run directory.

use crate::bundle::Bundle;
use crate::{html, json, markdown};

/// A report file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportFile {
    /// Name in the run directory.
    pub name: &'static str,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Renders every report file of a run directory.
pub fn files(bundle: Bundle<'_>) -> Vec<ReportFile> {
    let reports = [
        ("metrics.json", json::pretty(bundle.analysis)),
        ("kernels.md", markdown::kernels(bundle)),
        ("operators.md", markdown::operators(bundle)),
        ("report.md", markdown::report(bundle)),
        ("stakeholder_summary.md", markdown::stakeholder_summary(bundle)),
        ("report.html", html::page(bundle)),
    ];
    let file = |(name, text): (&'static str, String)| ReportFile { name, bytes: text.into_bytes() };
    reports.map(file).into()
}
