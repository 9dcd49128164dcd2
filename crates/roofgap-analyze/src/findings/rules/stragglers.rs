//! Ranks of a job for which others wait.

use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::names::short_name;
use crate::numbers::{count, time};
use crate::result::{Finding, Straggler};

/// A rank that arrives last at the collectives of a stage.
pub fn late_ranks(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let Some(job) = &view.inputs.analysis.job else {
        return;
    };
    for late in job.stragglers.iter().filter(|late| late.stage.as_deref() == Some(&stage.name)) {
        let title = format!(
            "the other ranks wait {} for rank {}, which is last at {} of {} collectives in {}",
            time(late.waited_for_ns),
            late.rank,
            count(late.last_count),
            count(late.collective_count),
            stage.spoken()
        );
        FindingBuilder::new("rank-straggler", stage, late.waited_for_ns)
            .with("rank", late.rank)
            .with("last_count", late.last_count)
            .with("collective_count", late.collective_count)
            .with("waited_for_ns", late.waited_for_ns)
            .with("kernel", late.kernel.clone())
            .with("kernel_excess_ns", late.kernel_excess_ns)
            .with("idle_excess_ns", late.idle_excess_ns)
            .with("clock_error_ns", job.clock_error_ns)
            .finish(title, action(late), findings);
    }
}

/// Names the largest difference from the other ranks.
fn action(late: &Straggler) -> String {
    let rank = late.rank;
    let kernel_ns = late.kernel_excess_ns.unwrap_or(0);
    let idle_ns = late.idle_excess_ns.unwrap_or(0);
    // A difference that explains less than a tenth of the wait is not its cause.
    let least = late.waited_for_ns / 10;
    match &late.kernel {
        Some(kernel) if kernel_ns >= idle_ns && kernel_ns > least => format!(
            "Rank {rank} spends {} more than the median of the other ranks in {}: compare its share of the work (experts, tokens, \
             layers), its clocks and its power limit with theirs.",
            time(kernel_ns),
            short_name(kernel)
        ),
        _ if idle_ns > least => format!(
            "The GPU of rank {rank} is idle {} longer than the median of the other ranks: look at its CPU (affinity, other \
             processes, data loading, Python) and at what its thread waits for.",
            time(idle_ns)
        ),
        _ => format!(
            "No kernel and no idle time of rank {rank} in this stage is longer by as much: look at what it does before the stage, \
             and at how the work is divided."
        ),
    }
}

/// Explains `rank-straggler`.
pub const LATE_RANKS: Explanation = Explanation {
    id: "rank-straggler",
    remedy: "a rank that is not late",
    meaning: "One rank of the job arrives last at most collectives, and the others wait for it.",
    computed: "Collectives matched across ranks, after their clocks are aligned: the time that the other ranks wait \
              for the last one. The bound is the time they waited for this rank.",
    fix: "Compare the rank with the others: more kernel time points to its work or its clock, more idle time \
              to its CPU.",
    links: &[],
};
