//! Kernels and operators of the made-up program.

use std::sync::LazyLock;

/// A kernel and how it is launched.
#[derive(Debug, Clone)]
pub(crate) struct KernelKind {
    pub(crate) demangled: String,
    pub(crate) short: String,
    pub(crate) mangled: String,
    pub(crate) operator: &'static str,
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) registers: u32,
    pub(crate) dynamic_shared: u32,
    /// Approximate duration, ns.
    pub(crate) length: i64,
}

/// The kernels of one layer come in this order.
pub(crate) const LAYER: [Part; 10] = [
    Part::Norm,
    Part::Gemm,
    Part::Rope,
    Part::Concat,
    Part::Attention,
    Part::Gemm,
    Part::Add,
    Part::Norm,
    Part::Gemm,
    Part::Activation,
];

/// Role of a kernel in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Norm,
    Gemm,
    Rope,
    Concat,
    Attention,
    Add,
    Activation,
}

const PARTS: [Part; 7] =
    [Part::Norm, Part::Gemm, Part::Rope, Part::Concat, Part::Attention, Part::Add, Part::Activation];

/// Variants of each part: tiles, widths, knobs.
const VARIANTS: u16 = 24;

/// Picks a kernel of a part; equal numbers give equal kernels.
pub(crate) fn pick(part: Part, variant: u64) -> u16 {
    let at = PARTS.iter().position(|p| *p == part).unwrap_or(0) as u16;
    at * VARIANTS + (variant % u64::from(VARIANTS)) as u16
}

/// Returns the demangled name of a kernel.
pub(crate) fn kernel(name: u16) -> &'static str {
    kinds().get(usize::from(name)).map_or("", |k| &k.demangled)
}

/// Returns all kernels.
pub(crate) fn kinds() -> &'static [KernelKind] {
    static KINDS: LazyLock<Vec<KernelKind>> = LazyLock::new(|| {
        PARTS.iter().flat_map(|part| (0..VARIANTS).map(|v| kind(*part, u32::from(v)))).collect()
    });
    &KINDS
}

fn kind(part: Part, variant: u32) -> KernelKind {
    let width = 1 << (variant % 4);
    let (demangled, short, operator) = match part {
        Part::Norm => (
            format!(
                "void at::native::reduce_kernel<(int)512, (int){width}, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, (int){}>>(T3)",
                variant + 1
            ),
            "reduce_kernel".to_owned(),
            "aten::mean",
        ),
        Part::Gemm => {
            let name = format!(
                "nvjet_sm90_tst_{}x{}_64x{}_{}x1_v_bz_TNT",
                64 << (variant % 3),
                8 << (variant % 5),
                4 + variant,
                1 + variant % 2
            );
            (name.clone(), name, "aten::mm")
        }
        Part::Rope => (
            format!(
                "void at::native::elementwise_kernel<(int)128, (int){width}, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::MulFunctor<float>>, (int){}>(int, T3)",
                variant + 1
            ),
            "elementwise_kernel".to_owned(),
            "aten::mul",
        ),
        Part::Concat => (
            format!(
                "void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<(unsigned int)2>, unsigned int, (int){}, (int)128, (int){width}>(T1 *, CatArrInputTensorMetadata<T1, T2, T4, T5>, int, T2)",
                variant + 1
            ),
            "CatArrayBatchedCopy".to_owned(),
            "aten::cat",
        ),
        Part::Attention => {
            let name = format!(
                "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_{variant}_64x128x128_4x1x1_cga1x1x1_kernel0_0"
            );
            (name.clone(), name, "aten::_scaled_dot_product_cudnn_attention")
        }
        Part::Add => (
            format!(
                "void at::native::vectorized_elementwise_kernel<(int){width}, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char *, (unsigned long){}>>(int, T2, T3)",
                variant + 2
            ),
            "vectorized_elementwise_kernel".to_owned(),
            "aten::add",
        ),
        Part::Activation => (
            format!(
                "void at::native::vectorized_elementwise_kernel<(int){width}, at::native::<unnamed>::silu_kernel(at::TensorIteratorBase &)::[lambda() (instance {})]::operator ()() const::[lambda(c10::BFloat16) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)",
                variant + 1
            ),
            "vectorized_elementwise_kernel".to_owned(),
            "aten::silu",
        ),
    };
    let length = match part {
        Part::Gemm => 9_000,
        Part::Attention => 6_000,
        Part::Norm => 2_500,
        _ => 1_500,
    };
    KernelKind {
        mangled: format!("_ZN2at6native{}{}IfLi{variant}EEvT_", short.len(), short),
        demangled,
        short,
        operator,
        grid: [1 + (variant * 37) % 1056, 1 + variant % 3, 1],
        block: 128 << (variant % 3),
        registers: 16 + (variant * 8) % 240,
        dynamic_shared: if part == Part::Gemm { 99_328 + variant * 1024 } else { 0 },
        length: length + i64::from(variant) * 120,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kernel_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = kinds().iter().map(|k| k.demangled.as_str()).collect();
        assert_eq!(names.len(), kinds().len());
        assert_eq!(kernel(pick(Part::Activation, 23)), kinds().last().unwrap().demangled);
    }
}
