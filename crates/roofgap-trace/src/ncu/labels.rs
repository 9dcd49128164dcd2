//! The labels of the details page, and the metrics they stand for.
//!
//! The same label means different metrics in different sections (`Memory Throughput` is a share of the peak in one and
//! bytes a second in another), so the section is part of the key. What is not listed keeps its label.

/// The metric behind a label.
pub(super) fn metric(section: &str, label: &str) -> Option<&'static str> {
    let table = match section {
        // Before 2021.3 the section had the shorter name.
        "GPU Speed Of Light Throughput" | "GPU Speed Of Light" => SPEED_OF_LIGHT,
        "Launch Statistics" => LAUNCH,
        "Occupancy" => OCCUPANCY,
        "Memory Workload Analysis" => MEMORY,
        "Compute Workload Analysis" => COMPUTE,
        "Scheduler Statistics" => SCHEDULER,
        "Warp State Statistics" => WARP_STATE,
        "Instruction Statistics" => INSTRUCTION,
        "GPU and Memory Workload Distribution" => DISTRIBUTION,
        "GPU Speed Of Light Roofline Chart" => ROOFLINE,
        _ => return None,
    };
    table
        .iter()
        .find(|(own, _)| *own == label)
        .map(|(_, metric)| *metric)
}

/// Returns true if a label is the metric's own name, as for metrics requested with `--metrics`.
pub(super) fn is_name(section: &str, label: &str) -> bool {
    section.is_empty() || section == "Command line profiler metrics" || label.contains("__")
}

type Table = &'static [(&'static str, &'static str)];

const SPEED_OF_LIGHT: Table = &[
    (
        "Compute (SM) Throughput",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "Memory Throughput",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "DRAM Throughput",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "L2 Cache Throughput",
        "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "L1/TEX Cache Throughput",
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
    ),
    // The labels of 2020 and of the first releases of 2021.
    ("SM [%]", "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    (
        "Memory [%]",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "SOL DRAM",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "SOL L2 Cache",
        "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "SOL L1/TEX Cache",
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
    ),
    ("Duration", "gpu__time_duration.sum"),
    ("Elapsed Cycles", "gpc__cycles_elapsed.max"),
    ("SM Active Cycles", "sm__cycles_active.avg"),
    ("SM Frequency", "gpc__cycles_elapsed.avg.per_second"),
    ("DRAM Frequency", "dram__cycles_elapsed.avg.per_second"),
];

const LAUNCH: Table = &[
    ("Grid Size", "launch__grid_size"),
    ("Block Size", "launch__block_size"),
    ("Threads", "launch__thread_count"),
    ("Registers Per Thread", "launch__registers_per_thread"),
    ("Waves Per SM", "launch__waves_per_multiprocessor"),
    ("# SMs", "launch__sm_count"),
    ("# TPCs", "launch__tpc_count"),
    ("Enabled TPC IDs", "launch__tpc_enabled"),
    ("Stack Size", "launch__stack_size"),
    ("Uses Green Context", "launch__uses_green_context"),
    ("Cluster Size", "launch__cluster_size"),
    ("Preferred Cluster Size", "launch__preferred_cluster_size"),
    ("Cluster Scheduling Policy", "launch__cluster_scheduling_policy"),
    ("Function Cache Configuration", "launch__func_cache_config"),
    (
        "Shared Memory Configuration Size",
        "launch__shared_mem_config_size",
    ),
    (
        "Driver Shared Memory Per Block",
        "launch__shared_mem_per_block_driver",
    ),
    (
        "Dynamic Shared Memory Per Block",
        "launch__shared_mem_per_block_dynamic",
    ),
    (
        "Static Shared Memory Per Block",
        "launch__shared_mem_per_block_static",
    ),
];

const OCCUPANCY: Table = &[
    ("Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct"),
    (
        "Theoretical Active Warps per SM",
        "sm__maximum_warps_avg_per_active_cycle",
    ),
    (
        "Achieved Occupancy",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
    ),
    (
        "Achieved Active Warps Per SM",
        "sm__warps_active.avg.per_cycle_active",
    ),
    ("Block Limit Registers", "launch__occupancy_limit_registers"),
    ("Block Limit Shared Mem", "launch__occupancy_limit_shared_mem"),
    ("Block Limit Warps", "launch__occupancy_limit_warps"),
    ("Block Limit SM", "launch__occupancy_limit_blocks"),
    ("Block Limit Barriers", "launch__occupancy_limit_barriers"),
    ("Cluster Occupancy", "launch__occupancy_cluster_pct"),
    ("Overall GPU Occupancy", "launch__occupancy_cluster_gpu_pct"),
    ("Max Active Clusters", "launch__cluster_max_active"),
    ("Max Cluster Size", "launch__cluster_max_potential_size"),
];

