//! Kernels too small for the device.

use crate::findings::builder::{FindingBuilder, percent};
use crate::findings::{Explanation, View};
use crate::names::Family;
use crate::numbers::{count, counted, time};
use crate::result::Finding;

/// Share of the stage's kernel time, in %, from which on small kernels are worth a line.
const LEAST_KERNEL_PCT: f64 = 20.0;

/// Kernels with fewer blocks than the device has multiprocessors; those that talk to other devices are meant to be small. Time in
/// which another kernel runs beside them does not count. The bound is the time that a full device would not need.
pub fn small_kernels(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let (Some(evidence), Some(kernel_ns)) = (view.evidence, stage.kernel_ns) else {
        return;
    };
    let mut calls = 0;
    let mut total_ns = 0;
    let mut unused = 0.0;
    let mut shared_ns = 0;
    let mut largest: Option<(&str, u64, i64, u32)> = None;
    for shape in evidence.shapes.iter().filter(|s| s.family != Family::Communication) {
        let Some(sms) = shape.sms.filter(|sms| shape.blocks > 0 && shape.blocks < u64::from(*sms)) else {
            continue;
        };
        let alone_ns = shape.total_ns - shape.shared_ns;
        calls += shape.calls;
        total_ns += alone_ns;
        shared_ns += shape.shared_ns;
        unused += alone_ns as f64 * (1.0 - shape.blocks as f64 / f64::from(sms));
        if largest.is_none_or(|(_, _, ns, _)| alone_ns > ns) {
            largest = Some((&shape.name, shape.blocks, alone_ns, sms));
        }
    }
    let Some((name, blocks, _, sms)) = largest else {
        return;
    };
    let share = percent(total_ns, kernel_ns);
    if share < LEAST_KERNEL_PCT {
        return;
    }
    let short = view.short_names.get(name);
    let alone = if shared_ns > 0 { " alone on the GPU for" } else { "" };
    let title = format!(
        "{} of {} kernels of {} have fewer blocks than the GPU has multiprocessors ({sms}):{alone} {share:.0} % of kernel time",
        count(calls),
        count(stage.kernel_count),
        stage.spoken()
    );
    let action = format!(
        "Give each launch more to do: more sequences at once, or kernels fused with their neighbours; for matrix products a \
         split of the inner dimension. The largest is {short} with {}. Small kernels take {} in all.",
        counted(blocks, "block"),
        time(total_ns)
    );
    FindingBuilder::summed("small-kernels", stage, unused as i64)
        .with("small_kernels", calls)
        .with("kernels", stage.kernel_count)
        .with("small_kernel_ns", total_ns)
        .with_number("share_of_kernel_time_pct", share)
        .with("multiprocessors", sms)
        .with("largest", short)
        .with("largest_blocks", blocks)
        .finish(title, action, findings);
}

/// Explains `small-kernels`.
pub const SMALL_KERNELS: Explanation = Explanation {
    id: "small-kernels",
    remedy: "larger kernels",
    meaning: "Kernels have fewer blocks than the GPU has multiprocessors, so that a part of the GPU has nothing to \
              do while they run.",
    computed: "Kernels other than communication whose grid has fewer blocks than the device has multiprocessors, \
              where they take at least 20 % of the stage's kernel time. Time in which another kernel runs beside them \
              does not count. The bound is the idle share of the multiprocessors in their time.",
    fix: "Give each launch more to do: more sequences in a batch, fused kernels, a split of the inner \
              dimension of matrix products (split-K), or parts of attention along the sequence.",
    links: &[
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
    ],
};
