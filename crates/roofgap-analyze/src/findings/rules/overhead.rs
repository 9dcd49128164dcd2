//! Profiler overhead.

use crate::findings::rule::{Cause, Find, Rule, View};
use crate::result::{Finding, Profiler, StageOrigin};

/// Ratio of profiled to unprofiled time above which the other findings are doubtful.
const DOUBTFUL: f64 = 1.25;

/// Finds a profiler that made the stage slower by more than a quarter. The bound is the overhead in the wall time.
fn watching(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    if stage.from == StageOrigin::Workload {
        // Without a timeline no time includes the overhead.
        return None;
    }
    let overhead = view
        .inputs
        .analysis
        .timeline_overhead()
        .filter(|o| o.stage == stage.name && o.ratio.is_finite() && o.sure_ratio() > DOUBTFUL)
        .max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    let title = format!(
        "{} takes {:.2} times as long under {} as without it: gaps and launch counts of the timeline are inflated",
        stage.spoken(),
        overhead.ratio,
        overhead.tool
    );
    let lighter = match overhead.tool {
        Profiler::Native => {
            "leave out copies (profiling.native.copies=false), or record graphs whole (profiling.native.graph=graph)"
        }
        _ => {
            "the native collector (profiling.timeline=native), run.mode=light, or nsys with --trace=cuda,nvtx"
        }
    };
    let action = format!(
        "Reduce the overhead: {lighter}. Trust kernel durations and counts; take gaps and wall time from the run without a profiler."
    );
    let without_ns = (stage.wall_ns as f64 / overhead.ratio) as i64;
    view.saves(&[("wall time under the profiler", stage.wall_ns), ("without it", -without_ns)])
        .with("tool", overhead.tool.as_str())
        .with_number("ratio", overhead.ratio)
        .with("wall_ns", stage.wall_ns)
        .finish(title, action)
}

pub const PROFILER_OVERHEAD: Rule = Rule {
    find: Find::One(watching),
    cause: Cause::Profiler,
    id: "profiler-overhead",
    remedy: "a lighter profiler",
    meaning: "The profiler made the stage slower by more than a quarter. Times between kernels are inflated; \
              durations of kernels are not.",
    computed: "Wall time under the profiler over wall time without it. The bound is the overhead in the wall time. \
              It is listed last, because the program does not have it without the profiler.",
    fix: "Use the native collector (profiling.timeline=native), run.mode=light, or fewer traced interfaces in \
              nsys.",
    disproof: "Runs without a profiler differ as much from one another.",
    links: &["https://docs.nvidia.com/nsight-systems/UserGuide/index.html"],
    ..Rule::BASE
};
