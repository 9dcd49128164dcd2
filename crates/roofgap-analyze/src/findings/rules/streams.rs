//! Work on one stream that two could share.

use crate::findings::rule::{Find, Rows, Rule, View, percent};
use crate::result::{Confidence, Finding};

/// Share of wall time, in %, from which on it is the GPU that holds the stage back: else overlap gains nothing.
const BUSY_PCT: f64 = 60.0;
/// Share of kernel time, in %, that kernels of half the device or less must have.
const SMALL_PCT: f64 = 20.0;

/// A busy stage on a single stream in which kernels fill half the device or less. The bound is half the time of those kernels, at most
/// what is left of it without their longest launch.
fn one_stream(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let (evidence, busy_ns, kernel_ns) = (view.evidence?, stage.busy_ns?, stage.kernel_ns?);
    let busy_pct = 100.0 * stage.busy_share().unwrap_or(0.0);
    if evidence.streams != 1 || busy_pct < BUSY_PCT || stage.kernel_count < 2 {
        return None;
    }
    let half = |sms: u32| u64::from(sms) / 2;
    let small = || {
        let shapes = evidence.shapes.iter();
        shapes.filter(|shape| shape.blocks > 0 && shape.sms.is_some_and(|sms| shape.blocks <= half(sms)))
    };
    let half_empty: i64 = small().map(|shape| shape.total_ns).sum();
    let longest = small().map(|shape| shape.longest_ns).max().unwrap_or(0);
    let largest = small().max_by_key(|shape| shape.total_ns)?;
    if percent(half_empty, kernel_ns) < SMALL_PCT {
        return None;
    }
    let title = format!("all work of {} is on one stream, though part of it could overlap", stage.spoken());
    let action = "Put branches that do not depend on each other (vision tiles, shared and routed experts, the sequences of a batch) on \
                  streams of their own.";
    view.saves_on_devices(&[
        ("kernels of half the GPU or less", half_empty),
        // Beside the longest of them run the others.
        ("two at a time", -(half_empty - half_empty / 2).max(longest)),
    ])
    .with("streams", evidence.streams)
    .with("kernels_of_half_the_device_ns", half_empty)
    .with("largest", view.short_names.get(&largest.name))
    .with("busy_ns", busy_ns)
    .finish(title, action)
}

pub const ONE_STREAM: Rule = Rule {
    find: Find::One(one_stream),
    rows: Rows::Kernels(&[]),
    confidence: Confidence::Guessed,
    id: "one-stream",
    remedy: "more than one stream",
    meaning: "All work of a busy stage is on one stream, in which kernels that fill half the GPU or less run one after another.",
    computed: "Stages that keep the GPU busy at least 60 % of the time on a single stream, with two kernels or \
              more, and small kernels of at least 20 % of kernel time. The bound is half the time of \
              those kernels, at most what is left without the longest launch.",
    fix: "Put independent branches on streams of their own.",
    disproof: "Each kernel needs the result of the one before it.",
    links: &["https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams"],
    ..Rule::BASE
};
