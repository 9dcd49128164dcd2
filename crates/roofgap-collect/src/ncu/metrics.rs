//! The counters wanted, and which of them exist for a chip.

use std::collections::BTreeSet;

/// Time, the roofs, occupancy, memory traffic and arithmetic: what a verdict needs.
const CORE: &[&str] = &[
    "gpu__time_duration.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_bytes.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "sm__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "sm__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "sm__sass_thread_inst_executed_op_hfma_pred_on.sum",
    // Operations of the tensor cores, by what goes in. Which of them exist differs from chip to chip.
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "sm__ops_path_tensor_src_fp16.sum",
    "sm__ops_path_tensor_src_fp16_dst_fp16.sum",
    "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
    "sm__ops_path_tensor_src_fp8.sum",
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "sm__ops_path_tensor_src_int8.sum",
];

/// The rest of the arithmetic, cache hits, and why warps wait.
const MORE: &[&str] = &[
    "sm__sass_thread_inst_executed_op_hadd_pred_on.sum",
    "sm__sass_thread_inst_executed_op_hmul_pred_on.sum",
    "sm__sass_thread_inst_executed_op_dfma_pred_on.sum",
    "sm__sass_thread_inst_executed_op_dadd_pred_on.sum",
    "sm__sass_thread_inst_executed_op_dmul_pred_on.sum",
    "sm__ops_path_tensor_src_fp64.sum",
    "lts__t_sector_hit_rate.pct",
    "l1tex__t_sector_hit_rate.pct",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
];

/// What light mode asks for.
pub fn light() -> Vec<String> {
    CORE.iter().map(|&name| name.to_owned()).collect()
}

/// What deep mode asks for.
pub fn deep() -> Vec<String> {
    CORE.iter().chain(MORE).map(|&name| name.to_owned()).collect()
}

/// Splits what is wanted into what the chip has and what it has not. ncu ends without measuring anything where one name
/// is unknown, so the second part must not be asked for.
pub fn existing(wanted: Vec<String>, known: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
    wanted.into_iter().partition(|metric| {
        // `regex:`, `group:` and `breakdown:` expand inside ncu to what there is.
        metric.contains(':') || metric.split('.').next().is_some_and(|base| known.contains(base))
    })
}

/// The chip of a compute capability, as `ncu --query-metrics --chips` calls it.
pub fn chip(major: u32, minor: u32) -> Option<&'static str> {
    Some(match (major, minor) {
        (7, 0) => "gv100",
        (7, 5) => "tu102",
        (8, 0) => "ga100",
        (8, 6) => "ga102",
        (8, 7) => "ga10b",
        (8, 9) => "ad102",
        (9, 0) => "gh100",
        (10, 0) => "gb100",
        (10, 3) => "gb110",
        (12, 0) => "gb202",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_chip_has_is_asked_for() {
        let known = BTreeSet::from(["gpu__time_duration".to_owned(), "sm__throughput".to_owned()]);
        let wanted = [
            "gpu__time_duration.sum",
            "flop_count_hp",
            "breakdown:sm__throughput",
        ]
        .map(str::to_owned);
        let (have, lack) = existing(wanted.to_vec(), &known);
        assert_eq!(have, ["gpu__time_duration.sum", "breakdown:sm__throughput"]);
        assert_eq!(lack, ["flop_count_hp"]);
    }

    #[test]
    fn deep_is_light_and_more_without_doubles() {
        let unique: BTreeSet<_> = deep().into_iter().collect();
        assert_eq!(unique.len(), CORE.len() + MORE.len());
        assert!(light().iter().all(|metric| unique.contains(metric)));
    }
}
