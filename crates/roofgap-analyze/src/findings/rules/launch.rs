//! The GPU waits for the CPU to launch.

use crate::engines::Engine;
use crate::findings::builder::{FindingBuilder, percent};
use crate::findings::{Explanation, LaunchGap, View};
use crate::names::Family;
use crate::numbers::{count, time};
use crate::result::{Finding, Stage, StageKind};
use crate::verdict::{LEAST_GAP_PCT, StageLimit, verdict};
use roofgap_trace::OpKind;

/// Launching takes some microseconds. Where the gap before a launch is longer than this on average, the CPU does other work
/// between launches.
const LONG_GAP_NS: i64 = 200_000;

/// A step of so few launches is recorded as a graph nearly whole.
const FEW_LAUNCHES: f64 = 32.0;

/// The advice of the finding.
enum Advice<'a> {
    /// Most of the time is one gap.
    OneGap(&'a LaunchGap),
    /// The work is in graphs, and the time goes between them.
    BetweenGraphs,
    /// The gaps are longer than a launch takes.
    LongGaps,
    /// There are too many launches.
    FewerLaunches,
}

/// A stage in which the GPU is idle because the next operation was not launched yet, and not because the CPU had waited for
/// the GPU or got data before. Where only totals are known (a summary table and a wall time), all that the kernels do not cover
/// counts, since one cannot tell gaps apart.
pub fn launch_bound(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let launches = if stage.launch_count > 0 { stage.launch_count } else { stage.kernel_count };
    let (Some(busy_ns), Some(busy_share)) = (stage.busy_ns.or(stage.kernel_ns), stage.busy_share()) else {
        return;
    };
    if launches == 0 || busy_ns <= 0 || !stage.computes() {
        return;
    }
    let from_totals = stage.idle.is_none();
    let causes = stage.causes();
    // A gap or two behind a wait do not change the picture; the number is then the one that the tables show.
    let sum_ns = match (stage.idle, causes) {
        (Some(idle), Some(causes)) if causes.launch_ns < idle.launch_ns / 20 * 19 => causes.launch_ns,
        (Some(idle), _) => idle.launch_ns,
        (None, _) => stage.wall_ns - busy_ns,
    };
    let sum_ns = sum_ns - stage.data_loading_ns;
    let gap_ns = stage.each_device(sum_ns);
    let largest = causes.is_none_or(|other| sum_ns >= other.sync_ns.max(other.copy_ns).max(other.other_ns));
    if percent(gap_ns, stage.elapsed_ns()) < LEAST_GAP_PCT || !largest {
        return;
    }
    let busy_pct = 100.0 * busy_share;
    let steps = stage.steps.as_ref().map(|steps| steps.count).filter(|count| *count > 0);
    let per_step = steps.map(|count| launches as f64 / count as f64);
    let graphs = GraphUse::of(view, launches);
    let mean_gap_ns = sum_ns / launches as i64;
    let longest = view.evidence.and_then(|evidence| evidence.longest_launch_gap.as_ref());
    let advice = match longest {
        Some(gap) if gap.ns > sum_ns / 2 && gap.ns > LONG_GAP_NS => Advice::OneGap(gap),
        _ if graphs.mostly && per_step.is_none_or(|launches| launches <= FEW_LAUNCHES) => {
            Advice::BetweenGraphs
        }
        _ if mean_gap_ns > LONG_GAP_NS => Advice::LongGaps,
        _ => Advice::FewerLaunches,
    };
    let mut draft = FindingBuilder::summed("launch-bound", stage, sum_ns)
        .with("wall_ns", stage.wall_ns)
        .with("busy_ns", busy_ns)
        .with_number("busy_pct", busy_pct)
        .with("launches", launches)
        .with_number("gap_per_launch_ns", sum_ns as f64 / launches as f64)
        .with("light_kernels", light_kernels(stage));
    if let Some(idle) = stage.idle {
        draft = draft.with("idle_launch_ns", idle.launch_ns).with("idle_total_ns", idle.total_ns());
    }
    if let Some(mean) = mean_kernel_ns(stage) {
        draft = draft.with_number("mean_kernel_ns", mean);
    }
    let mut rate = String::new();
    if let Some(per_step) = per_step {
        draft = draft.with_number("launches_per_step", per_step);
        if steps.is_some_and(|count| count > 1) {
            rate = format!(", {} a step", count(per_step.round() as u64));
        }
    }
    if graphs.launches > 0 {
        draft = draft.with("graph_launches", graphs.launches);
    }
    if from_totals {
        draft = draft.with("from", "kernel totals and wall time: all time without kernels counts");
    }
    // The headline names what the action is about.
    let how = match advice {
        Advice::OneGap(gap) => {
            let before = operation(view, gap);
            draft = draft.with("longest_gap_ns", gap.ns).with("longest_gap_before", before.as_str());
            rate = format!("{rate}, {} of it in one gap", time(gap.ns));
            format!(
                "Find what the CPU does before it launches {before}: one gap of {} there is {:.0} % of this time. Python, data \
                 preparation, scheduling, compilation and file access show in a CPU profile of the launching thread.",
                time(gap.ns),
                percent(gap.ns, sum_ns)
            )
        }
        Advice::BetweenGraphs => between_graphs(stage).to_owned(),
        Advice::LongGaps => {
            draft = draft.with("remedy", "less CPU work between launches");
            format!(
                "Find what the CPU does between launches: {} on average, where a launch takes some microseconds. Python, data \
                 preparation, scheduling and file access show in a CPU profile of the launching thread.",
                time(mean_gap_ns)
            )
        }
        Advice::FewerLaunches => {
            if stage.steps.is_some() && !graphs.partly {
                draft = draft.with("remedy", "CUDA graphs");
            }
            fewer_launches(view, &graphs)
        }
    };
    // The table of stages names another limit where something else takes more.
    let limit = match verdict(stage).label {
        StageLimit::Launch | StageLimit::NotMeasured => " is launch-bound:",
        _ => ":",
    };
    let title = format!(
        "{}{limit} the GPU is busy {busy_pct:.1} % of the time and waits {} for {} launches{rate}",
        stage.spoken(),
        time(gap_ns),
        count(launches)
    );
    let action = format!(
        "{how} If every such gap vanished the stage would take {}.",
        time(stage.elapsed_ns() - gap_ns)
    );
    draft.finish(title, action, findings);
}

