//! What rules about kernels, memory and occupancy share: sizes, shares of the roof, and what a kernel needs to be worth a finding.

use crate::counters::{Bound, BusiestPipe, Measured, Pipe, SHARED_PCT};
use crate::findings::rule::View;
use crate::names::{Family, family, is_closed_source};
use crate::result::CounterRow;

/// Ratio of two shares of a peak from which on the larger one tells what a kernel waits for.
pub const CLEARLY: f64 = 1.2;

/// Use of the slots for instructions, % of their peak, from which on they are full: warps do not become ready evenly.
const FULL_SLOTS_PCT: f64 = 70.0;

/// Compute capabilities of GPUs with half as many units for double precision as for single. Others have few.
const MANY_FP64: [&str; 5] = ["6.0", "7.0", "8.0", "9.0", "10.0"];

/// Returns the pipe of the multiprocessors that holds a kernel back, where fewer of its instructions are possible.
pub fn full_pipe(view: &View<'_>, row: &Measured) -> Option<BusiestPipe> {
    let mut busiest = row.readings.busiest_pipe().filter(|_| row.bound == Some(Bound::Compute))?;
    let capability = || view.inputs.analysis.devices.first()?.compute_capability.as_deref();
    let few_fp64 = capability().is_some_and(|version| !MANY_FP64.contains(&version));
    // Double precision comes with other instructions.
    if few_fp64 && busiest.fp64_pct >= busiest.pct - SHARED_PCT {
        (busiest.pipe, busiest.pct) = (Pipe::Fp64, busiest.fp64_pct);
    }
    let is_full = match busiest.pipe {
        Pipe::Fp64 => few_fp64,
        Pipe::Issue => busiest.pct >= FULL_SLOTS_PCT && busiest.pct > CLEARLY * busiest.next_pct,
        Pipe::Integer | Pipe::Special => true,
        Pipe::Loads | Pipe::Others => false,
    };
    let is_own = !is_closed_source(&row.row.kernel) && is_long(row.timeline_total_ns, row.timeline_calls);
    (is_full && is_own).then_some(busiest)
}

/// Returns the use of the busiest unit of a launch, % of its peak.
pub fn busiest_pct(row: &CounterRow) -> f64 {
    let units = [row.sm_pct, row.dram_pct, row.l2_pct, row.l1_pct];
    units.into_iter().flatten().fold(0.0, f64::max).min(100.0)
}

/// Returns the time of a kernel above its roof, ns, where all of its time has a roof.
pub fn above_roof_ns(view: &View<'_>, name: &str) -> Option<f64> {
    // Without a timeline only the kernels of the whole have a roof.
    let kernels = match view.stage.idle {
        Some(_) => &view.stage.kernels,
        None => &view.inputs.analysis.kernels,
    };
    let rows = || kernels.iter().filter(|kernel| kernel.name == name);
    let covered: i64 = rows().filter_map(|kernel| kernel.roof.roof_covered_ns).sum();
    let total: i64 = rows().map(|kernel| kernel.total_ns).sum();
    let above: Option<i64> = rows().map(|kernel| kernel.roof.above_roof_ns).sum();
    above.filter(|_| total > 0 && covered >= total).map(|ns| ns as f64)
}

/// Time of a launch that is mostly its start and its end, ns, whatever it does.
const SHORT_NS: i64 = 5_000;

/// Tells whether a launch takes longer than it takes any kernel to start and to end.
pub fn is_long(total_ns: i64, calls: u64) -> bool {
    total_ns > SHORT_NS.saturating_mul(calls as i64)
}

/// Assumed time of a kernel that does next to nothing: it starts, waits for memory and ends, ns.
const SHORTEST_NS: i64 = 3_000;

/// Returns the time of launches beyond what any kernel takes, ns.
pub fn beyond_shortest_ns(total_ns: i64, calls: u64) -> i64 {
    (total_ns - SHORTEST_NS.saturating_mul(calls as i64)).max(0)
}

/// Threads that a GPU runs at a time.
pub const WARP: u32 = 32;

/// Tells whether a kernel keeps its data in registers and shared memory, so that few warps are its design: products and attention.
pub fn keeps_data(kernel: &str) -> bool {
    matches!(family(kernel), Family::Gemm | Family::Attention)
}

/// Occupancy, in %, below which latency is hardly hidden.
pub const LOW_PCT: f64 = 30.0;
