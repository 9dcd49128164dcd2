//! Parts of the analysis from the program's own account.

use crate::model::{Architecture, Tokens};
use crate::result::{Note, Operator, Stage, StageOrigin, WorkloadInfo};
use crate::timeline::kernels::divide;
use crate::timeline::step_periods::sample_deviation;
use crate::timeline::{find_or_push, sort_operators, steps};
use roofgap_trace::account::Account;

/// Describes the workload: from the program's account; what it does not say from the named model and the stated tokens. `None`
/// where nothing is known.
pub(crate) fn workload(
    account: Option<&Account>,
    name: Option<&str>,
    model: Option<&Architecture>,
    tokens: &Tokens,
) -> Option<WorkloadInfo> {
    let mut info = account.map(of_account).unwrap_or_default();
    let named = || name.or(model.map(Architecture::name)).map(str::to_owned);
    info.model = info.model.or_else(named);
    info.dtype = info.dtype.or_else(|| Some(model?.dtype.name().to_owned()));
    info.prompt_tokens = info.prompt_tokens.or(tokens.prompt);
    info.generated_tokens = info.generated_tokens.or(tokens.generated);
    info.batch = info.batch.or(tokens.batch);
    info.vision_tokens = info.vision_tokens.or(tokens.vision);
    (account.is_some() || info != WorkloadInfo::default()).then_some(info)
}

fn of_account(account: &Account) -> WorkloadInfo {
    let model = account.model.clone().unwrap_or_default();
    let tokens = account.tokens.unwrap_or_default();
    WorkloadInfo {
        model: model.name,
        revision: model.revision,
        parameters: model.parameters,
        active_parameters: model.active_parameters,
        dtype: model.dtype,
        weights: model.weights,
        prompt_tokens: tokens.prompt,
        generated_tokens: tokens.generated,
        batch: tokens.batch,
        vision_tokens: tokens.vision,
        device: account.device.as_ref().and_then(|d| d.name.clone()),
        token_hash: account.token_hash.clone(),
    }
}

/// Returns the tokens: each number from the user, else from the program.
pub(crate) fn tokens(stated: &Tokens, account: Option<&Account>) -> Tokens {
    let own = account.and_then(|a| a.tokens).unwrap_or_default();
    Tokens {
        prompt: stated.prompt.or(own.prompt),
        generated: stated.generated.or(own.generated),
        batch: stated.batch.or(own.batch),
        vision: stated.vision.or(own.vision),
        views: stated.views.clone(),
    }
}

/// Returns the stages as the program timed them, for a run without a timeline.
pub(crate) fn stages(account: &Account) -> Vec<Stage> {
    let mut stages: Vec<(Stage, Vec<i64>, Vec<i64>)> = Vec::new();
    for time in account
        .repeats
        .iter()
        .filter(|r| !r.warmup)
        .flat_map(|r| &r.stages)
    {
        let new = || {
            let stage = Stage {
                name: time.name.clone(),
                from: StageOrigin::Workload,
                ..Stage::default()
            };
            (stage, Vec::new(), Vec::new())
        };
        let (stage, steps, walls) = find_or_push(&mut stages, |(stage, ..)| stage.name == time.name, new);
        stage.instances += 1;
        stage.wall_ns += time.wall_ns;
        walls.push(time.wall_ns);
        steps.extend(time.steps_ns.iter().flatten());
        for part in &time.notes {
            let new = || Note {
                name: part.name.clone(),
                ..Note::default()
            };
            let note = find_or_push(&mut stage.notes, |note| note.name == part.name, new);
            note.instances += 1;
            note.wall_ns += part.wall_ns;
        }
    }
    let with_steps = |(mut stage, each, walls): (Stage, Vec<i64>, Vec<i64>)| {
        stage.steps = steps::summary(each, None);
        stage.mean_ns = Some(divide(stage.wall_ns, walls.len() as i64));
        stage.std_ns = sample_deviation(&walls);
        stage
    };
    stages.into_iter().map(with_steps).collect()
}

/// Returns the operators as the program timed them, added up by name.
pub fn operators(account: &Account) -> Vec<Operator> {
    let mut operators: Vec<Operator> = Vec::new();
    for own in &account.operators {
        let new = || Operator {
            name: own.name.clone(),
            ..Operator::default()
        };
        let sum = find_or_push(&mut operators, |sum| sum.name == own.name, new);
        sum.calls += own.calls;
        sum.self_cpu_ns += own.self_cpu_ns;
        sum.total_cpu_ns += own.total_cpu_ns;
        let add = |sum: &mut Option<i64>, value: Option<i64>| {
            if let Some(value) = value {
                *sum.get_or_insert(0) += value;
            }
        };
        add(&mut sum.self_gpu_ns, own.self_gpu_ns);
        add(&mut sum.total_gpu_ns, own.total_gpu_ns);
    }
    sort_operators(&mut operators);
    operators
}
