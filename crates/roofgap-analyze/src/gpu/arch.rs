//! What differs between architectures: the counters of arithmetic, and the slots of a multiprocessor.
//!
//! Names of counters up to Hopper are those of `ncu --query-metrics` (a list is kept among the fixtures and tested
//! against); Blackwell's are those that captures of it hold (bf16 on an RTX 5090 among the third-party pages) or that its
//! users report, and no list of ncu has confirmed them here. `sm__ops_path_tensor_*` counts a multiplication and an
//! addition as two, on whole tiles: what was executed, padding included.

use super::Dtype;
use Arch::{Ada, Ampere, Blackwell, BlackwellConsumer, Hopper, Turing, Volta};

/// Kinds of arithmetic, each with a roof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkKind {
    /// Double precision.
    Fp64,
    /// Single precision.
    Fp32,
    /// Half precision outside of the tensor cores.
    Fp16,
    /// Tensor cores, double precision.
    TensorFp64,
    /// Tensor cores, tf32.
    TensorTf32,
    /// Tensor cores, fp16.
    TensorFp16,
    /// Tensor cores, bf16.
    TensorBf16,
    /// Tensor cores, fp8 (on Blackwell with fp6 and fp4 in it).
    TensorFp8,
    /// Tensor cores, fp4.
    TensorFp4,
}

impl WorkKind {
    /// Returns a short name, and the format whose peak is the roof; half precision outside of the tensor cores has none in the table.
    fn row(self) -> (&'static str, Option<Dtype>) {
        match self {
            Self::Fp64 => ("fp64", Some(Dtype::Fp64)),
            Self::Fp32 => ("fp32", Some(Dtype::Fp32)),
            Self::Fp16 => ("fp16", None),
            Self::TensorFp64 => ("tensor fp64", Some(Dtype::Fp64)),
            Self::TensorTf32 => ("tensor tf32", Some(Dtype::Tf32)),
            Self::TensorFp16 => ("tensor fp16", Some(Dtype::Fp16)),
            Self::TensorBf16 => ("tensor bf16", Some(Dtype::Bf16)),
            Self::TensorFp8 => ("tensor fp8", Some(Dtype::Fp8)),
            Self::TensorFp4 => ("tensor fp4", Some(Dtype::Fp4)),
        }
    }

    /// Returns a short name.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the format whose peak is its roof.
    pub fn dtype(self) -> Option<Dtype> {
        self.row().1
    }

    /// Tells whether the tensor cores do it.
    pub fn is_tensor(self) -> bool {
        !matches!(self, Self::Fp64 | Self::Fp32 | Self::Fp16)
    }
}

/// Generations of GPUs that count their work alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// 7.0, 7.2
    Volta,
    /// 7.5
    Turing,
    /// 8.0, 8.6, 8.7
    Ampere,
    /// 8.9
    Ada,
    /// 9.0
    Hopper,
    /// 10.x and 11.x
    Blackwell,
    /// 12.x
    BlackwellConsumer,
}

/// Instructions of single threads: the operation, its kind, and the floating-point operations that one count stands for. A
/// half-precision instruction works on two numbers at once. Two single-precision numbers in one instruction: data-centre Blackwell only.
pub const SCALAR: [(&str, WorkKind, f64); 12] = [
    ("fadd", WorkKind::Fp32, 1.0),
    ("fmul", WorkKind::Fp32, 1.0),
    ("ffma", WorkKind::Fp32, 2.0),
    ("hadd", WorkKind::Fp16, 2.0),
    ("hmul", WorkKind::Fp16, 2.0),
    ("hfma", WorkKind::Fp16, 4.0),
    ("dadd", WorkKind::Fp64, 1.0),
    ("dmul", WorkKind::Fp64, 1.0),
    ("dfma", WorkKind::Fp64, 2.0),
    ("fadd2", WorkKind::Fp32, 2.0),
    ("fmul2", WorkKind::Fp32, 2.0),
    ("ffma2", WorkKind::Fp32, 4.0),
];

/// Returns the metric of an operation of [`SCALAR`], without its rollup.
pub fn scalar_metric(operation: &str) -> String {
    format!("sm__sass_thread_inst_executed_op_{operation}_pred_on")
}

