//! The GPU waits for the CPU to launch.

use crate::analysis::Finding;
use crate::findings::View;
use crate::findings::draft::{Draft, ms, percent};

/// Below this share of wall time, in %, gaps are not what holds the stage back.
const LEAST_GAP_PCT: f64 = 20.0;

/// A stage in which the GPU is idle because the next kernel was not launched yet. Where only totals are known (a summary
/// table and a wall time), all that the kernels do not cover counts, since one cannot tell gaps apart.
pub(in crate::findings) fn launch_bound(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let launches = if stage.launch_count > 0 {
        stage.launch_count
    } else {
        stage.kernel_count
    };
    let Some(busy_ns) = stage.busy_ns.or(stage.kernel_ns) else {
        return;
    };
    if launches == 0 || busy_ns <= 0 {
        return;
    }
    let from_totals = stage.idle.is_none();
    let gap_ns = stage.idle.map_or(stage.wall_ns - busy_ns, |idle| idle.launch_ns);
    let largest = stage
        .idle
        .is_none_or(|idle| gap_ns >= idle.sync_ns.max(idle.copy_ns).max(idle.other_ns));
    if percent(gap_ns, stage.wall_ns) < LEAST_GAP_PCT || !largest {
        return;
    }
    let busy_pct = percent(busy_ns, stage.wall_ns);
    let mean_ns = stage
        .kernel_ns
        .map(|ns| ns as f64 / stage.kernel_count.max(1) as f64);
    let steps = stage
        .steps
        .as_ref()
        .map(|steps| steps.count)
        .filter(|count| *count > 0);
    let per_step = steps.map(|count| launches as f64 / count as f64);
    let small: u64 = stage
        .kernels
        .iter()
        .filter(|k| matches!(&*k.family, "elementwise" | "copy/layout" | "reduction"))
        .map(|k| k.calls)
        .sum();
    let mut draft = Draft::new("launch-bound", stage, gap_ns)
        .with("wall_ns", stage.wall_ns)
        .with("busy_ns", busy_ns)
        .with_number("busy_pct", busy_pct)
        .with("launches", launches)
        .with_number("gap_per_launch_ns", gap_ns as f64 / launches as f64)
        .with("light_kernels", small);
    if let Some(idle) = stage.idle {
        draft = draft
            .with("idle_launch_ns", idle.launch_ns)
            .with("idle_total_ns", idle.total_ns());
    }
    if let Some(mean) = mean_ns {
        draft = draft.with_number("mean_kernel_ns", mean);
    }
    let mut rate = String::new();
    if let Some(per_step) = per_step {
        draft = draft.with_number("launches_per_step", per_step);
        rate = format!(", {per_step:.0} a step");
    }
    if from_totals {
        draft = draft.with(
            "from",
            "kernel totals and wall time: all time without kernels counts",
        );
    }
    let mean = mean_ns.map_or_else(String::new, |ns| format!(" of {:.1} us on average", ns / 1e3));
    let title = format!(
        "{} is launch-bound: the GPU is busy {busy_pct:.1} % of the time and waits {} for {launches} launches{rate}",
        stage.name,
        ms(gap_ns)
    );
    let fused = if small > 0 {
        format!(
            " {small} of {} kernels only move or combine elements: torch.compile folds most of them into their neighbours.",
            stage.kernel_count
        )
    } else {
        String::new()
    };
    let how = if stage.steps.is_some() {
        "Launch less often: record a step once and replay it as a CUDA graph (torch.compile with mode=\"reduce-overhead\", or a \
         static cache and torch.cuda.graph)"
    } else {
        "Launch less often: torch.compile the stage, or give each launch more to do (images and sequences together, fused \
         attention and norms)"
    };
    let action = format!(
        "{how}; the kernels{mean} are too short to hide a launch each.{fused} If every gap vanished the stage would take {}.",
        ms(stage.wall_ns - gap_ns)
    );
    draft.say(title, action, findings);
}
