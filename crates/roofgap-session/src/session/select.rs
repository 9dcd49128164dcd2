//! Which kernels go to ncu: the phase that makes `ncu/plan.json`.

use std::time::Duration;

use roofgap_analyze::Analyzed;
use roofgap_analyze::gpu::Dtype;

use super::baseline::Baseline;
use super::desk::Desk;
use super::timeline::Timeline;
use crate::config::settings::Ncu as NcuSettings;
use crate::record::{PhaseName, PhaseStatus};
use crate::select::{Limits, Plan, Policies, choose, strata};

/// Make the plan. `None` where there is nothing to measure; the phase says why.
pub(super) fn run(
    desk: &mut Desk<'_>,
    timeline: &Timeline,
    analyzed: &Analyzed,
    baseline: Option<&Baseline>,
) -> Option<Plan> {
    const PHASE: PhaseName = PhaseName::Select;
    let trace = &timeline.input.trace;
    if trace.ops.is_empty() {
        desk.skip(PHASE, false, "the timeline holds no kernels to choose from");
        return None;
    }
    desk.begin(PHASE);
    let found = strata::of(trace, analyzed);
    let mut ranges: Vec<String> = analyzed
        .analysis
        .stages
        .iter()
        .flat_map(|stage| stage.ranges.clone())
        .collect();
    ranges.sort();
    ranges.dedup();
    let settings = &desk.config.profiling.ncu;
    let plan = choose(&found, &ranges, &limits(desk, baseline), policies(settings));
    let status = match desk
        .run_dir
        .folder("ncu")
        .and_then(|_| desk.run_dir.write_json("ncu/plan.json", &plan))
    {
        Ok(path) => {
            desk.ledger.output(PHASE, &path);
            if plan.kernels.is_empty() {
                PhaseStatus::failed(nothing_affordable(&plan), None)
            } else {
                for cover in plan
                    .stages
                    .iter()
                    .filter(|cover| cover.covered_pct < desk.config.run.kernel_time_pct)
                {
                    desk.ledger.note(
                        PHASE,
                        format!(
                            "{}: {:.1} % of its kernel time is covered",
                            cover.name, cover.covered_pct
                        ),
                    );
                }
                PhaseStatus::Ok
            }
        }
        Err(error) => PhaseStatus::failed(error.to_string(), None),
    };
    let usable = status == PhaseStatus::Ok;
    desk.end(PHASE, status);
    usable.then_some(plan)
}

fn nothing_affordable(plan: &Plan) -> String {
    if plan.left_out.is_empty() {
        "no kernel of any stage takes any time".to_owned()
    } else {
        format!(
            "no kernel fits into {:.0} s, of which the program itself takes {:.0} s; raise run.counter_budget",
            plan.budget_seconds, plan.expected_seconds
        )
    }
}

fn limits(desk: &Desk<'_>, baseline: Option<&Baseline>) -> Limits {
    let (run, settings) = (&desk.config.run, &desk.config.profiling.ncu);
    let top_n = desk
        .config
        .runner
        .max_kernels
        .map_or(run.top_n_kernels, |most| most.min(run.top_n_kernels));
    let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or_default();
    let weights_gb = baseline.and_then(weights_gb).unwrap_or(0.0);
    let per_gb = settings.seconds_per_pass_and_gb * f64::from(settings.passes_per_launch);
    // Loading the program under ncu is slower than by itself; half as much again has been enough.
    let program = baseline.map_or(Duration::ZERO, |baseline| baseline.wall.mul_f64(1.5));
    Limits {
        top_n: top_n as usize,
        time_pct: run.kernel_time_pct,
        budget: run.counter_budget.0,
        startup: program.max(seconds(settings.startup_seconds)),
        per_launch: seconds(settings.seconds_per_launch + per_gb * weights_gb),
        passes_per_launch: settings.passes_per_launch,
        launch_count: settings.launch_count,
    }
}

/// The weights as the program states them.
fn weights_gb(baseline: &Baseline) -> Option<f64> {
    let model = baseline.account.as_ref()?.model.as_ref()?;
    let bits = model.dtype.as_deref()?.parse::<Dtype>().ok()?.bits();
    Some(model.parameters? as f64 * bits / 8e9)
}

fn policies(settings: &NcuSettings) -> Policies {
    let word = |value: serde_json::Result<serde_json::Value>| {
        value
            .ok()
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default()
    };
    Policies {
        clock_control: word(serde_json::to_value(settings.clock_control)),
        cache_control: word(serde_json::to_value(settings.cache_control)),
        replay_mode: word(serde_json::to_value(settings.replay_mode)),
    }
}
