//! Parts of the analysis from the program's own account.

use crate::attribution::{add_operator, sorted_operators};
use crate::model::{Architecture, Tokens};
use crate::result::{Note, Operator, Stage, StageOrigin, StartPart, SteadyUnit, WorkloadInfo};
use crate::stages::kind_of;
use crate::timeline::{Grouped, divide, expected, steady, step_summary, time_deviation};
use roofgap_trace::account::{Account, NoteTime};

/// Describes the workload: from the program's account; what it does not say from the named model; and its tokens. `None` where
/// nothing is known.
pub fn workload(
    account: Option<&Account>,
    name: Option<&str>,
    model: Option<&Architecture>,
    tokens: &Tokens,
) -> Option<WorkloadInfo> {
    let mut info = account.map(of_account).unwrap_or_default();
    let named = || name.or(model.map(Architecture::name)).map(str::to_owned);
    info.model = info.model.or_else(named);
    info.dtype = info.dtype.or_else(|| Some(model?.dtype.name().to_owned()));
    let count = model.map(Architecture::parameters);
    let whole = |value: f64| value.round() as u64;
    info.parameters = info.parameters.or(count.map(|count| whole(count.total)));
    info.active_parameters = info.active_parameters.or(count.map(|count| whole(count.active)));
    info.weight_bytes = count.map(|count| whole(count.bytes));
    info.prompt_tokens = tokens.prompt;
    info.generated_tokens = tokens.generated;
    info.batch = tokens.batch;
    info.vision_tokens = tokens.vision;
    (account.is_some() || info != WorkloadInfo::default()).then_some(info)
}

fn of_account(account: &Account) -> WorkloadInfo {
    let model = account.model.clone().unwrap_or_default();
    WorkloadInfo {
        model: model.name,
        revision: model.revision,
        parameters: model.parameters,
        active_parameters: model.active_parameters,
        dtype: model.dtype,
        weights: model.weights,
        device: account.device.as_ref().and_then(|d| d.name.clone()),
        // The answers of a server depend on the batches that it happened to make, so they do not compare two runs.
        token_hash: account.token_hash.clone().filter(|_| account.requests.is_none()),
        ..WorkloadInfo::default()
    }
}

/// Lists the parts of the start.
pub fn startup(account: &Account) -> Vec<StartPart> {
    let part = |part: &NoteTime| StartPart { name: part.name.clone(), ns: part.wall_ns };
    account.startup.iter().map(part).collect()
}

/// A stage in the making.
#[derive(Default)]
struct TimedStage<'a> {
    stage: Stage,
    steps: Vec<i64>,
    walls: Vec<i64>,
    notes: Grouped<&'a str, Note>,
}

/// Returns the stages as the program timed them, for a run without a timeline.
pub fn stages(account: &Account) -> Vec<Stage> {
    let mut stages: Grouped<&str, TimedStage<'_>> = Grouped::default();
    for time in account.repeats.iter().filter(|r| !r.warmup).flat_map(|r| &r.stages) {
        let new = || TimedStage {
            stage: Stage {
                name: time.name.clone(),
                kind: kind_of(&time.name),
                from: StageOrigin::Workload,
                ..Stage::default()
            },
            ..TimedStage::default()
        };
        let timed = stages.entry(&time.name, new);
        timed.stage.instances += 1;
        timed.stage.wall_ns += time.wall_ns;
        timed.walls.push(time.wall_ns);
        timed.steps.extend(time.steps_ns.iter().flatten());
        for part in &time.notes {
            let new = || Note { name: part.name.clone(), ..Note::default() };
            let note = timed.notes.entry(&part.name, new);
            note.instances += 1;
            note.wall_ns += part.wall_ns;
        }
    }
    let repeated =
        |unit: SteadyUnit, times: &[i64]| steady(unit, times, &expected(times, &vec![0.0; times.len()]));
    let finish = |timed: TimedStage<'_>| Stage {
        steady: match timed.steps.is_empty() {
            true => repeated(SteadyUnit::Instance, &timed.walls),
            false => repeated(SteadyUnit::Step, &timed.steps),
        },
        steps: step_summary(timed.steps, None),
        notes: timed.notes.items,
        mean_ns: Some(divide(timed.stage.wall_ns, timed.walls.len() as i64)),
        std_ns: time_deviation(&timed.walls),
        ..timed.stage
    };
    stages.items.into_iter().map(finish).collect()
}

/// Returns the operators as the program timed them, added up by name.
pub fn operators(account: &Account) -> Vec<Operator> {
    let mut operators: Grouped<&str, Operator> = Grouped::default();
    for timed in &account.operators {
        let sum =
            operators.entry(&timed.name, || Operator { name: timed.name.clone(), ..Operator::default() });
        let row = Operator {
            calls: timed.calls,
            self_cpu_ns: timed.self_cpu_ns,
            self_gpu_ns: timed.self_gpu_ns,
            total_cpu_ns: timed.total_cpu_ns,
            total_gpu_ns: timed.total_gpu_ns,
            ..Operator::default()
        };
        add_operator(sum, &row);
    }
    sorted_operators(operators.items)
}
