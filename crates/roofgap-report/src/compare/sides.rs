//! The time of a stage on both sides, split into busy and idle time, for two bars with one scale.

use crate::document::stages::{PARTS, TimePart};
use roofgap_analyze::compare::{Basis, Change, StageChange};

/// The bar of one side.
pub struct SideBar {
    pub label: &'static str,
    /// Time of the stage or of a step, ns.
    pub total_ns: i64,
    /// Length relative to the longer bar, %.
    pub width_pct: f64,
    /// Parts with their time in ns; empty where only the total is known.
    pub parts: Vec<(&'static TimePart, i64)>,
}

/// Returns the bars of base and head; `None` where one of them has no time. Where the sides did different work, the bars are of a step.
pub fn sides(stage: &StageChange) -> Option<(&'static str, [SideBar; 2])> {
    let by_step = stage.basis == Basis::StepAndToken;
    let (what, time) =
        if by_step { ("time of a step", &stage.step_ns) } else { ("wall time", &stage.wall_ns) };
    let (base, head) = (time.base?, time.head?);
    let longest = base.max(head).max(1) as f64;
    let bar = |label, total_ns, of: fn(&Change<i64>) -> Option<i64>| SideBar {
        label,
        total_ns,
        width_pct: 100.0 * total_ns as f64 / longest,
        parts: if by_step { Vec::new() } else { parts(stage, total_ns, of) },
    };
    Some((what, [bar("base", base, |change| change.base), bar("head", head, |change| change.head)]))
}

/// Splits the wall time of a side; empty where busy time is unknown or, on several GPUs, sums to more than the wall time.
fn parts(
    stage: &StageChange,
    total_ns: i64,
    of: fn(&Change<i64>) -> Option<i64>,
) -> Vec<(&'static TimePart, i64)> {
    let known = [
        &stage.busy_ns,
        &stage.idle_launch_ns,
        &stage.idle_sync_ns,
        &stage.idle_copy_ns,
        &stage.idle_other_ns,
    ];
    let known: Option<Vec<i64>> = known.into_iter().map(of).collect();
    let Some(mut times) = known else {
        return Vec::new();
    };
    let rest = total_ns - times.iter().sum::<i64>();
    if rest < 0 {
        return Vec::new();
    }
    times.push(rest);
    let parts = PARTS.iter().zip(times);
    parts.filter(|part| part.1 > 0).collect()
}
