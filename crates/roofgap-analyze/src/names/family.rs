//! What kind of work a kernel does, by rules that are data.

use std::sync::LazyLock;

/// The families, `other` last.
#[cfg(test)]
const FAMILIES: [&str; 13] = [
    "gemm",
    "gemv",
    "attention",
    "elementwise",
    "reduction",
    "norm",
    "softmax",
    "copy/layout",
    "moe",
    "embedding",
    "sampling",
    "communication",
    "other",
];

struct Rule {
    family: &'static str,
    needle: &'static str,
    not: Option<&'static str>,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let lines = include_str!("families.txt")
        .lines()
        .filter(|l| !l.starts_with('#'));
    lines
        .filter_map(|line| {
            let (family, rest) = line.split_once(':')?;
            let (needle, not) = match rest.split_once('!') {
                Some((needle, not)) => (needle.trim(), Some(not.trim())),
                None => (rest.trim(), None),
            };
            Some(Rule {
                family: family.trim(),
                needle,
                not,
            })
        })
        .collect()
});

/// The family of a kernel, by its full name.
pub fn family(name: &str) -> &'static str {
    let name = name.to_lowercase();
    let fits = |r: &&Rule| name.contains(r.needle) && r.not.is_none_or(|not| !name.contains(not));
    RULES.iter().find(fits).map_or("other", |r| r.family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_names_a_known_family() {
        assert!(RULES.len() > 80);
        for rule in RULES.iter() {
            assert!(FAMILIES.contains(&rule.family), "{}", rule.family);
            assert!(
                !rule.needle.is_empty() && rule.needle == rule.needle.to_lowercase(),
                "{}",
                rule.needle
            );
        }
    }

    #[test]
    fn real_names() {
        let real = [
            ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT", "gemm"),
            (
                "void gemvNSP_kernel<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 1, 32, 4, 1024>(T1)",
                "gemv",
            ),
            (
                "void dot_kernel<float, (int)128, (int)0, cublasDotParams<cublasGemvTensorStridedBatched<const float>>>(T4)",
                "gemv",
            ),
            (
                "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float>(cublasLt::cublasSplitKParams<T6>)",
                "gemm",
            ),
            (
                "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_32x1_tn_align2>(T1::Params)",
                "gemm",
            ),
            (
                "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
                "gemm",
            ),
            (
                "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x128x64",
                "gemm",
            ),
            (
                "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Flash_fwd_params)",
                "attention",
            ),
            (
                "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0",
                "attention",
            ),
            (
                "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
                "attention",
            ),
            (
                "void at::native::vectorized_elementwise_kernel<(int)8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char *, 3>>(int, T2, T3)",
                "elementwise",
            ),
            (
                "void at::native::vectorized_elementwise_kernel<(int)8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)]>(int)",
                "copy/layout",
            ),
            (
                "void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<(unsigned int)2>>(T1 *)",
                "copy/layout",
            ),
            (
                "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<c10::BFloat16, at::native::ArgMaxOps<float>>>(T3)",
                "sampling",
            ),
            (
                "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(T3)",
                "reduction",
            ),
            (
                "void at::native::<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)0>(int, T2)",
                "norm",
            ),
            (
                "void <unnamed>::softmax_warp_forward<float, float, float, (int)6, (bool)0, (bool)0>(T2 *)",
                "softmax",
            ),
            (
                "void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float, (int)4, void at::native::templates::cuda::normal_and_transform<float>>(T1)",
                "elementwise",
            ),
            ("triton_poi_fused_add_mul_silu_3", "elementwise"),
            ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", "reduction"),
            (
                "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                "communication",
            ),
            (
                "void vllm::moe::topkGatingSoftmax<8, 64, 4, 16>(float const*, bool const*)",
                "moe",
            ),
            ("fused_moe_kernel", "moe"),
            (
                "void at::native::vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *)",
                "embedding",
            ),
            ("my_kernel(int)", "other"),
        ];
        for (name, expected) in real {
            assert_eq!(family(name), expected, "{name}");
        }
    }
}
