//! What is asked of ncu, as a value.

use roofgap_analyze::StageSet;
use roofgap_analyze::counters::light_metrics;
use roofgap_collect::ncu::{self, NameBase};
use roofgap_collect::range::NvtxRange;
use roofgap_collect::tool::Ncu;
use roofgap_trace::Trace;

use super::layout::Layout;
use super::timeline::{Recorder, Timeline};
use crate::config::Config;
use crate::config::settings::Ncu as NcuSettings;
use crate::select::{Plan, mangled};

/// A request, and what is worth knowing about it.
pub(super) struct Request {
    pub(super) plan: ncu::NcuProfile,
    pub(super) notes: Vec<String>,
}

/// What is asked of ncu for a plan.
pub(super) fn request(
    config: &Config,
    layout: &Layout,
    tool: &Ncu,
    timeline: &Timeline,
    plan: &Plan,
    stages: &StageSet,
) -> Request {
    let mut notes = Vec::new();
    let trace = &timeline.input.trace;
    let (kernels, name_base) = names(layout, timeline.tool, plan, &mut notes);
    let capability = trace.devices.iter().find_map(|device| device.compute_capability);
    let wanted = metrics(&config.profiling.ncu, capability);
    let chip = capability.and_then(|(major, minor)| ncu::chip_name(major, minor));
    let (metrics, lacking) = match chip.map(|chip| tool.metrics_of(chip)) {
        // ncu measures nothing at all where one name is unknown to it.
        Some(Ok(known)) => ncu::split_supported(wanted, &known),
        Some(Err(_)) | None => (wanted, Vec::new()),
    };
    if !lacking.is_empty() {
        notes.push(format!(
            "this ncu does not know for this device: {}",
            lacking.join(", ")
        ));
    }
    let plan = ncu::NcuProfile {
        kernels,
        name_base,
        ranges: plan
            .ranges
            .iter()
            .filter_map(|range| NvtxRange::parse(range))
            .collect(),
        excluded_ranges: warmups(trace, stages),
        metrics,
        ..blank(config, layout)
    };
    Request { plan, notes }
}

/// A request before kernels, ranges and metrics are known.
pub(super) fn blank(config: &Config, layout: &Layout) -> ncu::NcuProfile {
    let settings = &config.profiling.ncu;
    ncu::NcuProfile {
        launches_per_config: settings.launch_count.max(1),
        set: settings.set.clone(),
        sections: settings.sections.clone(),
        metrics: metrics(settings, None),
        clock: settings.clock_control,
        cache: settings.cache_control,
        replay: settings.replay_mode,
        processes: settings.target_processes,
        extra: settings.extra_args.clone(),
        ..ncu::NcuProfile::new(layout.ncu_base())
    }
}

/// The kernels by the name on which the timeline and ncu agree.
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
    match mangled {
        Some(names) => (names.into_iter().flatten().collect(), NameBase::Mangled),
        None => {
            notes.push(
                "the timeline has no mangled names; kernels are asked for by function name, which may measure more"
                    .to_owned(),
            );
            (
                plan.kernels.iter().map(|name| function_name(name)).collect(),
                NameBase::Function,
            )
        }
    }
}

/// The bare name of a function: no return type, namespace, template arguments or parameters.
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
    if last.is_empty() {
        name.to_owned()
    } else {
        last.to_owned()
    }
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

/// The warm-up ranges that occur: stages inside them are called as the others are, and come first.
fn warmups(trace: &Trace, stages: &StageSet) -> Vec<NvtxRange> {
    let mut found: Vec<NvtxRange> = Vec::new();
    for range in &trace.ranges.rows {
        let (domain, name) = (trace.names.get(range.domain), trace.names.get(range.name));
        if stages.warmup.iter().any(|pattern| pattern.matches(domain, name)) {
            let domain = (!domain.is_empty()).then(|| domain.to_owned());
            let range = NvtxRange {
                domain,
                name: name.to_owned(),
            };
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
