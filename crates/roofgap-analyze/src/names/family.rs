//! The kind of work of a kernel, by rules in `families.txt`.

use super::communication::is_communication_lowercase;
use super::parts::{Parts, clean};
use super::short::GENERIC;
use super::triton;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::LazyLock;

/// The kind of work that a kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Matrix times matrix.
    Gemm,
    /// Matrix times vector.
    Gemv,
    /// Attention.
    Attention,
    /// Element by element.
    Elementwise,
    /// Reductions and scans.
    Reduction,
    /// Normalisation.
    Norm,
    /// Softmax.
    Softmax,
    /// Copies and changes of layout.
    #[serde(rename = "copy/layout")]
    CopyLayout,
    /// Routing of a mixture of experts.
    Moe,
    /// Lookup of rows.
    Embedding,
    /// Sampling and sorting.
    Sampling,
    /// Communication with other GPUs.
    Communication,
    /// Conversion to and from a quantized format.
    Quantization,
    /// Convolutions, forward and backward.
    Convolution,
    /// Any other work.
    #[default]
    #[serde(other)]
    Other,
}

impl Family {
    /// All families, `other` last.
    pub const ALL: [Self; 15] = [
        Self::Gemm,
        Self::Gemv,
        Self::Attention,
        Self::Elementwise,
        Self::Reduction,
        Self::Norm,
        Self::Softmax,
        Self::CopyLayout,
        Self::Moe,
        Self::Embedding,
        Self::Sampling,
        Self::Communication,
        Self::Quantization,
        Self::Convolution,
        Self::Other,
    ];

    /// Returns the family of a name in the JSON.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.as_str() == name)
    }

    /// Returns the name in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Gemv => "gemv",
            Self::Attention => "attention",
            Self::Elementwise => "elementwise",
            Self::Reduction => "reduction",
            Self::Norm => "norm",
            Self::Softmax => "softmax",
            Self::CopyLayout => "copy/layout",
            Self::Moe => "moe",
            Self::Embedding => "embedding",
            Self::Sampling => "sampling",
            Self::Communication => "communication",
            Self::Quantization => "quantization",
            Self::Convolution => "convolution",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

struct Rule {
    family: Family,
    /// Lowercase text that the name contains.
    needle: &'static str,
    /// Lowercase text that the name does not contain.
    not: Option<&'static str>,
}

static RULES: LazyLock<Vec<Rule>> =
    LazyLock::new(|| include_str!("families.txt").lines().filter_map(rule).collect());

fn rule(line: &'static str) -> Option<Rule> {
    let (family, rest) = line.split_once(':').filter(|_| !line.starts_with('#'))?;
    let family = Family::named(family.trim())?;
    let (needle, not) = match rest.split_once('!') {
        Some((needle, not)) => (needle.trim(), Some(not.trim())),
        None => (rest.trim(), None),
    };
    Some(Rule { family, needle, not })
}

/// Returns the family of a kernel by its full name.
///
/// The name of the function decides. Template arguments count where it says nothing (`cutlass::Kernel2<...>`); types of
/// parameters never do.
pub fn family(name: &str) -> Family {
    let clean = clean(name);
    let lowercase = clean.to_lowercase();
    if let Some(family) = triton::family(&lowercase) {
        return family;
    }
    if is_communication_lowercase(&lowercase) {
        return Family::Communication;
    }
    let generic = GENERIC.contains(&Parts::of(&clean).base);
    let parts = Parts::of(&lowercase);
    let own = [parts.outer, parts.base].concat();
    let by_own_name = if generic { None } else { by_rules(&own) };
    by_own_name.or_else(|| by_rules(parts.whole)).unwrap_or(Family::Other)
}

