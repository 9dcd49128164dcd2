//! `steps`: the steps of a stage, and the slowest of them.

use roofgap_analyze::{Analysis, Stage};
use roofgap_report::main_stage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::{InputRequest, Page};
use super::stage;
use crate::error::McpError;
use crate::quantity::{Column, InputRef, Quantity, columns};

/// Slowest steps that an answer names.
const SLOWEST: usize = 5;

/// Request for steps.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct StepsRequest {
    #[serde(flatten)]
    pub input: InputRequest,
    /// Stage; the first with steps by default, decode before others.
    pub stage: Option<String>,
    #[serde(flatten)]
    pub page: Page,
}

/// Steps of a stage.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct StepsAnswer {
    #[serde(flatten)]
    pub input: InputRef,
    /// Stage; null where no stage has steps.
    pub stage: Option<String>,
    /// Number of steps.
    pub count: Quantity,
    /// Mean time.
    pub mean: Quantity,
    /// Median.
    pub p50: Quantity,
    /// 90th percentile.
    pub p90: Quantity,
    /// 99th percentile.
    pub p99: Quantity,
    /// Mean number of launches of a step.
    pub launches_per_step: Quantity,
    /// Mean time of a step on the CPU, where it differs.
    pub cpu_mean: Quantity,
    /// Steps in order.
    pub steps: Vec<StepRow>,
    /// Slowest steps, slowest first.
    pub slowest: Vec<StepRow>,
    /// Units and meaning of the rows.
    pub columns: Vec<Column>,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepRow {
    /// Position among the steps of the stage, from 0.
    pub step: usize,
    /// Time, ns.
    pub time_ns: i64,
}

/// Lists the steps of a stage.
pub fn answer(input: &str, analysis: &Analysis, request: &StepsRequest) -> Result<StepsAnswer, McpError> {
    let stage = match &request.stage {
        Some(name) => Some(stage::find(analysis, name)?.1),
        None => stage_with_steps(analysis),
    };
    let steps = stage.and_then(|stage| stage.steps.as_ref());
    let why = match stage {
        Some(stage) if steps.is_none() => format!("no ranges mark the steps of {}", stage.name),
        _ => "no stage of this input has steps".to_owned(),
    };
    let rows: Vec<StepRow> = steps
        .iter()
        .flat_map(|steps| &steps.each_ns)
        .enumerate()
        .map(|(step, &time_ns)| StepRow { step, time_ns })
        .collect();
    let mut slowest = rows.clone();
    slowest.sort_by_key(|row| (std::cmp::Reverse(row.time_ns), row.step));
    slowest.truncate(SLOWEST);
    let time = |value| Quantity::whole(value, "ns", "timeline", &why);
    let same =
        if steps.is_some() { "the times of the steps are those of the CPU already" } else { why.as_str() };
    Ok(StepsAnswer {
        input: InputRef::of(input, analysis),
        stage: stage.map(|stage| stage.name.clone()),
        count: Quantity::whole(
            steps.and_then(|steps| i64::try_from(steps.count).ok()),
            "count",
            "timeline",
            &why,
        ),
        mean: time(steps.map(|steps| steps.mean_ns)),
        p50: time(steps.map(|steps| steps.p50_ns)),
        p90: time(steps.map(|steps| steps.p90_ns)),
        p99: time(steps.map(|steps| steps.p99_ns)),
        launches_per_step: Quantity::real(
            steps.and_then(|steps| steps.launches_per_step),
            "count",
            "timeline",
            if steps.is_some() { "no launches were recorded" } else { &why },
        ),
        cpu_mean: Quantity::whole(
            steps.and_then(|steps| steps.cpu.as_ref()).map(|cpu| cpu.mean_ns),
            "ns",
            "timeline",
            same,
        ),
        steps: request.page.of(&rows).to_vec(),
        slowest,
        columns: columns([(
            "time_ns",
            "ns",
            "from the first GPU operation of a step to that of the next; the CPU time of its range without GPU work",
        )]),
    })
}

/// Returns the main stage of the reports or, where it has no steps, the first that has.
fn stage_with_steps(analysis: &Analysis) -> Option<&Stage> {
    let has_steps = |stage: &&Stage| stage.steps.is_some();
    let main = main_stage(analysis).filter(has_steps);
    main.or_else(|| analysis.stages.iter().find(has_steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::Steps;

    #[test]
    fn the_stage_is_that_of_the_summary() {
        let stage = |name: &str| {
            let mut stage = Stage::default();
            (stage.name, stage.steps) = (name.to_owned(), Some(Steps::default()));
            stage
        };
        let mut analysis = Analysis::default();
        analysis.stages = vec![stage("mixed"), stage("decode")];
        assert_eq!(
            stage_with_steps(&analysis).map(|stage| &stage.name),
            main_stage(&analysis).map(|stage| &stage.name)
        );
        analysis.stages[1].steps = None;
        assert_eq!(stage_with_steps(&analysis).unwrap().name, "mixed");
    }
}
