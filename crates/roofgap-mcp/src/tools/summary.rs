//! `summary`: the first things to know about a run or capture.

use roofgap_analyze::{About, Analysis, Stage, verdict};
use roofgap_report::headline;
use schemars::JsonSchema;
use serde::Serialize;

use crate::quantity::{InputRef, Quantity, cut, cut_to};

/// Stages, devices, losses and reasons that a summary names.
const MOST: usize = 12;

/// Summary of a run or capture.
#[derive(Debug, Clone, Serialize, JsonSchema)]
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
    pub losses: Vec<LossRow>,
    /// Parts of the analysis that were not measured, each with the reason.
    pub not_measured: Vec<NotMeasured>,
    /// Number of parts that were not measured.
    pub not_measured_count: usize,
    /// Files that could not be read.
    pub unreadable: Vec<String>,
}

/// Summary of a stage.
#[derive(Debug, Clone, Serialize, JsonSchema)]
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

/// A loss of data.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LossRow {
    /// Stable id.
    pub id: String,
    /// `info`, `warning` or `error`.
    pub severity: String,
    /// Number of rows.
    pub count: u64,
    /// Effect on the numbers.
    pub meaning: String,
}

/// A part that was not measured.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct NotMeasured {
    /// Part, as a path into the analysis.
    pub about: String,
    /// Reason.
    pub why: String,
}

/// Summarises an analysis.
pub fn answer(input: &str, analysis: &Analysis, unreadable: &[String]) -> SummaryAnswer {
    let kernels_from = format!("{:?}", analysis.totals.from).to_lowercase();
    let totals_only = "only totals are known, not when each operation ran";
    SummaryAnswer {
        input: InputRef::of(input, analysis),
        headline: headline(analysis).map(|text| cut_to(&text, 1000)),
        devices: analysis
            .devices
            .iter()
            .take(MOST)
            .map(|device| {
                let name = device.name.as_deref().unwrap_or("unknown GPU");
                format!("{}: {}", device.id, cut(name))
            })
            .collect(),
        device_count: analysis.devices.len(),
        engine: analysis.engine.as_ref().map(|engine| cut(&engine.name)),
        model: analysis.workload.as_ref().and_then(|workload| workload.model.as_deref()).map(cut),
        kernel_count: Quantity::count(analysis.totals.kernel_count, &kernels_from),
        kernel_time: Quantity::whole(Some(analysis.totals.kernel_ns), "ns", &kernels_from, ""),
        busy_time: Quantity::whole(analysis.totals.busy_ns, "ns", &kernels_from, totals_only),
        stages: analysis
            .stages
            .iter()
            .take(MOST)
            .enumerate()
            .map(|(position, stage)| summary_of(analysis, position, stage))
            .collect(),
        stage_count: analysis.stages.len(),
        finding_count: analysis.findings.len(),
        losses: analysis
            .losses
            .iter()
            .take(MOST)
            .map(|loss| LossRow {
                id: loss.id.clone(),
                severity: loss.severity.clone(),
                count: loss.count,
                meaning: cut_to(&loss.meaning, 600),
            })
            .collect(),
        not_measured: analysis
            .reasons
            .iter()
            .take(2 * MOST)
            .map(|reason| NotMeasured {
                about: cut(&reason.about.to_string()),
                why: cut_to(&reason.why, 600),
            })
            .collect(),
        not_measured_count: analysis.reasons.len(),
        unreadable: unreadable.iter().take(MOST).map(|why| cut_to(why, 600)).collect(),
    }
}

fn summary_of(analysis: &Analysis, position: usize, stage: &Stage) -> StageSummary {
    let from = match stage.from {
        roofgap_analyze::StageOrigin::Timeline => "timeline",
        roofgap_analyze::StageOrigin::Workload => "workload account",
    };
    let name = || stage.name.clone();
    let reason = |about: About, otherwise: &str| {
        let why = analysis.reason(&about).or_else(|| analysis.reason(&About::Stage(name())));
        why.unwrap_or(otherwise).to_owned()
    };
    let no_gpu = reason(About::Stage(name()), "no GPU work was recorded for this stage");
    let no_steps = "no ranges mark the steps of this stage";
    let steps = stage.steps.as_ref();
    // Without GPU work a count of 0 would be a guess.
    let on_gpu = |count: u64| {
        let count = i64::try_from(count).ok().filter(|_| stage.kernel_ns.is_some());
        Quantity::whole(count, "count", from, &no_gpu)
    };
    let verdict = verdict(stage);
    let work = "model FLOPs and bytes over wall time, against the peak of the GPU";
    StageSummary {
        id: format!("/stages/{position}"),
        name: cut(&stage.name),
        limit: verdict.label.as_str(),
        why: cut_to(&verdict.why, 600),
        instances: Quantity::count(stage.instances, from),
        wall_time: Quantity::whole(Some(stage.wall_ns), "ns", from, ""),
        busy_time: Quantity::whole(stage.busy_ns, "ns", from, &no_gpu),
        kernel_time: Quantity::whole(stage.kernel_ns, "ns", from, &no_gpu),
        kernel_count: on_gpu(stage.kernel_count),
        launch_count: on_gpu(stage.launch_count),
        idle_launch: Quantity::whole(stage.idle.map(|idle| idle.launch_ns), "ns", from, &no_gpu),
        step_count: Quantity::whole(
            steps.and_then(|steps| i64::try_from(steps.count).ok()),
            "count",
            from,
            no_steps,
        ),
        step_time: Quantity::whole(steps.map(|steps| steps.mean_ns), "ns", from, no_steps),
        tokens_per_s: Quantity::real(
            stage.tokens_per_s,
            "tokens/s",
            "tokens of the engine or of the workload account, over the time of the stage",
            &reason(About::StageTokens(name()), "the number of tokens is not known"),
        ),
        mfu: Quantity::real(
            stage.mfu.as_ref().map(|mfu| mfu.by_wall_pct),
            "%",
            work,
            &reason(About::StageMfu(name()), "the work of the model is not known"),
        ),
        mbu: Quantity::real(
            stage.mbu.as_ref().map(|mbu| mbu.by_wall_pct),
            "%",
            work,
            &reason(About::StageMbu(name()), "the work of the model is not known"),
        ),
    }
}