const MEMORY: Table = &[
    ("Memory Throughput", "dram__bytes.sum.per_second"),
    (
        "Mem Busy",
        "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "Max Bandwidth",
        "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "Mem Pipes Busy",
        "sm__memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    ("L1/TEX Hit Rate", "l1tex__t_sector_hit_rate.pct"),
    ("L2 Hit Rate", "lts__t_sector_hit_rate.pct"),
    (
        "L2 Compression Success Rate",
        "lts__average_gcomp_input_sector_success_rate.pct",
    ),
    (
        "L2 Compression Ratio",
        "lts__average_gcomp_output_sector_compression_achieved_rate.ratio",
    ),
];

const COMPUTE: Table = &[
    ("Executed Ipc Elapsed", "sm__inst_executed.avg.per_cycle_elapsed"),
    ("Executed Ipc Active", "sm__inst_executed.avg.per_cycle_active"),
    ("Issued Ipc Active", "sm__inst_issued.avg.per_cycle_active"),
    (
        "SM Busy",
        "sm__instruction_throughput.avg.pct_of_peak_sustained_active",
    ),
    (
        "Issue Slots Busy",
        "sm__inst_issued.avg.pct_of_peak_sustained_active",
    ),
];

const SCHEDULER: Table = &[
    (
        "Active Warps Per Scheduler",
        "smsp__warps_active.avg.per_cycle_active",
    ),
    (
        "Eligible Warps Per Scheduler",
        "smsp__warps_eligible.avg.per_cycle_active",
    ),
    (
        "Issued Warp Per Scheduler",
        "smsp__issue_active.avg.per_cycle_active",
    ),
    (
        "One or More Eligible",
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
    ),
    (
        "No Eligible",
        "smsp__issue_inst0.avg.pct_of_peak_sustained_active",
    ),
];

const WARP_STATE: Table = &[
    (
        "Warp Cycles Per Issued Instruction",
        "smsp__average_warp_latency_per_inst_issued.ratio",
    ),
    (
        "Warp Cycles Per Executed Instruction",
        "smsp__average_warps_active_per_inst_executed.ratio",
    ),
    (
        "Avg. Active Threads Per Warp",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
    ),
    (
        "Avg. Not Predicated Off Threads Per Warp",
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    ),
];

const INSTRUCTION: Table = &[
    ("Executed Instructions", "smsp__inst_executed.sum"),
    (
        "Avg. Executed Instructions Per Scheduler",
        "smsp__inst_executed.avg",
    ),
    ("Issued Instructions", "smsp__inst_issued.sum"),
    ("Avg. Issued Instructions Per Scheduler", "smsp__inst_issued.avg"),
];

const DISTRIBUTION: Table = &[
    ("Average SM Active Cycles", "sm__cycles_active.avg"),
    ("Average SMSP Active Cycles", "smsp__cycles_active.avg"),
    ("Average L1 Active Cycles", "l1tex__cycles_active.avg"),
    ("Average L2 Active Cycles", "lts__cycles_active.avg"),
    ("Average DRAM Active Cycles", "dram__cycles_active.avg"),
    ("Total SM Elapsed Cycles", "sm__cycles_elapsed.sum"),
    ("Total SMSP Elapsed Cycles", "smsp__cycles_elapsed.sum"),
    ("Total L1 Elapsed Cycles", "l1tex__cycles_elapsed.sum"),
    ("Total L2 Elapsed Cycles", "lts__cycles_elapsed.sum"),
    ("Total DRAM Elapsed Cycles", "dram__cycles_elapsed.sum"),
];

/// `SM Frequency` stands for two clocks in this section and is left out.
const ROOFLINE: Table = &[
    ("DRAM Bandwidth", "dram__bytes.sum.per_second"),
    (
        "Theoretical DRAM Bytes Accessible",
        "dram__bytes.sum.peak_sustained",
    ),
    (
        "Predicated-On FADD Thread Instructions Executed Per Cycle",
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed",
    ),
    (
        "Predicated-On FMUL Thread Instructions Executed Per Cycle",
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed",
    ),
    (
        "Predicated-On FFMA Thread Instructions Executed Per Cycle",
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed",
    ),
    (
        "Predicated-On DADD Thread Instructions Executed Per Cycle",
        "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum.per_cycle_elapsed",
    ),
    (
        "Predicated-On DMUL Thread Instructions Executed Per Cycle",
        "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum.per_cycle_elapsed",
    ),
    (
        "Predicated-On DFMA Thread Instructions Executed Per Cycle",
        "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum.per_cycle_elapsed",
    ),
    (
        "Theoretical Predicated-On FFMA Thread Instructions Executed",
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
    ),
    (
        "Theoretical Predicated-On DFMA Thread Instructions Executed",
        "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_means_what_its_section_says() {
        assert_eq!(
            metric("GPU Speed Of Light Throughput", "Memory Throughput"),
            Some("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")
        );
        assert_eq!(
            metric("Memory Workload Analysis", "Memory Throughput"),
            Some("dram__bytes.sum.per_second")
        );
        assert_eq!(metric("Some Section", "Memory Throughput"), None);
    }
}
