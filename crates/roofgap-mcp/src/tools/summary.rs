//! `summary`: the first things to know about a run or capture.

use super::{InputRequest, State};
use crate::answer::{InputRef, Origin, Quantity};
use roofgap_analyze::{About, Analysis, HostFunction, LossInfo, Reason, Stage, StageOrigin, verdict};
use roofgap_base::error::Error;
use roofgap_report::headline;
use schemars::JsonSchema;
use serde::Serialize;

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
    pub devices: Vec<String>,
    /// Number of GPUs.
    pub device_count: usize,
    /// Serving engine, where its step names were found.
    pub engine: Option<String>,
    /// Model, as named by the program.
    pub model: Option<String>,
    /// Number of kernels of the whole trace.
    pub kernel_count: Quantity,
    /// Total kernel time of the whole trace.
    pub kernel_time: Quantity,
    /// Time in which the GPUs were busy, summed over devices.
    pub busy_time: Quantity,
    /// Stages in the order of their first instance.
    pub stages: Vec<StageSummary>,
    /// Number of stages.
    pub stage_count: usize,
    /// Number of findings; the tool `findings` gives them.
    pub finding_count: usize,
    /// Losses of data on the way to these numbers.
    pub losses: Vec<LossInfo>,
    /// Parts of the analysis that were not measured, each with the reason.
    pub not_measured: Vec<Reason>,
    /// Number of parts that were not measured.
    pub not_measured_count: usize,
    /// Files that could not be read.
    pub unreadable: Vec<String>,
}

/// Summary of a stage.
#[derive(Serialize, JsonSchema)]
pub struct StageSummary {
    /// JSON pointer into the analysis (`roofgap analyze --format json`).
    pub id: String,
    /// Stage name.
    pub name: String,
    /// Limit in a word or two, such as `launch-bound`.
    pub limit: &'static str,
    /// Reason for that judgement.
    pub why: String,
    /// Number of instances.
    pub instances: Quantity,
    /// Wall time of all instances.
    pub wall_time: Quantity,
    /// Time in which its GPU operations ran.
    pub busy_time: Quantity,
    /// Total kernel time.
    pub kernel_time: Quantity,
    /// Number of kernels.
    pub kernel_count: Quantity,
    /// Number of launches.
    pub launch_count: Quantity,
    /// Idle time because the CPU had not launched yet.
    pub idle_launch: Quantity,
    /// Functions and lines of the CPU with most of its idle time; empty where the capture has no stacks.
    pub idle_in: Vec<HostFunction>,
    /// Number of steps.
    pub step_count: Quantity,
    /// Mean time of a step.
    pub step_time: Quantity,
    /// Tokens per second, all sequences together.
    pub tokens_per_s: Quantity,
    /// Model FLOPs utilisation by wall time.
    pub mfu: Quantity,
    /// Memory bandwidth utilisation by wall time.
    pub mbu: Quantity,
}

/// Summarises an analysis.
pub fn answer(state: &State, request: &InputRequest) -> Result<SummaryAnswer, Error> {
    let (input, opened) = state.open(request)?;
    let analysis = &opened.analysis;
    let totals = &analysis.totals;
    let from = format!("{:?}", totals.from).to_lowercase();
    let kernels = Origin { from: &from, why_not: "only totals are known, not when each operation ran" };
    let devices = analysis.devices.iter().take(MOST);
    let stages = analysis.stages.iter().take(MOST).enumerate();
    Ok(SummaryAnswer {
        input,
        headline: headline(analysis),
        devices: devices
            .map(|device| format!("{}: {}", device.id, device.name.as_deref().unwrap_or("unknown GPU")))
            .collect(),
        device_count: analysis.devices.len(),
        engine: analysis.engine.as_ref().map(|engine| engine.name.clone()),
        model: analysis.workload.as_ref().and_then(|workload| workload.model.clone()),
        kernel_count: kernels.count(totals.kernel_count),
        kernel_time: kernels.ns(totals.kernel_ns),
        busy_time: kernels.ns(totals.busy_ns),
        stages: stages.map(|(position, stage)| summary_of(analysis, position, stage)).collect(),
        stage_count: analysis.stages.len(),
        finding_count: analysis.findings.len(),
        losses: analysis.losses.iter().take(MOST).cloned().collect(),
        not_measured: analysis.reasons.iter().take(2 * MOST).cloned().collect(),
        not_measured_count: analysis.reasons.len(),
        unreadable: opened.unreadable.iter().take(MOST).cloned().collect(),
    })
}

fn summary_of(analysis: &Analysis, position: usize, stage: &Stage) -> StageSummary {
    let from = match stage.from {
        StageOrigin::Timeline => "timeline",
        StageOrigin::Workload => "workload account",
    };
    let reason = |about: fn(String) -> About, otherwise| {
        let why = |about: fn(String) -> About| analysis.reason(&about(stage.name.clone()));
        why(about).or_else(|| why(About::Stage)).unwrap_or(otherwise)
    };
    let gpu = Origin { from, why_not: reason(About::Stage, "no GPU work was recorded for this stage") };
    let of_steps = Origin { from, why_not: "no ranges mark the steps of this stage" };
    let work = |about| Origin {
        from: "model FLOPs and bytes over wall time, against the peak of the GPU",
        why_not: reason(about, "the work of the model is not known"),
    };
    let tokens = Origin {
        from: "tokens of the engine or of the workload account, over the time of the stage",
        why_not: reason(About::StageTokens, "the number of tokens is not known"),
    };
    // Without GPU work a count of 0 would be a guess.
    let on_gpu = |count: u64| gpu.count(stage.kernel_ns.map(|_| count));
    let steps = stage.steps.as_ref();
    let verdict = verdict(stage);
    StageSummary {
        id: format!("/stages/{position}"),
        name: stage.name.clone(),
        limit: verdict.label.as_str(),
        why: verdict.why,
        instances: gpu.count(stage.instances),
        wall_time: gpu.ns(stage.wall_ns),
        busy_time: gpu.ns(stage.busy_ns),
        kernel_time: gpu.ns(stage.kernel_ns),
        kernel_count: on_gpu(stage.kernel_count),
        launch_count: on_gpu(stage.launch_count),
        idle_launch: gpu.ns(stage.idle.map(|idle| idle.launch_ns)),
        idle_in: stage.host.iter().take(MOST).cloned().collect(),
        step_count: of_steps.count(steps.map(|steps| steps.count)),
        step_time: of_steps.ns(steps.map(|steps| steps.mean_ns)),
        tokens_per_s: tokens.real(stage.tokens_per_s, "tokens/s"),
        mfu: work(About::StageMfu).real(stage.mfu.as_ref().map(|mfu| mfu.by_wall_pct), "%"),
        mbu: work(About::StageMbu).real(stage.mbu.as_ref().map(|mbu| mbu.by_wall_pct), "%"),
    }
}
