//! Kernels that compute the experts of a mixture.

/// Text in the names of such kernels, in lowercase letters and digits: fused experts, and products of a matrix for each group of rows,
/// with which some engines also compute adapters (LoRA).
const MARKS: [&str; 15] = [
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
    "mgroupedcontiguous",
    "mgroupedmasked",
    "mgroupedgemm",
];

/// Text before the kind of a DeepGEMM product, which tools print as a number.
const DEEP_GEMM_KIND: &str = "gemm::GemmType)";

/// Tells whether a kernel computes experts of a mixture. Kernels of experts that run one by one have the names of any product.
pub fn is_expert(kernel: &str) -> bool {
    if is_grouped_deep_gemm(kernel) {
        return true;
    }
    let letters: String =
        kernel.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    MARKS.iter().any(|mark| letters.contains(mark))
}

/// Tells whether a name is that of a DeepGEMM product with groups of rows, or of columns for the gradient of the weights. 0 is a plain
/// product and 4 a batch of them.
fn is_grouped_deep_gemm(kernel: &str) -> bool {
    kernel.split_once(DEEP_GEMM_KIND).is_some_and(|(_, rest)| {
        let kind = rest.split(|c: char| !c.is_ascii_digit()).next();
        matches!(kind, Some("1" | "2" | "3" | "5" | "6"))
    })
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
            "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 7168u, 8u, 128u, (deep_gemm::GemmType)1, cutlass::bfloat16_t>(float*)",
            "void dpsk::gemm::fp8_gemm_kernel<4096u, (dpsk::gemm::GemmType)2>(int*)",
            "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0, 4096u, 7168u, 32u, (deep_gemm::GemmType)2, (bool)0>(int*)",
        ] {
            assert!(is_expert(name), "{name}");
        }
        for name in [
            "nvjet_tst_192x192_64x4_v_bz",
            "void vllm::moe::moe_align_block_size_kernel<int>(int const*)",
            "void vllm::moe::topkGatingSoftmax<8, 64, 4, 16>(float const*)",
            "_fwd_grouped_kernel_stage1",
            "rms_norm_grouped_kernel",
            "void deep_gemm::sm90_bf16_gemm_impl<(cute::UMMA::Major)1, 0u, 576u, 7168u, 1u, (deep_gemm::GemmType)0, float>(int*)",
            "void deep_gemm::sm90_bf16_gemm_impl<(cute::UMMA::Major)2, 0u, 512u, 128u, 16u, (deep_gemm::GemmType)4, float>(int*)",
            "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        ] {
            assert!(!is_expert(name), "{name}");
        }
    }
}
