//! `operators.md`.

use super::sections::reason;
use crate::bundle::Bundle;
use crate::number::{count, ms, ms_or};
use crate::table::{Table, escape};
use roofgap_analyze::{About, Operator};
use std::fmt::Write;

/// The most rows of the table.
const MOST: usize = 200;

/// Operators by own GPU time, then own CPU time.
pub fn operators(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut out = format!("# Operators: {}\n\n", escape(&bundle.context.title));
    if analysis.operators.is_empty() {
        let _ = writeln!(
            out,
            "No operators: {}.",
            reason(analysis, &About::Operators, "none were recorded")
        );
        return out;
    }
    if let Some(why) = analysis.reasons.iter().find(|r| r.about == About::Operators) {
        let _ = writeln!(out, "{}.\n", escape(&why.why));
    }
    out.push_str(&table(&analysis.operators[..analysis.operators.len().min(MOST)]).markdown());
    if analysis.operators.len() > MOST {
        let _ = writeln!(
            out,
            "\n{} more are in `metrics.json`.",
            analysis.operators.len() - MOST
        );
    }
    out
}

/// Operators as a table.
pub(super) fn table(operators: &[Operator]) -> Table {
    let mut table = Table::new(&[
        "operator",
        "calls>",
        "self CPU ms>",
        "total CPU ms>",
        "self GPU ms>",
        "total GPU ms>",
        "mean CPU ms>",
    ]);
    for operator in operators {
        table.row([
            operator.name.clone(),
            count(operator.calls),
            ms(operator.self_cpu_ns),
            ms(operator.total_cpu_ns),
            ms_or(operator.self_gpu_ns),
            ms_or(operator.total_gpu_ns),
            ms(operator.total_cpu_ns / (operator.calls.max(1) as i64)),
        ]);
    }
    table
}
