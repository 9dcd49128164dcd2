//! What the analysis gains from facts beside the timeline: counters, the model, the program's own account.

use crate::gpu::{DeviceReport, Dtype, GpuFacts, UserLimits};
use crate::model::{Architecture, StageKind, StageTime, StageWork, Tokens, mbu, mfu};
use crate::result::*;
use crate::timeline::steps;
use roofgap_trace::Trace;
use roofgap_trace::account::Account;

/// The first device of the trace as the tables know it, with its own report and the user's figures over them; or what the program
/// measured of its device; or why nothing is known.
pub(crate) fn gpu_facts(
    trace: &Trace,
    account: Option<&Account>,
    limits: UserLimits,
) -> Result<GpuFacts, String> {
    let measured = account.filter(|a| a.device.as_ref().and_then(|d| d.kind.as_deref()) == Some("cpu"));
    if let Some(peak) = measured.and_then(|a| a.peak.as_ref()) {
        let name = account
            .and_then(|a| a.device.as_ref()?.name.clone())
            .unwrap_or_else(|| "this CPU".into());
        return Ok(
            GpuFacts::measured(&name, peak.flops_per_s, peak.bytes_per_s, &peak.how).with_user_limits(limits),
        );
    }
    let Some(device) = trace.devices.first() else {
        if limits.is_set() {
            return Ok(GpuFacts::set_by_user("the device", limits));
        }
        return Err("the capture does not say which GPU it ran on".into());
    };
    let name = device.name.as_deref().unwrap_or("");
    let report = DeviceReport {
        bandwidth_bytes_per_s: device.bandwidth_bytes_per_s,
        clock_hz: device.clock_hz,
        sms: device.sms,
    };
    let (cc, memory) = (device.compute_capability, device.memory_bytes);
    Ok(GpuFacts::of_device(name, cc, memory, &report, limits))
}

/// MFU and MBU of every stage whose work is known, and of all together; a reason for every other.
pub(crate) fn utilisation(
    analysis: &mut Analysis,
    model: Result<&Architecture, &String>,
    gpu: Result<&GpuFacts, &String>,
    tokens: &Tokens,
    dtype: Option<Dtype>,
) {
    let mut reasons = Vec::new();
    let mut parts = Vec::new();
    for stage in &mut analysis.stages {
        let kind = match stage.name.as_str() {
            "prefill" => StageKind::Prefill,
            "decode" => StageKind::Decode,
            _ => continue,
        };
        let (no_mfu, no_mbu) = (
            About::StageMfu(stage.name.clone()),
            About::StageMbu(stage.name.clone()),
        );
        let mut missing = |what: &[&About], why: &str| {
            reasons.extend(what.iter().map(|about| Reason::new((*about).clone(), why)));
        };
        let model = match model {
            Ok(model) => model,
            Err(why) => {
                missing(&[&no_mfu, &no_mbu], why);
                continue;
            }
        };
        let gpu = match gpu {
            Ok(gpu) => gpu,
            Err(why) => {
                missing(&[&no_mfu, &no_mbu], why);
                continue;
            }
        };
        let steps = stage.steps.as_ref().map(|s| s.count);
        let work = match model.stage_work(kind, tokens, stage.instances, steps) {
            Ok(work) => work.on_devices(stage.device_count as u32),
            Err(misfit) => {
                missing(&[&no_mfu, &no_mbu], &misfit.to_string());
                continue;
            }
        };
        // Ranges that close before the GPU has finished hold only part of the time.
        let mut work = work;
        if stage.closes_early() {
            work.assumptions.push(format!(
                "the ranges of {} close {:.3} ms before the GPU has finished, so the time to the end of its work counts",
                stage.name,
                stage.late_ns as f64 / 1e6
            ));
        }
        let time = StageTime {
            wall_ns: stage.elapsed_ns(),
            busy_ns: stage.busy_ns,
            step_ns: stage.steps.as_ref().map(|s| s.mean_ns),
        };
        match mfu(&work, gpu, dtype.unwrap_or(model.dtype), time) {
            Ok(value) => stage.mfu = Some(value),
            Err(why) => missing(&[&no_mfu], &why),
        }
        match mbu(&work, gpu, time) {
            Ok(value) => stage.mbu = Some(value),
            Err(why) => missing(&[&no_mbu], &why),
        }
        // Together, what one stage still does while the next has begun would count twice.
        let time = StageTime {
            wall_ns: stage.wall_ns,
            ..time
        };
        parts.push((work, time));
    }
    if let (Ok(model), Ok(gpu), true) = (model, gpu, parts.len() > 1) {
        analysis.whole = Some(whole(&parts, gpu, dtype.unwrap_or(model.dtype)));
    }
    analysis.reasons.extend(reasons);
}

