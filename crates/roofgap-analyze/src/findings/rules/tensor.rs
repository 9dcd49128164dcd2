//! Matrix products that do not use the tensor cores.

use crate::findings::rule::{Cause, Find, Needs, Rows, Rule, View, percent};
use crate::gpu::{Dtype, lookup};
use crate::names::Family;
use crate::numbers::time;
use crate::result::{Confidence, Finding};
use crate::roof::Keeps;

/// Share of kernel time, in %, from which on a stage is made of matrix products.
const GEMM_HEAVY_PCT: f64 = 30.0;

/// Names under which libraries run matrix products on the CUDA cores.
const CUDA_CORE_NAMES: [&str; 5] = ["sgemm", "dgemm", "simt", "ffma", "cgemm"];
/// The same names where tensor cores do the work after all (TF32).
const TENSOR_NAMES: [&str; 4] = ["tensorop", "tf32", "xmma", "s1688"];

fn on_cuda_cores(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CUDA_CORE_NAMES.iter().any(|part| name.contains(part))
        && !TENSOR_NAMES.iter().any(|part| name.contains(part))
}

/// A stage of matrix products, part of which run on the CUDA cores by their counters, or where there are none by the names of
/// their kernels. Products with one row (gemv) are left out: they wait for memory, not for arithmetic. The bound is what the
/// ratio of peaks would save.
fn tensor_cores_idle(view: &View<'_>) -> Option<Finding> {
    let stage = view.stage;
    let kernel_ns = stage.kernel_ns?;
    let gemm_ns: i64 = stage.kernels.iter().filter(|k| k.family == Family::Gemm).map(|k| k.total_ns).sum();
    if percent(gemm_ns, kernel_ns) < GEMM_HEAVY_PCT {
        return None;
    }
    let slow: Vec<_> = stage
        .kernels
        .iter()
        .filter(|k| {
            k.family == Family::Gemm && counted(view, &k.name).unwrap_or_else(|| on_cuda_cores(&k.name))
        })
        .collect();
    let (first, (format, ratio)) = (slow.first()?, faster_format(view)?);
    let slow_ns: i64 = slow.iter().map(|kernel| kernel.total_ns).sum();
    let title = format!(
        "matrix products of {} run on the CUDA cores for {} of {} ({})",
        stage.spoken(),
        time(slow_ns),
        time(gemm_ns),
        first.short_name
    );
    let action = match format {
        Dtype::Tf32 => format!(
            "Let them use the tensor cores, which do TF32 {ratio:.1} times as fast here: bf16 weights, or \
             torch.set_float32_matmul_precision(\"high\"); sizes that are multiples of 8."
        ),
        _ => format!(
            "Let them use the tensor cores, which do {format} {ratio:.1} times as fast here: {format} weights, or autocast; \
             sizes that are multiples of 8."
        ),
    };
    let at_peak_ns = (slow_ns as f64 / ratio) as i64;
    view.saves_on_devices(&[
        ("products on the CUDA cores", slow_ns),
        ("at the ratio of the peaks", -at_peak_ns),
    ])
    .with("cuda_core_gemm_ns", slow_ns)
    .with("gemm_ns", gemm_ns)
    .with("kernel_ns", kernel_ns)
    .with_number(&format!("{format}_over_fp32_peak"), ratio)
    .with("largest", first.short_name.as_str())
    .finish(title, action)
}

/// Tells whether the counters of a kernel show arithmetic, none of it on tensor cores; `None` where they do not tell.
fn counted(view: &View<'_>, name: &str) -> Option<bool> {
    let row = view.counters().find(|row| row.row.kernel == name)?;
    let work = row.readings.work.as_ref()?;
    let flops = work.flops().filter(|flops| *flops > 0.0)?;
    // Without a counter of the tensor cores their part is not zero but unknown.
    work.by_kind.iter().find(|(kind, _)| kind.is_tensor())?;
    Some(work.tensor_flops() < 0.01 * flops)
}

/// Returns the first number format, from the closest to fp32 on, that the tensor cores of the device do faster than the CUDA cores do
/// fp32, and the ratio of the peaks; `None` for an unknown device, or where there is none.
fn faster_format(view: &View<'_>) -> Option<(Dtype, f64)> {
    let device = view.inputs.analysis.devices.first()?;
    let facts = lookup(device.name.as_deref()?, None, device.memory_bytes).ok()?;
    let fp32 = facts.dense_tflops.tflops(Dtype::Fp32)?;
    let ratio = |format| Some((format, facts.dense_tflops.tflops(format)? / fp32));
    [Dtype::Tf32, Dtype::Bf16, Dtype::Fp16].into_iter().filter_map(ratio).find(|(_, ratio)| *ratio > 1.1)
}

pub const TENSOR_CORES_IDLE: Rule = Rule {
    find: Find::One(tensor_cores_idle),
    needs: Needs::Counters,
    cause: Cause::Precision,
    keeps: Keeps::Bytes,
    rows: Rows::Kernels(&[Family::Gemm]),
    confidence: Confidence::Bounded,
    id: "tensor-cores-idle",
    remedy: "matrix products on the tensor cores",
    meaning: "Matrix products run on the CUDA cores, which are many times slower than the tensor cores.",
    computed: "A stage in which matrix products take at least 30 % of kernel time, part of them without tensor \
              operations: by counters, else by the names of the kernels. The bound is what the ratio of the peaks \
              of TF32 and FP32 would save; of BF16 or FP16 where the GPU does TF32 no faster.",
    fix: "Use bf16 or fp16 weights, allow TF32 with torch.set_float32_matmul_precision(\"high\"), and keep \
              sizes multiples of 8.",
    disproof: "The products wait for memory, so that they take as long on the tensor cores; or the program needs full FP32.",
    links: &[
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices",
    ],
};

#[cfg(test)]
mod tests {
    use super::on_cuda_cores;

    #[test]
    fn names_tell_the_cores() {
        assert!(on_cuda_cores("ampere_sgemm_128x64_tn"));
        assert!(on_cuda_cores(
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_tn_align1>(T1::Params)"
        ));
        assert!(!on_cuda_cores("cutlass_80_tensorop_s1688gemm_128x64_32x3_tn_align4"));
        assert!(!on_cuda_cores("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT"));
        assert!(!on_cuda_cores("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"));
    }
}
