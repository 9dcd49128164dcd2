//! `steps`: the steps of a stage, and the slowest of them.

use super::{InputRequest, Page, State, find_stage};
use crate::answer::{Column, InputRef, Origin, Quantity, columns};
use crate::error::McpError;
use roofgap_analyze::{Analysis, Stage, Steps};
use roofgap_report::main_stage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Slowest steps that an answer names.
const SLOWEST: usize = 5;

/// Request for steps.
#[derive(Deserialize, JsonSchema)]
pub struct StepsRequest {
    #[serde(flatten)]
    pub input: InputRequest,
    /// Stage; the first with steps by default, decode before others.
    pub stage: Option<String>,
    #[serde(flatten)]
    pub page: Page,
}

/// Steps of a stage.
#[derive(Serialize, JsonSchema)]
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
#[derive(Clone, Copy, Serialize, JsonSchema)]
pub struct StepRow {
    /// Position among the steps of the stage, from 0.
    pub step: usize,
    /// Time, ns.
    pub time_ns: i64,
}

/// Lists the steps of a stage.
pub fn answer(state: &State, request: &StepsRequest) -> Result<StepsAnswer, McpError> {
    let (input, loaded) = state.load(&request.input)?;
    let stage = match &request.stage {
        Some(name) => Some(find_stage(&loaded.analysis, name)?.1),
        None => stage_with_steps(&loaded.analysis),
    };
    let steps = stage.and_then(|stage| stage.steps.as_ref());
    let missing = match stage {
        Some(stage) if steps.is_none() => format!("no ranges mark the steps of {}", stage.name),
        _ => "no stage of this input has steps".to_owned(),
    };
    // A value that steps can be without has its own reason.
    let or = |why_not| Origin { from: "timeline", why_not: if steps.is_some() { why_not } else { &missing } };
    let time = |get: fn(&Steps) -> i64| or("").ns(steps.map(get));
    let each = steps.iter().flat_map(|steps| &steps.each_ns).enumerate();
    let rows: Vec<StepRow> = each.map(|(step, &time_ns)| StepRow { step, time_ns }).collect();
    let mut slowest = rows.clone();
    slowest.sort_by_key(|row| (std::cmp::Reverse(row.time_ns), row.step));
    slowest.truncate(SLOWEST);
    Ok(StepsAnswer {
        input,
        stage: stage.map(|stage| stage.name.clone()),
        count: or("").count(steps.map(|steps| steps.count)),
        mean: time(|steps| steps.mean_ns),
        p50: time(|steps| steps.p50_ns),
        p90: time(|steps| steps.p90_ns),
        p99: time(|steps| steps.p99_ns),
        launches_per_step: or("no launches were recorded")
            .real(steps.and_then(|steps| steps.launches_per_step), "count"),
        cpu_mean: or("the times of the steps are those of the CPU already")
            .ns(steps.and_then(|steps| Some(steps.cpu.as_ref()?.mean_ns))),
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