/// Returns the family of the first rule that matches lowercase text.
fn by_rules(text: &str) -> Option<Family> {
    let matches = |rule: &&Rule| text.contains(rule.needle) && rule.not.is_none_or(|not| !text.contains(not));
    RULES.iter().find(matches).map(|rule| rule.family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_rule() {
        let lines = include_str!("families.txt").lines();
        let rules = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
        assert_eq!(RULES.len(), rules.count());
        for rule in RULES.iter() {
            assert!(!rule.needle.is_empty() && rule.needle == rule.needle.to_lowercase(), "{}", rule.needle);
        }
    }

    /// Names as the sources and traces of inference engines have them.
    #[test]
    fn names_of_other_engines() {
        let real = [
            (
                "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel",
                "gemm",
            ),
            ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "gemm"),
            (
                "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_2x1x1_0_tnn_align8",
                "gemm",
            ),
            (
                "void internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 0, 1, 1, 6, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<const __nv_bfloat16>>>(T12)",
                "gemv",
            ),
            (
                "void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, 0, 0, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<__half const>>>(T1)",
                "gemv",
            ),
            (
                "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, 1, 0, cublasGemvTensorStridedBatched<float const>>(T1)",
                "gemm",
            ),
            (
                "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>>(T1::Params)",
                "attention",
            ),
            (
                "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, 4, 5, 1>(Flash_fwd_params)",
                "attention",
            ),
            ("void flash::prepare_varlen_num_blocks_kernel<1, 1>(int, int const*)", "attention"),
            (
                "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8>>(Flash_fwd_mla_params)",
                "attention",
            ),
            (
                "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 4u, 8u>(T1)",
                "attention",
            ),
            ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", "norm"),
            (
                "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, 4u, float>(float*)",
                "sampling",
            ),
            ("void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<1, 128u, 8u>(T1*)", "elementwise"),
            ("void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, silu>(T1*)", "elementwise"),
            ("kernel_unified_attention_2d", "attention"),
            ("_fwd_grouped_kernel_stage1", "attention"),
            ("_fwd_kernel_stage2", "attention"),
            ("_fwd_kernel", "attention"),
            ("_rms_norm_fwd_kernel", "norm"),
            ("_layer_norm_fwd_1pass_kernel", "norm"),
            ("void vllm::merge_attn_states_kernel<__nv_bfloat16, 128u>(__nv_bfloat16*)", "attention"),
            (
                "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)",
                "elementwise",
            ),
            ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)", "norm"),
            (
                "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>(c10::BFloat16 const&)), true>(T1*)",
                "elementwise",
            ),
            (
                "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, 0>(T1*)",
                "copy/layout",
            ),
            ("void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16, 0>(T1*)", "copy/layout"),
            ("void vllm::moe::moe_align_block_size_kernel<int>(int const*)", "moe"),
            (
                "void vllm::dynamic_per_token_scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(T1*)",
                "quantization",
            ),
            (
                "void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1, 8, 8, 4, 8, false>(int4 const*)",
                "gemm",
            ),
            ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu", "gemm"),
            ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u, 64u, 128u>(float*)", "gemm"),
            ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", "communication"),
            ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", "communication"),
            (
                "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
                "communication",
            ),
            (
                "void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<__nv_bfloat16, 128>(T1)",
                "attention",
            ),
            (
                "void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, signed char, false>(T1 const*)",
                "norm",
            ),
            (
                "void tensorrt_llm::kernels::weight_only::kernel<tensorrt_llm::kernels::weight_only::KernelDetails<0>>(T1*)",
                "gemv",
            ),
            ("gemm_forward_4bit_cuda_m16nXk32(int, int, __half*)", "gemm"),
            ("void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>(int, int, int)", "gemm"),
            (
                "void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*, unsigned char*)",
                "quantization",
            ),
            ("void mul_mat_vec_q<(ggml_type)12, 1, false>(void const*, void const*)", "gemv"),
            ("void mul_mat_q<(ggml_type)12, 128, false>(char const*, int const*)", "gemm"),
            ("void flash_attn_ext_f16<128, 128, 16, 4, 4, false>(char const*)", "attention"),
            ("void soft_max_f32<true, 1024, 1024, float>(float const*)", "softmax"),
            ("void rope_norm<true, false, float>(float const*)", "elementwise"),
            ("void rms_norm_f32<1024, true>(float const*)", "norm"),
            ("void k_get_rows_float<float, float>(float const*)", "embedding"),
            ("void k_bin_bcast<&(op_mul(float, float)), float, float, float>(float const*)", "elementwise"),
            ("void quantize_q8_1(float const*, void*)", "quantization"),
            ("void at_cuda_detail::cub::DeviceSelectSweepKernel<T1>(T2)", "copy/layout"),
            (
                "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float>>(float*)",
                "reduction",
            ),
            (
                "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>(float*)",
                "softmax",
            ),
            ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(T1)", "sampling"),
            ("triton_per_fused__softmax__to_copy_1", "softmax"),
            ("triton_red_fused_native_layer_norm_2", "norm"),
            ("triton_tem_fused_mm_5", "gemm"),
            ("triton_poi_fused_cat_3", "copy/layout"),
            ("triton_poi_fused__to_copy_mul_silu_7", "elementwise"),
            ("fused_recurrent_gated_delta_rule_fwd_kernel", "attention"),
        ];
        for (name, expected) in real {
            assert_eq!(family(name).as_str(), expected, "{name}");
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
            ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "gemm"),
            (
                "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x128x64",
                "convolution",
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
            ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", "norm"),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
            ("void vllm::moe::topkGatingSoftmax<8, 64, 4, 16>(float const*, bool const*)", "moe"),
            ("fused_moe_kernel", "moe"),
            ("void at::native::vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *)", "embedding"),
            ("my_kernel(int)", "other"),
        ];
        for (name, expected) in real {
            assert_eq!(family(name).as_str(), expected, "{name}");
        }
    }

    /// Kernel names judged by hand: a family, a tab and a name in each line. They are from traces or from published tables of
    /// traces.
    #[test]
    fn names_judged_by_hand() {
        let table = include_str!("families.tsv");
        let mut wrong = Vec::new();
        let mut checked = 0;
        for line in table.lines() {
            let (expected, name) = line.split_once('\t').unwrap();
            assert!(Family::named(expected).is_some(), "{line}");
            let found = family(name);
            if found.as_str() != expected {
                wrong.push(format!("{found} instead of {expected}: {name}"));
            }
            checked += 1;
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(checked >= 120, "{checked}");
    }

    #[test]
    fn json_keeps_the_names() {
        for family in Family::ALL {
            assert_eq!(serde_json::to_value(family).unwrap(), family.as_str());
        }
        let read = |text: &str| serde_json::from_value::<Family>(text.into()).unwrap();
        assert_eq!((read("copy/layout"), read("a new family")), (Family::CopyLayout, Family::Other));
    }
}
