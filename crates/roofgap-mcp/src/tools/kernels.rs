//! `kernels`: kernels by total time.

use super::{InputRequest, Page, State, find_stage};
use crate::answer::{InputRef, Located};
use roofgap_analyze::{About, Kernel};
use roofgap_base::error::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Request for kernels.
#[derive(Deserialize, JsonSchema)]
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
#[derive(Serialize, JsonSchema)]
pub struct KernelsAnswer {
    #[serde(flatten)]
    pub input: InputRef,
    /// Stage; null for the whole trace.
    pub stage: Option<String>,
    /// Kernels, by total time.
    pub kernels: Vec<Located<KernelRow>>,
    /// Number of kernels by name and device that match.
    pub count: usize,
    /// Total time of all that match, also those that are not listed, ns.
    pub total_ns: i64,
    /// Number of launches of all that match.
    pub calls: u64,
    /// Reason why hardware counters are missing.
    pub counters_not_measured: Option<String>,
}

/// The launches of one kernel on one device.
#[derive(Serialize, JsonSchema)]
pub struct KernelRow {
    /// Share of the kernel time of the stage or trace, %; null without kernel time.
    pub share_pct: Option<f64>,
    #[serde(flatten)]
    pub kernel: Kernel,
}

/// Lists kernels.
pub fn answer(state: &State, request: &KernelsRequest) -> Result<KernelsAnswer, Error> {
    let (input, opened) = state.open(&request.input)?;
    let analysis = &opened.analysis;
    let (base, kernels, whole) = match &request.stage {
        Some(name) => {
            let (position, stage) = find_stage(analysis, name)?;
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
        kernels.iter().enumerate().filter(|(_, kernel)| matches(kernel)).collect();
    let shown = request.page.of(&rows);
    let share = |kernel: &Kernel| {
        let whole = whole.filter(|whole| *whole > 0)?;
        Some(100.0 * kernel.total_ns as f64 / whole as f64)
    };
    let row = |(position, kernel): &(usize, &Kernel)| Located {
        pointer: format!("{base}/{position}"),
        part: KernelRow { share_pct: share(kernel), kernel: (*kernel).clone() },
    };
    let without = shown.iter().any(|(_, kernel)| kernel.counters.is_none());
    let why = analysis.reason(&About::Counters).unwrap_or("no counters were measured for these kernels");
    Ok(KernelsAnswer {
        input,
        stage: request.stage.clone(),
        count: rows.len(),
        total_ns: rows.iter().map(|(_, kernel)| kernel.total_ns).sum(),
        calls: rows.iter().map(|(_, kernel)| kernel.calls).sum(),
        counters_not_measured: without.then(|| why.to_owned()),
        kernels: shown.iter().map(row).collect(),
    })
}
