//! The GPU waits for the CPU to launch.

use super::LEAST_SMALL_GAP_PCT;
use super::words::{self, is_dispatch, operation};
use crate::findings::LaunchGap;
use crate::findings::program::is_fused;
use crate::findings::rule::{View, fill, percent};
use crate::model::{Chosen, distinct_experts};
use crate::names::Family;
use crate::numbers::{count, time};
use crate::result::{Confidence, Finding, GraphRow, Stage, StageKind};
use crate::timeline::LAUNCH_LATENCY_NS;
use crate::verdict::{StageLimit, verdict};
use roofgap_base::stats::median;

/// Where the gap before a launch is longer than this on average, the CPU does other work between launches.
const LONG_GAP_NS: i64 = 200_000;

/// A step with at most this many launches counts as captured.
const FEW_LAUNCHES: f64 = 32.0;

/// Or one with this many graph kernels per launch.
const NEARLY_WHOLE: u64 = 8;

/// A stage in which the GPU is idle because the next operation was not launched yet, and not because the CPU had waited for
/// the GPU or got data before. Where only totals are known (a summary table and a wall time), all that the kernels do not cover
/// counts, since one cannot tell gaps apart.
pub fn launch_bound(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let launching = Launching::from_view(view)?;
    let (busy_ns, busy_pct) = (stage.busy_ns.or(stage.kernel_ns)?, 100.0 * stage.busy_share()?);
    let profiler_ns = (launching.gap_ns.max(0) as f64 * stage.profiler_part()) as i64;
    let draft = match (stage.idle, stage.launch_after) {
        (Some(idle), after) => view
            .saves_on_devices(&[
                ("idle time in which the next operation was not launched", idle.launch_ns),
                ("after a wait for the device", -after.sync_ns),
                ("after a copy", -after.copy_ns),
                ("in the data loader", -stage.data_loading_ns),
                ("loading code or a graph for the first time", -stage.idle_detail.cold_ns),
                ("before the first operation of a step", -host_first_ns(stage)),
                ("while the CPU did other work", -stage.idle_detail.host_work_ns),
                ("while it allocated or freed memory", -stage.idle_detail.allocation_ns),
                ("in steps that take much longer than the others", -launching.slow_ns),
                ("cost of the profiler", -profiler_ns),
            ])
            // That cost is fitted, and launches between allocations do not follow one another.
            .confidence(match profiler_ns > 0 || launching.allocates {
                true => Confidence::Bounded,
                false => view.rule.confidence,
            }),
        (None, _) => view
            .saves_on_devices(&[("wall time", stage.wall_ns), ("kernel time", -busy_ns)])
            .confidence(Confidence::Guessed)
            .with("from", "kernel totals and wall time: all time without kernels counts"),
    };
    let gap_ns = stage.each_device(launching.gap_ns);
    let rate = launching.per_step.filter(|_| stage.steps.as_ref().is_some_and(|steps| steps.count > 1));
    let rate = rate.map_or_else(String::new, |rate| format!(", {} a step", count(rate.round() as u64)));
    let in_one =
        launching.one_gap.map_or_else(String::new, |gap| format!(", {} of it in one gap", time(gap.ns)));
    // The table of stages names another limit where something else takes more.
    let limit = match verdict(stage).label {
        StageLimit::Launch | StageLimit::NotMeasured => " is launch-bound:",
        _ => ":",
    };
    let title = format!(
        "{}{limit} the GPU is busy {busy_pct:.1} % of the time and waits {} for {} launches{rate}{in_one}{}",
        stage.spoken(),
        time(gap_ns),
        count(launching.launches),
        words::line(stage)
    );
    let left = stage.own_ns() - draft.bound_ns();
    let action = format!(
        "{}{} If every such gap vanished the stage would take {}.",
        words::first_step(stage),
        launching.action(view),
        time(left)
    );
    draft
        .with("wall_ns", stage.wall_ns)
        .with("busy_ns", busy_ns)
        .with_number("busy_pct", busy_pct)
        .with("launches", launching.launches)
        .with_number("gap_per_launch_ns", launching.gap_ns as f64 / launching.launches as f64)
        .with("light_kernels", light_kernels(stage))
        .with("idle_launch_ns", stage.idle.map(|idle| idle.launch_ns))
        .with("idle_total_ns", stage.idle.map(|idle| idle.total_ns()))
        .with_number("mean_kernel_ns", mean_kernel_ns(stage).map(|ns| ns as f64))
        .with_number("launches_per_step", launching.per_step)
        .with("graph_launches", (launching.graphs > 0).then_some(launching.graphs))
        .with("longest_gap_ns", launching.one_gap.map(|gap| gap.ns))
        .with("longest_gap_before", launching.one_gap.map(|gap| operation(view, gap)))
        .with("remedy", launching.remedy(view))
        .finish(title, action)
}