/// The part of a stage that is in CUDA graphs.
struct GraphUse {
    launches: u64,
    /// Enough to speak of it.
    partly: bool,
    /// More than half of it.
    mostly: bool,
}

impl GraphUse {
    fn of(view: &View<'_>, launches: u64) -> Self {
        let stage = view.stage;
        let graphs = view.evidence.map_or(0, |evidence| evidence.graph_launches);
        let whole_ns: i64 = stage.graphs.iter().map(|graph| graph.total_ns).sum();
        // Each other launch starts one kernel at most; the rest of the kernels are in graphs.
        let others = launches.saturating_sub(graphs);
        let mostly = graphs > 0
            && (graphs > others
                || others < stage.kernel_count / 2
                || whole_ns > stage.kernel_ns.unwrap_or(0));
        Self { launches: graphs, partly: mostly || (graphs > 0 && graphs >= launches / 100), mostly }
    }
}

/// Names the operation that ended a gap.
fn operation(view: &View<'_>, gap: &LaunchGap) -> String {
    match gap.kind {
        OpKind::Kernel => view.short_names.get(&gap.name),
        OpKind::Graph => "a CUDA graph".to_owned(),
        OpKind::Copy => "a copy".to_owned(),
        OpKind::Set => "a memory set".to_owned(),
    }
}

fn between_graphs(stage: &Stage) -> &'static str {
    let generates = stage.tokens.is_some() || matches!(stage.kind, StageKind::Decode | StageKind::Mixed);
    if generates {
        "Its work is in CUDA graphs already; the time goes from one launch to the next. Take what the CPU does there off the path: \
         sample in the graph, launch the next step before the token of the last is read, prepare inputs and schedule meanwhile."
    } else {
        "Its work is in CUDA graphs already; the time goes from one launch to the next. Take what the CPU does there off the path: \
         prepare the next inputs while a graph runs, and launch it before the results of the last one are read."
    }
}

fn fewer_launches(view: &View<'_>, graphs: &GraphUse) -> String {
    let stage = view.stage;
    let engine = Engine::of(view.inputs.analysis.engine.as_ref()).filter(|engine| engine.uses_graphs);
    let how = match engine {
        _ if graphs.partly => {
            "Launch less often: part of the work is in CUDA graphs already, record the rest too (static shapes, no read-back in between)"
                .to_owned()
        }
        Some(engine) => format!(
            "Launch less often: let {} run its steps as CUDA graphs; eager mode, and batches larger than the graphs it has \
             captured, run without them",
            engine.name
        ),
        None if stage.steps.is_some() => {
            "Launch less often: record a step once and replay it as a CUDA graph (torch.compile with mode=\"reduce-overhead\", or a \
             static cache and torch.cuda.graph)"
                .to_owned()
        }
        None => "Launch less often: torch.compile the stage, or give each launch more to do (images and sequences together, fused \
                 attention and norms)"
            .to_owned(),
    };
    let mean = mean_kernel_ns(stage).map_or_else(String::new, |ns| {
        format!("; kernels of {} on average are too short to hide a launch each", time(ns as i64))
    });
    let light = light_kernels(stage);
    let fused = if light > 0 {
        format!(
            " {} of {} kernels only move or combine elements: {} folds most of them into their neighbours.",
            count(light),
            count(stage.kernel_count),
            if engine.is_some() { "compiling the model" } else { "torch.compile" }
        )
    } else {
        String::new()
    };
    format!("{how}{mean}.{fused}")
}

fn mean_kernel_ns(stage: &Stage) -> Option<f64> {
    let ns = stage.kernel_ns.filter(|_| stage.kernel_count > 0)?;
    Some(ns as f64 / stage.kernel_count as f64)
}

fn light_kernels(stage: &Stage) -> u64 {
    let light = |family| {
        matches!(family, Family::Elementwise | Family::CopyLayout | Family::Reduction | Family::Quantization)
    };
    let kernels = stage.kernels.iter().filter(|k| light(k.family));
    kernels.map(|k| k.calls).sum()
}

/// Explains `launch-bound`.
pub const LAUNCH_BOUND: Explanation = Explanation {
    id: "launch-bound",
    remedy: "shorter gaps between launches",
    meaning: "The GPU waits for the CPU: it finishes its work before the next operation is launched, and runs \
              nothing until then. Eager decoding of a small batch is the usual case, because a token needs \
              hundreds of launches of a few microseconds each.",
    computed: "Idle time of the stage in which the next operation had not been launched yet, and the launching \
              thread neither waited for the device nor copied nor got data from a data loader. The bound is that \
              time: no gap can be shorter than nothing.",
    fix: "Record the step once and replay it as a CUDA graph, compile it (torch.compile with \
              mode=\"reduce-overhead\"), fuse small kernels, or give each launch more work with a larger batch. \
              Where graphs are in use, look for what the CPU does between their launches.",
    links: &[
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-graphs",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
    ],
};
