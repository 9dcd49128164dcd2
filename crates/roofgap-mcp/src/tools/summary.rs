//! `summary`: the first things to know about a run or capture.

use super::{InputRequest, State};
use crate::answer::{InputRef, Located};
use roofgap_analyze::{DeviceInfo, EngineInfo, LossInfo, Reason, Stage, Totals, verdict};
use roofgap_base::error::Error;
use roofgap_report::headline;
use schemars::JsonSchema;
use serde::Serialize;
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
