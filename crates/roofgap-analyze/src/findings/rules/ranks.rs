//! Ranks of a job for which others wait: late ones, and those with more work for their experts.

use crate::findings::rule::{Cause, Find, Needs, Rule, View};
use crate::names::short_name;
use crate::numbers::{count, time};
use crate::result::{ExpertBalance, Finding, Straggler};

/// A rank that arrives last at the collectives of a stage.
fn late_ranks(view: &View<'_>) -> Vec<Finding> {
    let stage = view.stage;
    let Some(job) = &view.inputs.analysis.job else {
        return Vec::new();
    };
    let late = job.stragglers.iter().filter(|late| late.stage.as_deref() == Some(&stage.name));
    let finding = |late: &Straggler| {
        let title = format!(
            "the other ranks wait {} for rank {}, which is last at {} of {} collectives in {}",
            time(late.waited_for_ns),
            late.rank,
            count(late.last_count),
            count(late.collective_count),
            stage.spoken()
        );
        view.saves(&[("waits of the other ranks for this one", late.waited_for_ns)])
            .with("rank", late.rank)
            .with("last_count", late.last_count)
            .with("collective_count", late.collective_count)
            .with("waited_for_ns", late.waited_for_ns)
            .with("kernel", late.kernel.clone())
            .with("kernel_excess_ns", late.kernel_excess_ns)
            .with("idle_excess_ns", late.idle_excess_ns)
            .with("clock_error_ns", job.clock_error_ns)
            .finish(title, action(late))
    };
    late.filter_map(finding).collect()
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

pub const LATE_RANKS: Rule = Rule {
    find: Find::Each(late_ranks),
    cause: Cause::Communication,
    needs: Needs::Job,
    id: "rank-straggler",
    remedy: "a rank that is not late",
    meaning: "One rank of the job arrives last at most collectives, and the others wait for it.",
    computed: "Collectives matched across ranks, after their clocks are aligned: the time that the other ranks wait \
              for the last one. The bound is the time they waited for this rank.",
    fix: "Compare the rank with the others: more kernel time points to its work or its clock, more idle time \
              to its CPU.",
    disproof: "The error of the clocks is as large as the waits.",
    ..Rule::BASE
};

/// A stage in which ranks wait for the experts of others.
fn uneven_experts(view: &View<'_>) -> Vec<Finding> {
    let stage = view.stage;
    let rows = view.inputs.analysis.job.iter().flat_map(|job| &job.experts);
    let rows = rows.filter(|row| row.stage.as_deref() == Some(&stage.name));
    let finding = |row: &ExpertBalance| {
        let bound_ns = row.bound_ns?;
        let title = format!(
            "the experts of {} are uneven: the slowest rank takes {:.2} times the mean of {} ranks, most often rank {} ({} of {} times)",
            stage.spoken(),
            row.imbalance,
            count(row.ranks.len() as u64),
            row.slowest_rank,
            count(row.slowest_count),
            count(row.sections)
        );
        let action = format!(
            "Spread the experts evenly: replicate or move those that get most tokens (expert-parallel load balancing such as EPLB), \
             or balance the router. All ranks together wait {} in the collectives after their experts.",
            time(row.waited_ns.unwrap_or(0))
        );
        view.saves(&[("experts of the slowest rank above the mean", bound_ns)])
            .with("rank", row.slowest_rank)
            .with("slowest_count", row.slowest_count)
            .with("sections", row.sections)
            .with("slowest_ns", row.slowest_ns)
            .with("mean_ns", row.mean_ns)
            .with_number("imbalance", row.imbalance)
            .with("waited_ns", row.waited_ns)
            .finish(title, action)
    };
    rows.filter_map(finding).collect()
}

pub const UNEVEN_EXPERTS: Rule = Rule {
    find: Find::Each(uneven_experts),
    cause: Cause::Communication,
    needs: Needs::Job,
    id: "expert-imbalance",
    remedy: "evenly loaded experts",
    meaning: "Ranks of an expert-parallel job compute their experts for different times, and wait for the slowest in the collective \
              that follows.",
    computed: "Time of grouped products and fused experts on each rank before every collective that is matched across ranks. The \
              bound is the time of the slowest rank above the mean of the ranks, but never more than a rank was seen to wait, summed \
              over the collectives.",
    fix: "Replicate or move experts that get most tokens (expert-parallel load balancing), or balance the router of the model.",
    disproof: "The slowest rank is another at every collective, so that no placement of experts helps.",
    links: &["https://github.com/deepseek-ai/EPLB"],
    ..Rule::BASE
};