/// The launches of a stage, and the gaps before them.
struct Launching<'a> {
    launches: u64,
    per_step: Option<f64>,
    /// Idle time before launches, summed over devices, ns, without that of slow steps.
    gap_ns: i64,
    slow_ns: i64,
    /// The gap that is most of this time.
    one_gap: Option<&'a LaunchGap>,
    /// Launches of graphs.
    graphs: u64,
    is_mostly_graphs: bool,
    /// Launches outside of graphs are few beside the kernels.
    is_nearly_whole: bool,
    /// Other stages of the program replay graphs.
    others_replay: bool,
    /// Idle time in calls that allocate memory is at least half as much.
    allocates: bool,
    /// Most kernels run for the first time.
    is_single_pass: bool,
}

impl<'a> Launching<'a> {
    /// Returns the launches of a stage whose gaps are its largest loss.
    fn from_view(view: &View<'a>) -> Option<Self> {
        let stage = view.stage;
        let launches = if stage.launch_count > 0 { stage.launch_count } else { stage.kernel_count };
        let busy_ns = stage.busy_ns.or(stage.kernel_ns).filter(|ns| *ns > 0)?;
        let causes = stage.causes();
        let gap_ns = match causes {
            Some(causes) => {
                let known = stage.data_loading_ns + stage.idle_detail.known_ns();
                causes.launch_ns - known - host_first_ns(stage)
            }
            None => stage.wall_ns - busy_ns,
        };
        let slow_ns = if view.program.trains { slow_steps_ns(stage).clamp(0, gap_ns.max(0)) } else { 0 };
        let slow_ns = if 3 * slow_ns >= gap_ns { slow_ns } else { 0 };
        let gap_ns = gap_ns - slow_ns;
        // Fewer launches save the time that each takes to start, too.
        let other_ns = |ns| if is_dispatch(stage, ns) { 0 } else { ns };
        let largest = causes
            .is_none_or(|other| gap_ns >= other.sync_ns.max(other.copy_ns).max(other_ns(other.other_ns)));
        let large = view.pct(gap_ns) >= LEAST_SMALL_GAP_PCT;
        // What is left of a cold run is not how a warm one goes.
        let cold = stage.idle_detail.cold_ns + stage.before.cold_ns > gap_ns;
        if launches == 0 || !stage.computes() || !large || !largest || cold {
            return None;
        }
        let steps = stage.steps.as_ref().filter(|steps| steps.count > 0);
        let longest = view.evidence.and_then(|evidence| evidence.longest_launch_gap.as_ref());
        let graphs = view.evidence.map_or(0, |evidence| evidence.graph_launches);
        let (_, whole_ns) = GraphRow::sum(&stage.graphs);
        // Each other launch starts one kernel at most; the rest of the kernels are in graphs.
        let others = launches.saturating_sub(graphs);
        let in_graphs = others < stage.kernel_count / 2 || whole_ns > stage.kernel_ns.unwrap_or(0);
        Some(Self {
            launches,
            per_step: steps.map(|s| s.launches_per_step.unwrap_or(launches as f64 / s.count as f64)),
            gap_ns,
            slow_ns,
            one_gap: longest
                .filter(|gap| gap.ns > gap_ns / 2 && gap.ns > LONG_GAP_NS && gap.ns - gap.ns / 20 <= gap_ns),
            graphs,
            is_mostly_graphs: graphs > 0 && (graphs > others || in_graphs),
            is_nearly_whole: others.saturating_mul(NEARLY_WHOLE) <= stage.kernel_count,
            others_replay: view.inputs.evidence.iter().any(|other| other.graph_launches > 0),
            allocates: 2 * stage.idle_detail.allocation_ns >= gap_ns,
            is_single_pass: steps.is_none() && 2 * stage.kernels.len() as u64 > stage.kernel_count,
        })
    }

    /// The work is in graphs, and the time goes between them.
    fn is_between_graphs(&self) -> bool {
        let few = self.per_step.is_none_or(|launches| launches <= FEW_LAUNCHES);
        self.is_mostly_graphs && (few || self.is_nearly_whole)
    }

    fn mean_gap_ns(&self) -> i64 {
        self.gap_ns / self.launches.max(1) as i64
    }

