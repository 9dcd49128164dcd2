//! The metrics that a session requests from ncu.

use super::arch::Arch;

/// Metrics for every device: time, share of each roof, occupancy and DRAM traffic.
const COMMON: &[&str] = &[
    "gpu__time_duration.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_bytes.sum",
    "sm__inst_executed_pipe_tensor.sum",
];

/// Kinds of work that occur in models; double precision does not, and would cost passes.
const LIGHT_SCALAR: &[&str] = &["fadd", "fmul", "ffma", "hadd", "hmul", "hfma"];

/// The metrics for verdicts and a roofline, by compute capability: few, so that a launch needs few passes.
/// On a device that is not known the tensor operations are left out.
#[must_use]
pub fn light_metrics(compute_capability: Option<(u8, u8)>) -> Vec<String> {
    let mut metrics: Vec<String> = COMMON.iter().map(|name| (*name).to_owned()).collect();
    metrics
        .extend(LIGHT_SCALAR.iter().map(|op| format!("sm__sass_thread_inst_executed_op_{op}_pred_on.sum")));
    if let Some(arch) = compute_capability.and_then(Arch::of) {
        let counters = arch.tensor_counters().iter().filter(|counter| !counter.metric.contains("fp64"));
        metrics.extend(counters.map(|counter| format!("{}.sum", counter.metric)));
    }
    metrics
}