/// A counter of tensor operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorCounter {
    /// The metric without its rollup.
    pub metric: &'static str,
    /// Kind of work it counts.
    pub kind: WorkKind,
    /// Architectures that have it.
    on: &'static [Arch],
}

/// Lists counters by the end of their names, their kind, and the architectures that have them.
macro_rules! tensor_counters {
    ($($formats:literal, $kind:ident, $on:expr;)*) => {
        [$(TensorCounter {
            metric: concat!("sm__ops_path_tensor_src_", $formats),
            kind: WorkKind::$kind,
            on: &$on,
        }),*]
    };
}

/// No operation is in two counters of one architecture. 10.3 and 12.0 count fp8 apart, 12.1 as 10.0 does; a device answers `n/a` to
/// the other's names.
static TENSOR: [TensorCounter; 15] = tensor_counters! {
    "bf16_dst_fp32", TensorBf16, [Ampere, Ada, Hopper, Blackwell, BlackwellConsumer];
    "fp16_dst_fp16", TensorFp16, [Volta, Turing, Ampere, Ada, Blackwell, BlackwellConsumer];
    "fp16_dst_fp32", TensorFp16, [Volta, Ampere, Ada, Blackwell, BlackwellConsumer];
    // ncu's name on Turing, which has neither bf16 nor tf32.
    "fp16_bf16_tf32_dst_fp32", TensorFp16, [Turing];
    "fp16", TensorFp16, [Hopper];
    "tf32_dst_fp32", TensorTf32, [Ampere, Ada, Hopper, Blackwell, BlackwellConsumer];
    "fp64", TensorFp64, [Ampere, Ada, Hopper, Blackwell, BlackwellConsumer];
    "fp8", TensorFp8, [Ada, Hopper];
    "fp4_dst_fp32", TensorFp4, [Blackwell, BlackwellConsumer];
    "fp8_dst_fp16", TensorFp8, [Blackwell, BlackwellConsumer];
    "fp8_dst_fp32", TensorFp8, [Blackwell, BlackwellConsumer];
    "fp4_fp6_dst_fp16", TensorFp8, [Blackwell, BlackwellConsumer];
    "fp4_fp6_dst_fp32", TensorFp8, [Blackwell, BlackwellConsumer];
    // 10.0 counts the narrow formats together; the peak that fits all of them is fp8's.
    "fp4_fp6_fp8_dst_fp16", TensorFp8, [Blackwell, BlackwellConsumer];
    "fp4_fp6_fp8_dst_fp32", TensorFp8, [Blackwell, BlackwellConsumer];
};

impl Arch {
    /// The generation of a compute capability; `None` for one that is not known here.
    pub fn with_capability(compute_capability: (u8, u8)) -> Option<Self> {
        Some(match compute_capability {
            (7, 0 | 2) => Volta,
            (7, 5) => Turing,
            (8, 0 | 6 | 7) => Ampere,
            (8, 9) => Ada,
            (9, 0) => Hopper,
            (10 | 11, _) => Blackwell,
            (12, _) => BlackwellConsumer,
            _ => return None,
        })
    }

    /// The counters of tensor operations; those of all architectures for one that is not known.
    pub fn tensor_counters(arch: Option<Self>) -> impl Iterator<Item = &'static TensorCounter> {
        TENSOR.iter().filter(move |counter| arch.is_none_or(|arch| counter.on.contains(&arch)))
    }
}

/// Slots of a multiprocessor: threads, blocks, and bytes of shared memory; `None` for a compute capability that is not known here.
pub fn multiprocessor_slots(compute_capability: (u32, u32)) -> Option<(u32, u32, u32)> {
    match compute_capability {
        (7, 0) => Some((2048, 32, 96 << 10)),
        (7, 5) => Some((1024, 16, 64 << 10)),
        (8, 0) => Some((2048, 32, 164 << 10)),
        (8, 6) => Some((1536, 16, 100 << 10)),
        (8, 9) => Some((1536, 24, 100 << 10)),
        (9, 0) | (10, _) => Some((2048, 32, 228 << 10)),
        (12, _) => Some((1536, 24, 100 << 10)),
        _ => None,
    }
}
