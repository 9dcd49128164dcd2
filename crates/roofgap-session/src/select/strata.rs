//! Kernel x grid x block: what ncu can measure once and what then stands for all its launches.

/// The launches of one kernel with one grid and block in one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stratum {
    /// The stage.
    pub stage: String,
    /// Kernel name as the timeline has it.
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Sum of its durations.
    pub total_ns: i64,
    /// How often it was launched.
    pub launches: u64,
}

/// Whether a kernel talks to other GPUs. Replaying one rank alone would wait for the others for ever.
pub fn is_communication(kernel: &str) -> bool {
    const MARKS: [&str; 9] = [
        "nccl",
        "nvshmem",
        "allreduce",
        "all_reduce",
        "allgather",
        "all_gather",
        "reduce_scatter",
        "cross_device_reduce",
        "multimem",
    ];
    let lower = kernel.to_ascii_lowercase();
    MARKS.iter().any(|mark| lower.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::is_communication;

    #[test]
    fn collectives_are_known_by_name() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
            "void tensorrt_llm::kernels::oneShotAllReduceKernel<float>()",
        ] {
            assert!(is_communication(name), "{name}");
        }
        for name in [
            "void at::native::reduce_kernel<512, 1>()",
            "sm90_xmma_gemm_bf16bf16_bf16f32",
        ] {
            assert!(!is_communication(name), "{name}");
        }
    }
}
