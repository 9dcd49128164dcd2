//! `kernels.md`.

use super::sections::{reason, stage_of};
use crate::bundle::Bundle;
use crate::number::{NONE, count, ms, percent};
use crate::table::{Table, escape};
use roofgap_analyze::{About, Kernel};
use std::fmt::Write;

/// The most rows of a table; what is left out is said.
const MOST: usize = 500;

/// Every kernel by total time, then the long names.
pub fn kernels(bundle: Bundle<'_>) -> String {
    let analysis = bundle.analysis;
    let mut out = format!("# Kernels: {}\n\n", escape(&bundle.context.title));
    if analysis.kernels.is_empty() {
        let _ = writeln!(
            out,
            "No kernels: {}",
            reason(analysis, &About::Kernels, "the run recorded no kernels")
        );
        return out;
    }
    let _ = writeln!(
        out,
        "{} kernels in {} launches, {} ms of kernel time. By total time; a share is of all kernel time.\n",
        count(analysis.kernels.len() as u64),
        count(analysis.totals.kernel_count),
        ms(analysis.totals.kernel_ns)
    );
    let shown = &analysis.kernels[..analysis.kernels.len().min(MOST)];
    out.push_str(&table(bundle, shown, analysis.totals.kernel_ns).markdown());
    if let Some(rest) = analysis.kernels.get(MOST..).filter(|r| !r.is_empty()) {
        let total: i64 = rest.iter().map(|k| k.total_ns).sum();
        let _ = writeln!(
            out,
            "\n{} more kernels with {} ms together are in `metrics.json`.",
            rest.len(),
            ms(total)
        );
    }
    out.push_str("\n## Full names\n\n");
    for kernel in analysis
        .kernels
        .iter()
        .take(MOST)
        .filter(|k| k.name != k.short_name)
    {
        let short: String = kernel.name.chars().take(400).collect();
        let _ = writeln!(out, "- {}: {}", escape(&kernel.short_name), escape_long(&short));
    }
    out
}

/// Kernels as a table: kernel, device, total, calls, mean, then share of `whole_ns`, stage, bound.
pub(super) fn table(bundle: Bundle<'_>, kernels: &[Kernel], whole_ns: i64) -> Table {
    let analysis = bundle.analysis;
    let mut table = Table::new(&[
        "kernel",
        "device",
        "total ms>",
        "calls>",
        "mean ms>",
        "share %>",
        "stage",
        "family",
        "bound",
    ]);
    for kernel in kernels {
        table.row([
            kernel.short_name.clone(),
            kernel.device.map_or(NONE.into(), |d| d.to_string()),
            ms(kernel.total_ns),
            count(kernel.calls),
            format!("{:.6}", kernel.mean_ns as f64 / 1e6),
            percent(kernel.total_ns, whole_ns),
            stage_of(analysis, kernel),
            kernel.family.to_string(),
            kernel
                .counters
                .as_ref()
                .and_then(|c| c.bound.clone())
                .unwrap_or_else(|| NONE.into()),
        ]);
    }
    table
}

/// Escapes without the limit of a cell.
fn escape_long(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    chars
        .chunks(100)
        .map(|part| escape(&part.iter().collect::<String>()))
        .collect()
}