/// The stages together.
fn whole(parts: &[(StageWork, StageTime)], gpu: &GpuFacts, dtype: Dtype) -> Whole {
    let works: Vec<&StageWork> = parts.iter().map(|p| &p.0).collect();
    let work = StageWork::together("whole", &works);
    let time = StageTime {
        wall_ns: parts.iter().map(|p| p.1.wall_ns).sum(),
        busy_ns: parts.iter().map(|p| p.1.busy_ns).sum(),
        step_ns: None,
    };
    Whole {
        wall_ns: time.wall_ns,
        busy_ns: time.busy_ns,
        mfu: mfu(&work, gpu, dtype, time).ok(),
        mbu: mbu(&work, gpu, time).ok(),
    }
}

/// What the program says about itself.
pub(crate) fn workload(account: &Account) -> WorkloadInfo {
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

/// Tokens as stated by the user, and where he said nothing by the program.
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

/// Stages by the program's own clock, for a run without a timeline.
pub(crate) fn stages_of(account: &Account) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    let mut each: Vec<Vec<i64>> = Vec::new();
    for time in account
        .repeats
        .iter()
        .filter(|r| !r.warmup)
        .flat_map(|r| &r.stages)
    {
        let at = stages
            .iter()
            .position(|s| s.name == time.name)
            .unwrap_or_else(|| {
                stages.push(Stage {
                    name: time.name.clone(),
                    from: StageOrigin::Workload,
                    ..Stage::default()
                });
                each.push(Vec::new());
                stages.len() - 1
            });
        let (Some(stage), Some(steps)) = (stages.get_mut(at), each.get_mut(at)) else {
            continue;
        };
        stage.instances += 1;
        stage.wall_ns += time.wall_ns;
        steps.extend(time.steps_ns.iter().flatten());
        for part in &time.notes {
            let at = stage
                .notes
                .iter()
                .position(|n| n.name == part.name)
                .unwrap_or_else(|| {
                    stage.notes.push(Note {
                        name: part.name.clone(),
                        ..Note::default()
                    });
                    stage.notes.len() - 1
                });
            if let Some(note) = stage.notes.get_mut(at) {
                note.instances += 1;
                note.wall_ns += part.wall_ns;
            }
        }
    }
    for (stage, steps) in stages.iter_mut().zip(each) {
        stage.steps = steps::summary(steps, None);
    }
    stages
}

/// The program's own operators, the stages of one name added up.
pub(crate) fn operators_of(account: &Account) -> Vec<Operator> {
    let mut operators: Vec<Operator> = Vec::new();
    for own in &account.operators {
        let at = operators
            .iter()
            .position(|o| o.name == own.name)
            .unwrap_or_else(|| {
                operators.push(Operator {
                    name: own.name.clone(),
                    ..Operator::default()
                });
                operators.len() - 1
            });
        let Some(sum) = operators.get_mut(at) else {
            continue;
        };
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
    operators.sort_by(|a, b| {
        (b.self_gpu_ns, b.self_cpu_ns)
            .cmp(&(a.self_gpu_ns, a.self_cpu_ns))
            .then_with(|| a.name.cmp(&b.name))
    });
    operators
}
