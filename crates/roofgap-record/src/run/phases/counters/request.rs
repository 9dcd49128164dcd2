//! Builds the ncu options for a plan.

use roofgap_analyze::StageSet;
use roofgap_analyze::counters::light_metrics;
use roofgap_collect::ncu::{self, NameBase, NcuProfile};
use roofgap_collect::range::NvtxRange;
use roofgap_collect::tool::Ncu;
use roofgap_trace::Trace;

use crate::run::phases::measured_rank::MeasuredRank;
use crate::run::phases::timeline::{Recorder, Timeline};
use crate::select::{Plan, mangled};
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::Ncu as NcuSettings;
use roofgap_runs::run_dir::Layout;

/// ncu options for a plan, with notes on them.
pub struct Request {
    pub options: NcuProfile,
    pub notes: Vec<String>,
}

/// Builds the ncu options for a plan.
pub fn request(
    config: &Config,
    layout: &Layout,
    tool: &Ncu,
    timeline: &Timeline,
    plan: &Plan,
    stages: &StageSet,
    rank: &MeasuredRank,
) -> Request {
    let mut notes = Vec::new();
    let trace = &timeline.input.trace;
    let (kernels, name_base) = names(layout, timeline.tool, plan, &mut notes);
    let capability = trace.devices.iter().find_map(|device| device.compute_capability);
    let wanted = metrics(&config.profiling.ncu, capability);
    let chip = capability.and_then(|(major, minor)| ncu::chip_name(major, minor));
    let (metrics, unknown) = match chip.map(|chip| tool.metrics_of(chip)) {
        // One unknown name makes ncu measure nothing.
        Some(Ok(known)) => ncu::split_supported(wanted, &known),
        Some(Err(_)) | None => (wanted, Vec::new()),
    };
    if !unknown.is_empty() {
        notes.push(format!("metrics unknown to this ncu for this device: {}", unknown.join(", ")));
    }
    let ranges = plan.ranges.iter().filter_map(|range| NvtxRange::parse(range));
    let options = NcuProfile {
        kernels,
        name_base,
        ranges: ranges.collect(),
        excluded_ranges: warmups(trace, stages),
        excluded_processes: rank.excluded(),
        metrics,
        ..base_options(config, layout)
    };
    Request { options, notes }
}

/// Builds the ncu options that do not depend on a timeline: no kernels, ranges or metrics.
pub fn base_options(config: &Config, layout: &Layout) -> NcuProfile {
    let settings = &config.profiling.ncu;
    NcuProfile {
        launches_per_config: settings.launch_count.max(1),
        set: settings.set.clone(),
        sections: settings.sections.clone(),
        metrics: metrics(settings, None),
        clock: settings.clock_control,
        cache: settings.cache_control,
        replay: settings.replay_mode,
        processes: settings.target_processes,
        extra: settings.extra_args.clone(),
        ..NcuProfile::new(layout.ncu_base())
    }
}

/// Lists the kernels by the names that the timeline and ncu share.
fn names(
    layout: &Layout,
    recorder: Recorder,
    plan: &Plan,
    notes: &mut Vec<String>,
) -> (Vec<String>, NameBase) {
    let known = match recorder {
        Recorder::Nsys => mangled::from_nsys(&layout.nsys_sqlite()).unwrap_or_default(),
        Recorder::Native => mangled::from_native(&layout.native_captures()).unwrap_or_default(),
    };
    let mangled: Option<Vec<Vec<String>>> =
        plan.kernels.iter().map(|name| known.get(name).cloned()).collect();
    if let Some(names) = mangled {
        return (names.into_iter().flatten().collect(), NameBase::Mangled);
    }
    let note =
        "the timeline has no mangled names; kernels are selected by function name, which may measure more";
    notes.push(note.to_owned());
    let functions = plan.kernels.iter().map(|name| function_name(name));
    (functions.collect(), NameBase::Function)
}

/// Strips a kernel name to the function: no return type, namespace, template arguments or parameters.
fn function_name(name: &str) -> String {
    let mut depth = 0_usize;
    let mut plain = String::new();
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && !plain.is_empty() => break,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let last = plain.trim().rsplit([' ', ':']).next().unwrap_or_default();
    if last.is_empty() { name.to_owned() } else { last.to_owned() }
}

fn metrics(settings: &NcuSettings, capability: Option<(u32, u32)>) -> Vec<String> {
    let small = |value: u32| u8::try_from(value).ok();
    let capability = capability.and_then(|(major, minor)| Some((small(major)?, small(minor)?)));
    let mut wanted: Vec<String> = Vec::new();
    for metric in &settings.metrics {
        match metric.as_str() {
            "auto" => wanted.extend(light_metrics(capability)),
            _ => wanted.push(metric.clone()),
        }
    }
    wanted.dedup();
    wanted
}

/// Lists the warm-up ranges of a trace. Stages inside them have the names of the measured ones and come first.
fn warmups(trace: &Trace, stages: &StageSet) -> Vec<NvtxRange> {
    let mut found: Vec<NvtxRange> = Vec::new();
    for range in &trace.ranges.rows {
        let (domain, name) = (trace.names.get(range.domain), trace.names.get(range.name));
        if stages.warmup.iter().any(|pattern| pattern.matches(domain, name)) {
            let domain = (!domain.is_empty()).then(|| domain.to_owned());
            let range = NvtxRange { domain, name: name.to_owned() };
            if !found.contains(&range) {
                found.push(range);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::function_name;

    #[test]
    fn bare_function_names() {
        for (name, bare) in [
            (
                "void at::native::vectorized_elementwise_kernel<(int)8, at::X<c10::BFloat16>>(int, T2, T3)",
                "vectorized_elementwise_kernel",
            ),
            ("nvjet_tst_192x192_64x4_v_bz", "nvjet_tst_192x192_64x4_v_bz"),
            ("void <unnamed>::softmax<float>(float *)", "softmax"),
            ("sm90_xmma_gemm(Params)", "sm90_xmma_gemm"),
        ] {
            assert_eq!(function_name(name), bare, "{name}");
        }
    }
}
