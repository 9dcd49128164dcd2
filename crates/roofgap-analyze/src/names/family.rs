//! Classes of kernels by their names, by the rules in `families.txt`.

use super::short::{Parts, clean};
use crate::result::{StageKind, words};
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

words! {
    /// The kind of work that a kernel does.
    #[derive(Hash, Default)]
    pub enum Family {
        /// Matrix times matrix.
        Gemm = "gemm",
        /// Matrix times vector.
        Gemv = "gemv",
        /// Attention.
        Attention = "attention",
        /// Element by element.
        Elementwise = "elementwise",
        /// Reductions and scans.
        Reduction = "reduction",
        /// Normalisation.
        Norm = "norm",
        /// Softmax.
        Softmax = "softmax",
        /// Copies and changes of layout.
        CopyLayout = "copy/layout",
        /// Routing of a mixture of experts.
        Moe = "moe",
        /// Lookup of rows.
        Embedding = "embedding",
        /// Sampling and sorting.
        Sampling = "sampling",
        /// Communication with other GPUs.
        Communication = "communication",
        /// Conversion to and from a quantized format.
        Quantization = "quantization",
        /// Convolutions, forward and backward.
        Convolution = "convolution",
        /// Any other work.
        #[default]
        #[serde(other)]
        Other = "other",
    }
}

/// A rule, in lowercase.
struct Rule {
    /// Family of the class; `Other` where the class is none.
    family: Family,
    /// Text that the name contains, or begins with.
    needle: &'static str,
    is_beginning: bool,
    /// Other text that the name contains.
    and: &'static str,
    /// Text that the name does not contain.
    not: Option<&'static str>,
}

/// The rules by class. Those of families are under the empty class, except communication.
static RULES: LazyLock<FxHashMap<&'static str, Vec<Rule>>> = LazyLock::new(|| {
    let mut rules: FxHashMap<&'static str, Vec<Rule>> = FxHashMap::default();
    for line in include_str!("families.txt").lines().filter(|line| !line.starts_with('#')) {
        let Some((class, text)) = line.split_once(':') else {
            continue;
        };
        let (class, family) = match (class.split_once(' '), Family::named(class)) {
            (_, Some(Family::Communication)) => (class, Family::Communication),
            (_, Some(family)) => ("", family),
            (Some(("triton", family)), _) => ("triton", Family::named(family).unwrap_or_default()),
            _ => (class, Family::Other),
        };
        let (needle, not) = text.split_once('!').map_or((text, None), |(text, not)| (text, Some(not.trim())));
        let (needle, and) = needle.trim().split_once('+').unwrap_or((needle.trim(), ""));
        let (needle, is_beginning) =
            needle.strip_prefix('^').map_or((needle, false), |needle| (needle, true));
        rules.entry(class).or_default().push(Rule { family, needle, is_beginning, and, not });
    }
    rules
});

/// Returns true if a word is exactly one of a class.
pub fn is_word(class: &str, word: &str) -> bool {
    words_of(class).any(|known| known == word)
}

/// Returns the words of a class.
pub fn words_of(class: &str) -> impl Iterator<Item = &'static str> {
    RULES.get(class).into_iter().flatten().map(|rule| rule.needle)
}

/// Returns the family of the first rule of a class that matches lowercase text.
fn first(class: &str, text: &str) -> Option<Family> {
    let matches = |rule: &&Rule| {
        let has = if rule.is_beginning { text.starts_with(rule.needle) } else { text.contains(rule.needle) };
        has && text.contains(rule.and) && rule.not.is_none_or(|not| !text.contains(not))
    };
    RULES.get(class)?.iter().find(matches).map(|rule| rule.family)
}

/// Returns the family of a kernel by its full name.
///
/// The name of the function decides. Template arguments count where it says nothing (`cutlass::Kernel2<...>`); types of
/// parameters count for communication alone. A kernel that communicates, replayed by ncu on one rank, would wait forever for the others.
///
/// ```
/// use roofgap_analyze::{Family, family};
/// let all_reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
/// assert_eq!(family(all_reduce), Family::Communication);
/// assert_eq!(family("void at::native::reduce_kernel<512, 1>()"), Family::Reduction);
/// ```
pub fn family(name: &str) -> Family {
    let clean = clean(name);
    let lowercase = clean.to_lowercase();
    // A kernel of torch.compile that names a collective only computes with its result.
    if let Some(family) = generated(&lowercase).or_else(|| first("communication", &lowercase)) {
        return family;
    }
    let generic = is_word("generic", Parts::split(&clean).base);
    let parts = Parts::split(&lowercase);
    let function = [parts.outer, parts.base].concat();
    let by_own_name = if generic { None } else { first("", &function) };
    by_own_name.or_else(|| first("", parts.whole)).unwrap_or(Family::Other)
}

/// Returns the family of a kernel of torch.compile by its lowercase name; `None` for the name of any other kernel. Such names list the
/// operators that were fused, and many only touch the result of one.
fn generated(name: &str) -> Option<Family> {
    let (kind, fused) = name.strip_prefix("triton_")?.split_once('_')?;
    Some(match kind {
        "poi" | "for" => {
            let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
            let mut operators = fused
                .split('_')
                .filter(|word| !is_number(word) && !["fused", "unsafe"].contains(word))
                .peekable();
            let moves = |word: &str| is_word("moves", word);
            if fused.starts_with("fused_embedding") {
                Family::Embedding
            } else if operators.peek().is_some() && operators.all(moves) {
                Family::CopyLayout
            } else {
                Family::Elementwise
            }
        }
        "red" | "per" | "spl" => first("triton", fused).unwrap_or(Family::Reduction),
        "tem" | "mm" if fused.contains("attention") => Family::Attention,
        "tem" | "mm" if fused.contains("convolution") => Family::Convolution,
        "tem" | "mm" => Family::Gemm,
        _ => return None,
    })
}

