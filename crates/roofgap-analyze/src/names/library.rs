//! Kernels of libraries without source code.

/// Lowercase beginnings of the names of kernels of cuBLAS, cuDNN and TensorRT.
const PREFIXES: [&str; 8] =
    ["nvjet", "volta_", "turing_", "ampere_", "cudnn_", "maxwell_", "pascal_", "cask_"];

/// Lowercase text in their names: namespaces, types of parameters, and the generator of their tensor core kernels.
const MARKS: [&str; 5] = ["cublas", "cudnn::", "_xmma_", "_cudnn", "nvinfer"];

/// Tells whether a kernel is part of a library whose source code is not public, so that its users cannot change it.
pub fn is_closed_source(kernel: &str) -> bool {
    let kernel = kernel.to_ascii_lowercase();
    PREFIXES.iter().any(|prefix| kernel.starts_with(prefix)) || MARKS.iter().any(|mark| kernel.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_names() {
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
}
