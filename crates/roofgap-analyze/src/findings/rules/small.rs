//! Kernels too small for the device.

use crate::findings::rule::{Find, Needs, Rows, Rule, View, percent};
use crate::names::{Family, is_initialisation};
use crate::numbers::{count, counted, time};
use crate::result::{Confidence, Finding};

/// Share of the stage's kernel time, in %, from which on small kernels are worth a line.
const LEAST_KERNEL_PCT: f64 = 20.0;

/// Kernels with fewer blocks than the device has multiprocessors. Those that talk to other devices are meant to be small, and the
/// products of a model that is split over devices wait for their weights. Time in which another kernel runs beside them does not
/// count. The bound is the time that a full device would not need.
fn small_kernels(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (evidence, kernel_ns) = (view.evidence?, stage.kernel_ns?);
    let counts = |family: Family| match family {
        Family::Communication => false,
        Family::Gemm | Family::Gemv => evidence.communication.is_none(),
        _ => true,
    };
    let mut calls = 0;
    let mut total_ns = 0;
    let mut unused = 0.0;
    let mut shared_ns = 0;
    let mut largest: Option<(&str, u64, i64, u32)> = None;
    // Without a timeline, kernels that make the input are not part of the work.
    let is_input = |name: &str| stage.idle.is_none() && is_initialisation(name);
    for shape in evidence.shapes.iter().filter(|shape| counts(shape.family) && !is_input(&shape.name)) {
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
    let (name, blocks, _, sms) = largest?;
    let share = percent(total_ns, kernel_ns);
    if share < LEAST_KERNEL_PCT {
        return None;
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
        "Give each launch more to do: {} at once, or kernels fused with their neighbours; for matrix products a \
         split of the inner dimension. The largest is {short} with {}. Small kernels take {} in all.",
        if view.program.generates { "more sequences" } else { "a larger batch" },
        counted(blocks, "block"),
        time(total_ns)
    );
    view.saves_on_devices(&[
        ("small kernels alone on the GPU", total_ns),
        ("their share of it", unused as i64 - total_ns),
    ])
    .with("small_kernels", calls)
    .with("kernels", stage.kernel_count)
    .with("small_kernel_ns", total_ns)
    .with_number("share_of_kernel_time_pct", share)
    .with("multiprocessors", sms)
    .with("largest", short)
    .with("largest_blocks", blocks)
    .finish(title, action)
}

pub const SMALL_KERNELS: Rule = Rule {
    find: Find::One(small_kernels),
    needs: Needs::Counters,
    rows: Rows::Kernels(&[]),
    confidence: Confidence::Guessed,
    id: "small-kernels",
    remedy: "larger kernels",
    meaning: "Kernels have fewer blocks than the GPU has multiprocessors, so that a part of the GPU has nothing to \
              do while they run.",
    computed: "Kernels other than communication, and other than products beside communication, whose grid has fewer blocks than the device has multiprocessors, \
              where they take at least 20 % of the stage's kernel time. Time in which another kernel runs beside them \
              does not count. The bound is the idle share of the multiprocessors in their time.",
    fix: "Give each launch more to do: more sequences in a batch, fused kernels, a split of the inner \
              dimension of matrix products (split-K), or parts of attention along the sequence.",
    disproof: "The kernels are as fast with more blocks, because they wait for memory or for one another.",
    links: &[
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
    ],
    ..Rule::BASE
};
