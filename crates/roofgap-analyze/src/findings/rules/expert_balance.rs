//! Experts of a mixture that take longer on some ranks than on others.

use crate::findings::builder::FindingBuilder;
use crate::findings::{Explanation, View};
use crate::numbers::{count, time};
use crate::result::Finding;

/// Least bound, in parts of the time of the stage.
const LEAST_PART: i64 = 200;

/// A stage in which ranks wait for the experts of others.
pub fn uneven(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let rows = view.inputs.analysis.job.iter().flat_map(|job| &job.experts);
    for row in rows.filter(|row| row.stage.as_deref() == Some(&stage.name)) {
        let Some(bound_ns) = row.bound_ns.filter(|bound| *bound > stage.elapsed_ns() / LEAST_PART) else {
            continue;
        };
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
        FindingBuilder::new("expert-imbalance", stage, bound_ns)
            .with("rank", row.slowest_rank)
            .with("slowest_count", row.slowest_count)
            .with("sections", row.sections)
            .with("slowest_ns", row.slowest_ns)
            .with("mean_ns", row.mean_ns)
            .with_number("imbalance", row.imbalance)
            .with("waited_ns", row.waited_ns)
            .finish(title, action, findings);
    }
}

/// Explains `expert-imbalance`.
pub const UNEVEN: Explanation = Explanation {
    id: "expert-imbalance",
    remedy: "evenly loaded experts",
    meaning: "Ranks of an expert-parallel job compute their experts for different times, and wait for the slowest in the collective \
              that follows.",
    computed: "Time of grouped products and fused experts on each rank before every collective that is matched across ranks. The \
              bound is the time of the slowest rank above the mean of the ranks, but never more than a rank was seen to wait, summed \
              over the collectives.",
    fix: "Replicate or move experts that get most tokens (expert-parallel load balancing), or balance the router of the model.",
    links: &["https://github.com/deepseek-ai/EPLB"],
};
