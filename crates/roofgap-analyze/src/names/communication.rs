//! Kernels that communicate with other GPUs.

use super::triton;

/// Lowercase text in the names of communication kernels.
const MARKS: [&str; 23] = [
    "nccl",
    "rccl",
    "msccl",
    "all_to_all",
    "moea2a",
    "symmetric_memory",
    "userbuffers",
    "nvshmem",
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "cross_device_reduce",
    "all2all",
    "alltoall",
    "deepep",
    "deep_ep",
    "hybrid_ep",
    "a2a_dispatch",
    "a2a_combine",
    "symm_mem",
    "multimem",
];

/// Tells whether a kernel communicates with other GPUs. Replayed by ncu on one rank it would wait forever for the others.
///
/// ```
/// use roofgap_analyze::is_communication;
/// assert!(is_communication("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"));
/// assert!(!is_communication("void at::native::reduce_kernel<512, 1>()"));
/// ```
pub fn is_communication(kernel: &str) -> bool {
    is_communication_lowercase(&kernel.to_lowercase())
}

pub fn is_communication_lowercase(kernel: &str) -> bool {
    // A kernel of torch.compile that names a collective only computes with its result.
    triton::family(kernel).is_none()
        && (MARKS.iter().any(|mark| kernel.contains(mark)) || is_of_nodes(kernel))
}

/// Tells whether a name is one of DeepEP or of what is made after it, by the text "internode" or "intranode", which is not that of a
/// pointer to a node.
fn is_of_nodes(kernel: &str) -> bool {
    let mut between = kernel.match_indices("internode");
    between.any(|(at, _)| !kernel[..at].ends_with("po")) || kernel.contains("intranode")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_names() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)",
            "void tensorrt_llm::kernels::oneShotAllReduceKernel<float>()",
            "void deep_ep::internode::dispatch<false, 8>(int4*)",
            "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*)",
            "void dpsk::ep::internode_ll::combine<3, 10, 7168, 9>(void*)",
            "mori::moe::EpDispatchIntraNodeKernel",
            "EpDispatchInterNodeV1Kernel_bf16",
            "void hybrid_ep::dispatch_kernel<4>(int)",
            "a2a_combine_recv_kernel",
        ] {
            assert!(is_communication(name), "{name}");
        }
        for name in [
            "void at::native::reduce_kernel<512, 1>()",
            "sm90_xmma_gemm_bf16bf16_bf16f32",
            "void tree::updatePointerNodes<int>(int*)",
            "triton_poi_fused_add_all_reduce_0",
        ] {
            assert!(!is_communication(name), "{name}");
        }
    }
}
