//! `summary`: the first things to know about a run or capture. `kernels`: kernels by total time.

use super::{InputRef, InputRequest, Located, Page, State, find_stage};
use roofgap_analyze::{About, DeviceInfo, EngineInfo, Kernel, LossInfo, Reason, Stage, Totals, verdict};
use roofgap_base::error::Error;
use roofgap_report::headline;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Stages, devices, losses and unreadable files that a summary names.
const MOST: usize = 12;

/// Summary of a run or capture.
#[derive(Serialize, JsonSchema)]
pub struct SummaryAnswer {
    #[serde(flatten)]
    pub input: InputRef,
    /// The main result in one sentence; null where no stage was found.
    pub headline: Option<String>,
    /// GPUs, the first of them.
    pub devices: Vec<DeviceInfo>,
    /// Number of GPUs.
    pub device_count: usize,
    /// Serving engine, where its step names were found.
    pub engine: Option<EngineInfo>,
    /// Model, as named by the program.
    pub model: Option<String>,
    /// Times and counts of the whole trace.
    pub totals: Totals,
    /// Stages in the order of their first instance.
    pub stages: Vec<Located<StageSummary>>,
    /// Number of stages.
    pub stage_count: usize,
    /// Number of findings; the tool `findings` gives them.
    pub finding_count: usize,
    /// Losses of data on the way to these numbers.
    pub losses: Vec<LossInfo>,
    /// Reasons for null values, each with the path of what was not measured.
    pub not_measured: Vec<Reason>,
    /// Number of parts that were not measured.
    pub not_measured_count: usize,
    /// Files that could not be read.
    pub unreadable: Vec<String>,
}

/// Summary of a stage.
#[derive(Serialize, JsonSchema)]
pub struct StageSummary {
    /// Limit in a word or two, such as `launch-bound`.
    pub limit: &'static str,
    /// Reason for that judgement.
    pub why: String,
    /// Main fields of the stage in the analysis.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Fields of a stage in a summary.
const FIELDS: [&str; 14] = [
    "name",
    "kind",
    "from",
    "instances",
    "wall_ns",
    "busy_ns",
    "kernel_ns",
    "kernel_count",
    "launch_count",
    "idle",
    "steps",
    "tokens_per_s",
    "mfu",
    "mbu",
];

/// Summarises an analysis.
pub fn answer(state: &State, request: &InputRequest) -> Result<SummaryAnswer, Error> {
    let (input, opened) = state.open(request)?;
    let analysis = &opened.analysis;
    let stage = |(position, stage)| {
        let pointer = format!("/stages/{position}");
        Ok(Located { pointer, part: summary_of(stage)? })
    };
    let stages = analysis.stages.iter().take(MOST).enumerate().map(stage);
    Ok(SummaryAnswer {
        input,
        headline: headline(analysis),
        devices: analysis.devices.iter().take(MOST).cloned().collect(),
        device_count: analysis.devices.len(),
        engine: analysis.engine.clone(),
        model: analysis.workload.as_ref().and_then(|workload| workload.model.clone()),
        totals: analysis.totals.clone(),
        stages: stages.collect::<Result<_, Error>>()?,
        stage_count: analysis.stages.len(),
        finding_count: analysis.findings.len(),
        losses: analysis.losses.iter().take(MOST).cloned().collect(),
        not_measured: analysis.reasons.iter().take(2 * MOST).cloned().collect(),
        not_measured_count: analysis.reasons.len(),
        unreadable: opened.unreadable.iter().take(MOST).cloned().collect(),
    })
}

fn summary_of(stage: &Stage) -> Result<StageSummary, Error> {
    let verdict = verdict(stage);
    let failed = |error| Error::new(format!("cannot write the stage {}: {error}", stage.name));
    let Value::Object(mut fields) = serde_json::to_value(stage).map_err(failed)? else {
        return Err(Error::new("a stage is no object; this is a bug"));
    };
    // Lines of the CPU with most of its idle time; empty where the capture has no stacks.
    let host = stage.host.iter().take(MOST).map(serde_json::to_value).collect::<Result<_, _>>();
    fields.retain(|name, _| FIELDS.contains(&name.as_str()));
    fields.insert("host".to_owned(), Value::Array(host.map_err(failed)?));
    if let Some(Value::Object(steps)) = fields.get_mut("steps") {
        // The tool `steps` has each.
        steps.retain(|name, value| name != "each_ns" && !value.is_object());
    }
    if stage.kernel_ns.is_none() {
        // Without GPU work a count of 0 would be a guess.
        for name in ["kernel_count", "launch_count"] {
            fields.insert(name.to_owned(), Value::Null);
        }
    }
    Ok(StageSummary { limit: verdict.label.as_str(), why: verdict.why, fields })
}

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
pub fn answer_kernels(state: &State, request: &KernelsRequest) -> Result<KernelsAnswer, Error> {
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
    let shown = request.page.select(&rows);
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