    /// Names the remedy where it is another than that of the rule.
    fn remedy(&self, view: &View<'_>) -> Option<&'static str> {
        if self.one_gap.is_some() || self.is_between_graphs() {
            None
        } else if self.is_single_pass {
            Some("a warm-up")
        } else if self.mean_gap_ns() > LONG_GAP_NS {
            Some("less CPU work between launches")
        } else {
            let never_replays = self.graphs == 0 && !self.others_replay && waits_of_a_step(view).is_none();
            (view.stage.steps.is_some() && never_replays && !view.program.trains).then_some("CUDA graphs")
        }
    }

    fn action(&self, view: &View<'_>) -> String {
        if let Some(gap) = self.one_gap {
            let share = format!("{:.0}", percent(gap.ns, self.gap_ns).min(100.0));
            let look = words::start_with(view.stage, || view.action("profile of a gap").to_owned());
            fill(view.action("one gap"), &[&operation(view, gap), &time(gap.ns), &share, &look])
        } else if self.is_between_graphs() {
            let ahead = match view.program.generates {
                true => view.program.advice().overlap,
                false => view.action("inputs ahead"),
            };
            fill(view.action("between graphs"), &[&ahead])
        } else if self.is_single_pass {
            view.action("single pass").to_owned()
        } else if self.mean_gap_ns() > LONG_GAP_NS {
            let look = words::start_with(view.stage, || view.action("profile of launches").to_owned());
            fill(view.action("between launches"), &[&time(self.mean_gap_ns()), &look])
        } else {
            self.fewer_launches(view)
        }
    }

    /// Says how to launch less often, as the program can.
    fn fewer_launches(&self, view: &View<'_>) -> String {
        let (stage, program) = (view.stage, view.program);
        let has_graphs = self.is_mostly_graphs || self.graphs >= (self.launches / 100).max(1);
        let larger = format!("{} ({})", view.action("compiled engine"), program.advice().graph_sizes);
        let how = match program.engine {
            _ if has_graphs => view.action("rest in graphs"),
            Some(engine) if engine.uses_graphs && self.others_replay => {
                let (more, sizes) = (view.action("larger graphs"), program.advice().graph_sizes);
                return format!("{more} ({sizes}), where there is memory for them.");
            }
            Some(engine) if engine.compiles_for_graphs && program.is_compiled => &larger,
            Some(engine) if engine.uses_graphs => program.advice().graphs,
            _ if program.has_directives => view.action("directives"),
            _ if !program.is_torch => view.action("without PyTorch"),
            _ if program.trains && program.is_compiled => view.action("compiled training"),
            _ if program.trains => view.action("training step"),
            _ if program.is_compiled => view.action("compiled"),
            _ if stage.kind == StageKind::Decode => view.action("decode"),
            _ if stage.steps.is_some() => view.action("steps"),
            _ => view.action("no steps"),
        };
        let mean = mean_kernel_ns(stage).map_or_else(String::new, |ns| match ns < LAUNCH_LATENCY_NS {
            true => format!("; kernels of {} on average are too short to hide a launch each", time(ns)),
            false => format!(
                "; kernels take {} on average, and the CPU launches one every {}",
                time(ns),
                time(stage.elapsed_ns() / self.launches.max(1) as i64)
            ),
        });
        let light = match light_kernels(stage) {
            light if 4 * light > stage.kernel_count => format!(
                " {} of {} kernels only move or combine elements: {}.",
                count(light),
                count(stage.kernel_count),
                program.fusing()
            ),
            _ => String::new(),
        };
        let waits = waits_of_a_step(view).filter(|_| !has_graphs && program.engine.is_none());
        let waits = match waits {
            _ if self.allocates => format!(" {}", view.action("allocations first")),
            None => String::new(),
            Some(waits) => format!(" {}", fill(view.action("waits first"), &[&format!("{waits:.0}")])),
        };
        format!("Launch less often: {how}{mean}.{waits}{light}")
    }
}

/// Fewest steps of which some can be slow, and the part of the median, in %, beyond which one is.
const MANY_STEPS: usize = 8;
const SLOW_PCT: i64 = 125;

/// Returns the time beyond the median of the steps of a training that take much longer, summed over devices, without what other rules
/// are about, ns: launches hold all steps back alike.
fn slow_steps_ns(stage: &Stage) -> i64 {
    let each = stage.steps.as_ref().map_or(&[][..], |steps| &steps.each_ns);
    let Some(middle) = median(&mut each.to_vec()).filter(|_| each.len() >= MANY_STEPS) else {
        return 0;
    };
    let slow = each.iter().filter(|ns| **ns * 100 > middle * SLOW_PCT);
    let known = stage.data_loading_ns + stage.idle_detail.known_ns();
    let devices = stage.devices_per_instance.max(1.0);
    (slow.map(|ns| ns - middle).sum::<i64>() as f64 * devices) as i64 - known
}

/// Returns the launch idle time that another rule is about: that before the first operation of a step, unless an engine makes the steps.
fn host_first_ns(stage: &Stage) -> i64 {
    if stage.period_ns.is_some() { 0 } else { stage.idle_detail.host_first_ns }
}

/// Returns the number of times a step waits for the device, where that is more than at its end.
fn waits_of_a_step(view: &View<'_>) -> Option<f64> {
    let steps = view.stage.steps.as_ref().filter(|steps| steps.count > 0)?;
    let waits = view.evidence?.syncs.inside as f64 / steps.count as f64;
    (waits >= 2.0).then_some(waits)
}

fn mean_kernel_ns(stage: &Stage) -> Option<i64> {
    let ns = stage.kernel_ns.filter(|_| stage.kernel_count > 0)?;
    Some(ns / stage.kernel_count as i64)
}

fn light_kernels(stage: &Stage) -> u64 {
    let light = |family| {
        matches!(family, Family::Elementwise | Family::CopyLayout | Family::Reduction | Family::Quantization)
    };
    let kernels = stage.kernels.iter().filter(|k| light(k.family) && !is_fused(&k.name));
    kernels.map(|k| k.calls).sum()
}

/// Products of a layer outside its routed experts: four of attention, three of the shared expert, the router.
const OTHER_PRODUCTS: f64 = 8.0;
/// Products of an expert: gate, up, down.
const PRODUCTS: f64 = 3.0;

/// A decode whose matrix products are as many as one for each expert and projection, where a grouped kernel would need two or
/// three a layer. The bound is the idle time that the launches too many cost, at the stage's mean.
pub fn one_by_one(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let model = view.inputs.model?;
    let steps = stage.steps.as_ref().map(|steps| steps.count).filter(|count| *count > 0)?;
    let groups = model.decoder.groups.iter();
    let layers: Vec<(u64, Chosen)> = groups
        .flat_map(|group| group.blocks.iter().filter_map(|block| Some((group.count, block.chosen?))))
        .collect();
    if layers.is_empty() {
        return None;
    }
    let batch = view.inputs.analysis.workload.as_ref().and_then(|w| w.batch).unwrap_or(1);
    let expert_layers: u64 = layers.iter().map(|(count, _)| count).sum();
    let all_layers: u64 = model.decoder.groups.iter().map(|group| group.count).sum();
    let one_by_one: f64 = layers
        .iter()
        .map(|(count, e)| *count as f64 * PRODUCTS * distinct_experts(e.routed, e.per_token, batch))
        .sum();
    let others = all_layers as f64 * OTHER_PRODUCTS;
    let calls: u64 = stage
        .kernels
        .iter()
        .filter(|k| matches!(k.family, Family::Gemm | Family::Gemv))
        .map(|k| k.calls)
        .sum();
    let per_step = calls as f64 / steps as f64;
    // Attention may or may not show as products, and a split product as two: half of the experts' own is a safe margin.
    if per_step < 0.5 * one_by_one + others {
        return None;
    }
    let grouped = PRODUCTS * expert_layers as f64;
    let vanish = (one_by_one - grouped).max(0.0) * steps as f64;
    let launches = stage.launch_count.max(stage.kernel_count).max(1) as f64;
    let gaps = stage
        .causes()
        .map(|idle| idle.launch_ns)
        .or_else(|| Some(stage.wall_ns - stage.busy_ns.or(stage.kernel_ns)?));
    let gaps = gaps?;
    let left = gaps as f64 * (1.0 - (vanish / launches).min(1.0));
    let title = format!(
        "{} runs its experts one by one: {per_step:.0} matrix products a step, {one_by_one:.0} of them experts of {expert_layers} \
         layers",
        stage.spoken()
    );
    let numbers = [format!("{grouped:.0}"), format!("{one_by_one:.0}")];
    let action = fill(view.action("grouped experts"), &[&numbers[0], &numbers[1]]);
    view.saves_on_devices(&[
        ("idle time before launches", gaps),
        ("of the launches that stay", -(left.round() as i64)),
    ])
    .with_number("products_per_step", per_step)
    .with_number("expert_products_per_step", one_by_one)
    .with_number("grouped_products_per_step", grouped)
    .with("expert_layers", expert_layers)
    .with("steps", steps)
    .finish(title, action)
}
