//! Kernels that compute the experts of a mixture.

/// Text in the names of such kernels, in lowercase letters and digits: fused experts, and products of a matrix for each group of rows.
const MARKS: [&str; 13] = [
    "fusedmoe",
    "moegemm",
    "moefcgemm",
    "moewna16",
    "marlinmoe",
    "moemarlin",
    "groupedgemm",
    "groupgemm",
    "gemmgrouped",
    "groupedmm",
    "groupedmatmul",
    "groupproblemshape",
    "mgrouped",
];

/// Tells whether a kernel computes experts of a mixture. Kernels of experts that run one by one have the names of any product.
pub(crate) fn is_expert(kernel: &str) -> bool {
    let letters: String = kernel
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    MARKS.iter().any(|mark| letters.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::is_expert;

    #[test]
    fn real_names() {
        for name in [
            "fused_moe_kernel",
            "fused_moe_kernel_gptq_awq",
            "void cutlass::Kernel2<cutlass::gemm::kernel::GemmGrouped<cutlass::gemm::threadblock::MmaMultistage>>()",
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<int>>>()",
            "void tensorrt_llm::cutlass_extensions::MoeFCGemm<float>()",
            "void marlin_moe_wna16::Marlin<__nv_bfloat16, 256>(int4 const*)",
            "void deep_gemm::fp8_gemm_kernel<4096u, GemmType::MGroupedContiguous>()",
        ] {
            assert!(is_expert(name), "{name}");
        }
        for name in [
            "nvjet_tst_192x192_64x4_v_bz",
            "void vllm::moe::moe_align_block_size_kernel<int>(int const*)",
            "void vllm::moe::topkGatingSoftmax<8, 64, 4, 16>(float const*)",
            "_fwd_grouped_kernel_stage1",
            "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        ] {
            assert!(!is_expert(name), "{name}");
        }
    }
}
