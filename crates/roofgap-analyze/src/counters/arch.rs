//! The counters of arithmetic, by architecture.
//!
//! Names and units up to Hopper are those of `ncu --query-metrics` (a list is kept among the fixtures and tested
//! against); Blackwell's are those that captures of it hold (bf16 on an RTX 5090 among the third-party pages) or that its
//! users report, and no list of ncu has confirmed them here. `sm__ops_path_tensor_*` counts a multiplication and an
//! addition as two, on whole tiles: what was executed, padding included.

use crate::gpu::Dtype;

/// Kinds of arithmetic with roofs of their own.
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
    /// Tells whether the tensor cores do it.
    pub fn is_tensor(self) -> bool {
        !matches!(self, Self::Fp64 | Self::Fp32 | Self::Fp16)
    }

    /// The format whose peak is its roof; half precision outside of the tensor cores has none in the table.
    pub fn dtype(self) -> Option<Dtype> {
        Some(match self {
            Self::Fp16 => return None,
            Self::Fp64 | Self::TensorFp64 => Dtype::Fp64,
            Self::Fp32 => Dtype::Fp32,
            Self::TensorTf32 => Dtype::Tf32,
            Self::TensorFp16 => Dtype::Fp16,
            Self::TensorBf16 => Dtype::Bf16,
            Self::TensorFp8 => Dtype::Fp8,
            Self::TensorFp4 => Dtype::Fp4,
        })
    }

    /// A short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp64 => "fp64",
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::TensorFp64 => "tensor fp64",
            Self::TensorTf32 => "tensor tf32",
            Self::TensorFp16 => "tensor fp16",
            Self::TensorBf16 => "tensor bf16",
            Self::TensorFp8 => "tensor fp8",
            Self::TensorFp4 => "tensor fp4",
        }
    }
}

/// Generations of GPUs that count their work alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// 7.0, 7.2
    Volta,
    /// 7.5
    Turing,
    /// 8.0
    Ampere,
    /// 8.6, 8.7
    AmpereConsumer,
    /// 8.9
    Ada,
    /// 9.0
    Hopper,
    /// 10.x and 11.x
    Blackwell,
    /// 12.x
    BlackwellConsumer,
}

/// A counter and the operations that one count of it stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter {
    /// The metric without its rollup.
    pub metric: &'static str,
    /// Kind of work it counts.
    pub kind: WorkKind,
    /// Floating-point operations a count.
    pub factor: f64,
}

const fn counter(metric: &'static str, kind: WorkKind, factor: f64) -> Counter {
    Counter { metric, kind, factor }
}

/// Instructions of single threads, on every architecture. A half-precision instruction works on two numbers at once.
pub const SCALAR: &[Counter] = &[
    counter("sm__sass_thread_inst_executed_op_fadd_pred_on", WorkKind::Fp32, 1.0),
    counter("sm__sass_thread_inst_executed_op_fmul_pred_on", WorkKind::Fp32, 1.0),
    counter("sm__sass_thread_inst_executed_op_ffma_pred_on", WorkKind::Fp32, 2.0),
    counter("sm__sass_thread_inst_executed_op_hadd_pred_on", WorkKind::Fp16, 2.0),
    counter("sm__sass_thread_inst_executed_op_hmul_pred_on", WorkKind::Fp16, 2.0),
    counter("sm__sass_thread_inst_executed_op_hfma_pred_on", WorkKind::Fp16, 4.0),
    counter("sm__sass_thread_inst_executed_op_dadd_pred_on", WorkKind::Fp64, 1.0),
    counter("sm__sass_thread_inst_executed_op_dmul_pred_on", WorkKind::Fp64, 1.0),
    counter("sm__sass_thread_inst_executed_op_dfma_pred_on", WorkKind::Fp64, 2.0),
];

/// Two single-precision numbers in one instruction: data-centre Blackwell only.
pub const PACKED: &[Counter] = &[
    counter("sm__sass_thread_inst_executed_op_fadd2_pred_on", WorkKind::Fp32, 2.0),
    counter("sm__sass_thread_inst_executed_op_fmul2_pred_on", WorkKind::Fp32, 2.0),
    counter("sm__sass_thread_inst_executed_op_ffma2_pred_on", WorkKind::Fp32, 4.0),
];

