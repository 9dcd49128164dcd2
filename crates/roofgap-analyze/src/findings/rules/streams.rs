//! Work on one stream that two could share.

use crate::findings::builder::{FindingBuilder, percent};
use crate::findings::{Explanation, View};
use crate::result::Finding;

/// Share of wall time, in %, from which on it is the GPU that holds the stage back: else overlap gains nothing.
const BUSY_PCT: f64 = 60.0;
/// Share of kernel time, in %, that kernels of half the device or less must have.
const SMALL_PCT: f64 = 20.0;

/// A busy stage on a single stream in which kernels fill half the device or less, or copies to and from the host stand
/// between the kernels. The bound is half the time of those kernels, at most what is left of it without their longest launch, and as much of the
/// copies as other work could hide.
pub fn one_stream(view: &View<'_>, findings: &mut Vec<Finding>) {
    let stage = view.stage;
    let (Some(evidence), Some(busy_ns), Some(kernel_ns)) = (view.evidence, stage.busy_ns, stage.kernel_ns)
    else {
        return;
    };
    let busy_pct = 100.0 * stage.busy_share().unwrap_or(0.0);
    if evidence.streams != 1 || busy_pct < BUSY_PCT || stage.kernel_count < 2 {
        return;
    }
    let small = || {
        let half = |sms: u32| u64::from(sms) / 2;
        evidence
            .shapes
            .iter()
            .filter(move |shape| shape.blocks > 0 && shape.sms.is_some_and(|sms| shape.blocks <= half(sms)))
    };
    let half_empty: i64 = small().map(|shape| shape.total_ns).sum();
    let longest = small().map(|shape| shape.longest_ns).max().unwrap_or(0);
    let kernels = if percent(half_empty, kernel_ns) >= SMALL_PCT {
        // Beside the longest of them run the others.
        (half_empty / 2).min(half_empty - longest)
    } else {
        0
    };
    // Copies can only hide behind other work of the stage.
    let copies = evidence.host_copies.exposed_ns;
    let copies = copies.min(busy_ns - copies).max(0);
    let title = format!("all work of {} is on one stream, though part of it could overlap", stage.spoken());
    let action = "Put copies, and branches that do not depend on each other (vision tiles, shared and routed experts, the \
                  sequences of a batch), on streams of their own."
        .to_owned();
    FindingBuilder::summed("one-stream", stage, kernels + copies)
        .with("streams", evidence.streams)
        .with("kernels_of_half_the_device_ns", half_empty)
        .with("exposed_copy_ns", copies)
        .with("busy_ns", busy_ns)
        .finish(title, action, findings);
}

/// Explains `one-stream`.
pub const ONE_STREAM: Explanation = Explanation {
    id: "one-stream",
    remedy: "more than one stream",
    meaning: "All work of a busy stage is on one stream, in which kernels that fill half the GPU or less, or \
              copies, run one after another.",
    computed: "Stages that keep the GPU busy at least 60 % of the time on a single stream, with two kernels or \
              more, and small kernels of at least 20 % of kernel time, or copies. The bound is half the time of \
              those kernels, at most what is left without the longest launch, and as much of the copies as other \
              work could hide.",
    fix: "Put copies and independent branches on streams of their own.",
    links: &["https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams"],
};