/// Returns the phase that an attention kernel is made for, where its name says it.
pub fn attention_phase(name: &str) -> Option<StageKind> {
    let name = name.to_ascii_lowercase();
    let is = |class: &str| first(class, &name).is_some();
    let context = || is("prefill attention").then_some(StageKind::Prefill);
    if is("decode attention") { Some(StageKind::Decode) } else { context() }
}

/// Names under which libraries run matrix products on the CUDA cores.
const CUDA_CORE_NAMES: [&str; 5] = ["sgemm", "dgemm", "simt", "ffma", "cgemm"];
/// The same names where tensor cores do the work after all (TF32).
const TENSOR_NAMES: [&str; 3] = ["tensorop", "tf32", "s1688"];

/// Tells whether a kernel is a matrix product on the CUDA cores, by its name.
pub fn on_cuda_cores(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CUDA_CORE_NAMES.iter().any(|part| name.contains(part))
        && !TENSOR_NAMES.iter().any(|part| name.contains(part))
}

/// Tells whether a kernel is part of a library whose source code is not public, so that its users cannot change it.
pub fn is_closed_source(kernel: &str) -> bool {
    first("closed source", &kernel.to_ascii_lowercase()).is_some()
}

/// Tells whether a kernel only makes input data: random numbers and constants.
pub fn is_initialisation(kernel: &str) -> bool {
    // A kernel that takes the state of a generator uses random numbers.
    first("initialisation", Parts::split(&clean(kernel).to_ascii_lowercase()).whole).is_some()
}

/// Tells whether a kernel computes experts of a mixture. Kernels of experts that run one by one have the names of any product.
pub fn is_expert(kernel: &str) -> bool {
    // A DeepGEMM product with groups of rows, or of columns for the gradient of the weights. 0 is a plain product and 4 a batch of them.
    let is_grouped = kernel.split_once("gemm::GemmType)").is_some_and(|(_, rest)| {
        let kind = rest.split(|c: char| !c.is_ascii_digit()).next();
        matches!(kind, Some("1" | "2" | "3" | "5" | "6"))
    });
    let letters = || kernel.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase());
    is_grouped || first("experts", &letters().collect::<String>()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_uses_random_numbers_does_not_make_the_input() {
        assert!(is_initialisation("void gen_sequenced<curandStateXORWOW, int>(curandStateXORWOW *)"));
        assert!(!is_initialisation("computeValue(unsigned int *, curandStateXORWOW *, unsigned int)"));
    }

    #[test]
    fn every_line_is_a_rule() {
        let lines = include_str!("families.txt").lines();
        let rules = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
        assert_eq!(RULES.values().map(Vec::len).sum::<usize>(), rules.count());
        // Words are compared as they are, rules with the name in lower case.
        let words = ["generic", "wrapper", "empty", "telling", "lost"];
        for (class, rules) in RULES.iter() {
            let is_word = words.iter().any(|word| class.starts_with(word));
            for Rule { needle, .. } in rules {
                assert!(!needle.is_empty() && (is_word || *needle == needle.to_lowercase()), "{needle}");
            }
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
        for family in Family::ALL.iter().copied() {
            assert_eq!(serde_json::to_value(family).unwrap(), family.as_str());
        }
        let read = |text: &str| serde_json::from_value::<Family>(text.into()).unwrap();
        assert_eq!((read("copy/layout"), read("a new family")), (Family::CopyLayout, Family::Other));
    }

    #[test]
    fn communication_is_known() {
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
            assert_eq!(family(name), Family::Communication, "{name}");
        }
        for name in [
            "void at::native::reduce_kernel<512, 1>()",
            "sm90_xmma_gemm_bf16bf16_bf16f32",
            "void tree::updatePointerNodes<int>(int*)",
            "triton_poi_fused_add_all_reduce_0",
        ] {
            assert_ne!(family(name), Family::Communication, "{name}");
        }
    }

    #[test]
    fn experts_are_known() {
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

    #[test]
    fn kernels_of_closed_libraries_are_known() {
        for name in [
            "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
            "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
            "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float>(cublasLt::cublasSplitKParams<T6>)",
            "void cudnn::bn_bw_1C11_singleread<float, 512, true, 1, 2, 0>(cudnn::bn_bw_1C11_args<float>)",
        ] {
            assert!(is_closed_source(name), "{name}");
        }
        for name in [
            "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>>(int)",
            "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Flash_fwd_params)",
            "triton_red_fused_native_layer_norm_2",
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(T1::Params)",
        ] {
            assert!(!is_closed_source(name), "{name}");
        }
    }

    #[test]
    fn attention_kernels_of_one_phase_are_known() {
        let (context, generation) = (Some(StageKind::Prefill), Some(StageKind::Decode));
        for (name, phase) in [
            ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", context),
            ("void ck_tile::kentry<(int)2, ck_tile::FmhaBatchPrefillWithPagedKVCacheKernel<>>()", context),
            ("void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits<>>()", context),
            ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<>>()", None),
            ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<2, 4>()", generation),
            ("void vllm::paged_attention_v2_kernel<__half, __half, 128, 16>()", generation),
            ("void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16>()", generation),
            ("kernel_unified_attention_3d", generation),
            ("kernel_unified_attention_2d", None),
            ("void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64>>()", None),
        ] {
            assert_eq!(attention_phase(name), phase, "{name}");
        }
    }

    #[test]
    fn names_are_in_the_order_of_the_enum() {
        assert!(Family::ALL.iter().enumerate().all(|(at, family)| *family as usize == at));
    }
}
