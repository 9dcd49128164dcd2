//! `kernels.md` and `operators.md`.

use super::sections;
use crate::bundle::Bundle;
use crate::view::kernels::{markdown_columns, operator_scope, operators as operator_table, table};
use crate::view::measured;
use crate::view::numbers::{count, time};
use crate::view::provenance::missing;
use crate::view::roof;
use crate::view::stage1;
use crate::view::table::{cut, escape, escape_line, escape_long};
use roofgap_analyze::{About, Analysis};
use std::fmt::Write;

/// The most rows of the kernel table.
const KERNELS: usize = 500;

/// The most rows of the operator table.
const OPERATORS: usize = 200;

/// The longest full name of a kernel, in characters.
const FULL_NAME: usize = 400;

/// Renders `kernels.md`: every kernel by total time, then the full names.
pub fn kernels(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut out = format!("# Kernels: {}\n\n", escape(&bundle.context.title));
    if analysis.kernels.is_empty() {
        let _ = writeln!(out, "{}", escape_line(&missing(analysis, &About::Kernels)));
        return out;
    }
    if measured::alone(analysis) {
        out.push_str(&sections::measured_kernels(analysis, KERNELS));
        return out;
    }
    let _ = writeln!(
        out,
        "{} kernels in {} launches, {} of kernel time. Sorted by total time; shares are of all kernel time.\n",
        count(analysis.kernels.len() as u64),
        count(analysis.totals.kernel_count),
        time(analysis.totals.kernel_ns)
    );
    let (shown, rest) = analysis.kernels.split_at(analysis.kernels.len().min(KERNELS));
    let kernel_table = table(analysis, shown, analysis.totals.kernel_ns);
    out.push_str(&kernel_table.pick(&markdown_columns(shown)).markdown());
    if !rest.is_empty() {
        let total: i64 = rest.iter().map(|k| k.total_ns).sum();
        let _ = writeln!(
            out,
            "\n{} more kernels with {} in total are in `metrics.json`.",
            count(rest.len() as u64),
            time(total)
        );
    }
    if let Some(note) = roof::note(analysis) {
        let _ = writeln!(out, "\n{}", escape_line(&note));
    }
    out.push_str("\n## Full names\n\n");
    for kernel in shown.iter().filter(|k| k.name != k.short_name) {
        let full = escape_long(&cut(&kernel.name, FULL_NAME));
        let _ = writeln!(out, "- {}: {full}", escape(&kernel.short_name));
    }
    out
}

/// Renders `operators.md`: operators by own GPU time, then own CPU time, then those of a Stage 1 runner.
pub fn operators(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut out = format!("# Operators: {}\n\n", escape(&bundle.context.title));
    recorded_operators(analysis, &mut out);
    if let Some(figures) = analysis.stage1.as_ref().filter(|figures| !figures.operators.is_empty()) {
        let table = stage1::operators(figures, OPERATORS).markdown();
        let _ = write!(out, "\n## Stage 1\n\n{}\n\n{table}", stage1::OPERATOR_TIMES);
    }
    out
}

fn recorded_operators(analysis: &Analysis, out: &mut String) {
    if analysis.operators.is_empty() {
        let _ = writeln!(out, "{}", escape_line(&missing(analysis, &About::Operators)));
        return;
    }
    let _ = writeln!(out, "{}.\n", escape_line(&operator_scope(analysis)));
    out.push_str(&operator_table(analysis, OPERATORS).markdown());
    if analysis.operators.len() > OPERATORS {
        let more = analysis.operators.len() - OPERATORS;
        let _ = writeln!(out, "\n{more} more are in `metrics.json`.");
    }
}