const FP16_TO_FP16: Counter = counter("sm__ops_path_tensor_src_fp16_dst_fp16", WorkKind::TensorFp16, 1.0);
const FP16_TO_FP32: Counter = counter("sm__ops_path_tensor_src_fp16_dst_fp32", WorkKind::TensorFp16, 1.0);
const BF16: Counter = counter("sm__ops_path_tensor_src_bf16_dst_fp32", WorkKind::TensorBf16, 1.0);
const TF32: Counter = counter("sm__ops_path_tensor_src_tf32_dst_fp32", WorkKind::TensorTf32, 1.0);
const FP64: Counter = counter("sm__ops_path_tensor_src_fp64", WorkKind::TensorFp64, 1.0);
const FP8: Counter = counter("sm__ops_path_tensor_src_fp8", WorkKind::TensorFp8, 1.0);
const FP4: Counter = counter("sm__ops_path_tensor_src_fp4_dst_fp32", WorkKind::TensorFp4, 1.0);
// Blackwell counts the narrow formats together; the peak that fits all of them is fp8's.
const NARROW_TO_FP16: Counter =
    counter("sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp16", WorkKind::TensorFp8, 1.0);
const NARROW_TO_FP32: Counter =
    counter("sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32", WorkKind::TensorFp8, 1.0);

const VOLTA: &[Counter] = &[FP16_TO_FP16, FP16_TO_FP32];
const TURING: &[Counter] = &[
    FP16_TO_FP16,
    // ncu's name on Turing, which has neither bf16 nor tf32.
    counter("sm__ops_path_tensor_src_fp16_bf16_tf32_dst_fp32", WorkKind::TensorFp16, 1.0),
];
const AMPERE: &[Counter] = &[BF16, FP16_TO_FP16, FP16_TO_FP32, TF32, FP64];
const ADA: &[Counter] = &[BF16, FP16_TO_FP16, FP16_TO_FP32, TF32, FP64, FP8];
const HOPPER: &[Counter] =
    &[BF16, counter("sm__ops_path_tensor_src_fp16", WorkKind::TensorFp16, 1.0), TF32, FP64, FP8];
const BLACKWELL: &[Counter] =
    &[BF16, FP16_TO_FP16, FP16_TO_FP32, TF32, FP64, FP4, NARROW_TO_FP16, NARROW_TO_FP32];
/// 12.0 counts fp8 apart, 12.1 as data-centre Blackwell does; a device answers `n/a` to the other's names.
const BLACKWELL_CONSUMER: &[Counter] = &[
    BF16,
    FP16_TO_FP16,
    FP16_TO_FP32,
    TF32,
    FP64,
    FP4,
    counter("sm__ops_path_tensor_src_fp8_dst_fp16", WorkKind::TensorFp8, 1.0),
    counter("sm__ops_path_tensor_src_fp8_dst_fp32", WorkKind::TensorFp8, 1.0),
    counter("sm__ops_path_tensor_src_fp4_fp6_dst_fp16", WorkKind::TensorFp8, 1.0),
    counter("sm__ops_path_tensor_src_fp4_fp6_dst_fp32", WorkKind::TensorFp8, 1.0),
    NARROW_TO_FP16,
    NARROW_TO_FP32,
];

impl Arch {
    /// The generation of a compute capability; `None` for one that is not known here.
    pub fn of(compute_capability: (u8, u8)) -> Option<Self> {
        Some(match compute_capability {
            (7, 0 | 2) => Self::Volta,
            (7, 5) => Self::Turing,
            (8, 0) => Self::Ampere,
            (8, 6 | 7) => Self::AmpereConsumer,
            (8, 9) => Self::Ada,
            (9, 0) => Self::Hopper,
            (10 | 11, _) => Self::Blackwell,
            (12, _) => Self::BlackwellConsumer,
            _ => return None,
        })
    }

    /// The counters of tensor operations; no operation is in two of them.
    pub fn tensor_counters(self) -> &'static [Counter] {
        match self {
            Self::Volta => VOLTA,
            Self::Turing => TURING,
            Self::Ampere | Self::AmpereConsumer => AMPERE,
            Self::Ada => ADA,
            Self::Hopper => HOPPER,
            Self::Blackwell => BLACKWELL,
            Self::BlackwellConsumer => BLACKWELL_CONSUMER,
        }
    }
}
