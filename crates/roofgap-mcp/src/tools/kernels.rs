//! `kernels`: kernels by total time.

use roofgap_analyze::{About, Analysis, Kernel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{InputRequest, Page};
use super::stage;
use crate::error::McpError;
use crate::quantity::{Column, InputRef, Quantity, columns, cut};

/// Request for kernels.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct KernelsRequest {
    #[serde(flatten)]
    pub input: InputRequest,
    /// Stage; the whole trace by default.
    pub stage: Option<String>,
    /// Text that the name or the family (`gemm`, `attention`, ...) must contain, in any case.
    pub filter: Option<String>,
    #[serde(flatten)]
    pub page: Page,
}

/// Kernels of a stage or of the whole trace.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct KernelsAnswer {
    #[serde(flatten)]
    pub input: InputRef,
    /// Stage; null for the whole trace.
    pub stage: Option<String>,
    /// Kernels, by total time.
    pub kernels: Vec<KernelRow>,
    /// Number of kernels by name and device that match.
    pub count: usize,
    /// Total time of all that match, also those that are not listed.
    pub total_time: Quantity,
    /// Number of launches of all that match.
    pub calls: Quantity,
    /// Reason why hardware counters are missing.
    pub counters_not_measured: Option<String>,
    /// Units and meaning of the rows.
    pub columns: Vec<Column>,
}

/// The launches of one kernel on one device.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct KernelRow {
    /// JSON pointer into the analysis (`roofgap analyze --format json`).
    pub id: String,
    /// Short name.
    pub name: String,
    /// Demangled name, cut to 240 characters.
    pub full_name: String,
    /// Kind of work.
    pub family: String,
    /// Device number; null where only totals are known.
    pub device: Option<u32>,
    /// Total time, ns.
    pub total_ns: i64,
    /// Share of the kernel time of the stage or trace, %; null without kernel time.
    pub share_pct: Option<f64>,
    /// Number of launches.
    pub calls: u64,
    /// Mean, ns.
    pub mean_ns: i64,
    /// Median, ns; null where only totals are known.
    pub median_ns: Option<i64>,
    /// Limiting resource; null without counters.
    pub bound: Option<String>,
    /// Rule and inputs of that verdict, or the reason for none; null without counters.
    pub bound_reason: Option<String>,
    /// Compute throughput, % of peak; null without counters.
    pub sm_pct: Option<f64>,
    /// DRAM throughput, % of peak; null without counters.
    pub dram_pct: Option<f64>,
}

/// Lists kernels.
pub fn answer(input: &str, analysis: &Analysis, request: &KernelsRequest) -> Result<KernelsAnswer, McpError> {
    let (base, kernels, whole) = match &request.stage {
        Some(name) => {
            let (position, stage) = stage::find(analysis, name)?;
            (format!("/stages/{position}/kernels"), &stage.kernels, stage.kernel_ns)
        }
        None => ("/kernels".to_owned(), &analysis.kernels, Some(analysis.totals.kernel_ns)),
    };
    let filter = request.filter.as_deref().unwrap_or_default().to_lowercase();
    let matches = |kernel: &Kernel| {
        let texts = [kernel.name.as_str(), kernel.short_name.as_str(), kernel.family.as_str()];
        texts.iter().any(|text| text.to_lowercase().contains(&filter))
    };
    let rows: Vec<(usize, &Kernel)> =
        kernels.iter().enumerate().filter(|(_, kernel)| filter.is_empty() || matches(kernel)).collect();
    let total: i64 = rows.iter().map(|(_, kernel)| kernel.total_ns).sum();
    let calls = rows.iter().map(|(_, kernel)| kernel.calls).sum();
    let shown = request.page.of(&rows);
    let without =
        || analysis.reason(&About::Counters).unwrap_or("no counters were measured for these kernels");
    Ok(KernelsAnswer {
        input: InputRef::of(input, analysis),
        stage: request.stage.clone(),
        count: rows.len(),
        total_time: Quantity::whole(Some(total), "ns", "timeline", ""),
        calls: Quantity::count(calls, "timeline"),
        counters_not_measured: shown
            .iter()
            .any(|(_, kernel)| kernel.counters.is_none())
            .then(|| without().to_owned()),
        kernels: shown
            .iter()
            .map(|(position, kernel)| row(format!("{base}/{position}"), kernel, whole))
            .collect(),
        columns: columns([
            ("total_ns", "ns", "sum of durations on the GPU, from the timeline"),
            ("share_pct", "%", "of the kernel time of the stage, or of the whole trace"),
            ("calls", "count", "launches, from the timeline"),
            ("mean_ns", "ns", "from the timeline"),
            ("median_ns", "ns", "from the timeline"),
            ("sm_pct", "%", "of the peak of compute, from ncu, for the launch shape with the most time"),
            ("dram_pct", "%", "of the peak of DRAM, from ncu, for the launch shape with the most time"),
        ]),
    })
}

fn row(id: String, kernel: &Kernel, whole: Option<i64>) -> KernelRow {
    let counters = kernel.counters.as_ref();
    KernelRow {
        id,
        name: cut(&kernel.short_name),
        full_name: cut(&kernel.name),
        family: kernel.family.to_string(),
        device: kernel.device,
        total_ns: kernel.total_ns,
        share_pct: whole
            .filter(|whole| *whole > 0)
            .map(|whole| 100.0 * kernel.total_ns as f64 / whole as f64),
        calls: kernel.calls,
        mean_ns: kernel.mean_ns,
        median_ns: kernel.median_ns,
        bound: counters.and_then(|counters| counters.bound.clone()),
        bound_reason: counters.map(|counters| cut(&counters.reason)),
        sm_pct: counters.and_then(|counters| counters.sm_pct),
        dram_pct: counters.and_then(|counters| counters.dram_pct),
    }
}
