//! Categories of trace events.

/// Kind of a trace event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    /// An operator of the framework.
    CpuOp,
    /// A call into CUDA.
    Call,
    Kernel,
    Copy,
    Set,
    /// A range that the program named.
    Annotation,
    /// Known, and not needed: it repeats what other events say, or says nothing about time on the GPU.
    Ignored,
    /// Never heard of.
    Unknown,
}

impl Category {
    /// By name. The capitalised ones are those of the profiler's first releases.
    #[inline]
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"cpu_op" | b"Operator" => Self::CpuOp,
            b"cuda_runtime" | b"cuda_driver" | b"Runtime" => Self::Call,
            // Devices of others, which write the rest of a trace alike.
            b"xpu_runtime"
            | b"xpu_driver"
            | b"mtia_runtime"
            | b"privateuse1_runtime"
            | b"privateuse1_driver" => Self::Call,
            b"kernel" | b"Kernel" => Self::Kernel,
            b"gpu_memcpy" | b"Memcpy" => Self::Copy,
            b"gpu_memset" | b"Memset" => Self::Set,
            b"user_annotation" => Self::Annotation,
            // Arrows between events.
            b"ac2g" | b"fwdbwd" | b"async" | b"async_cpu_to_gpu" | b"async_gpu" | b"forward_backward" => {
                Self::Ignored
            }
            // Projections of ranges, stacks, memory instants, the profiler's own cost and frames.
            b"gpu_user_annotation" | b"python_function" | b"cpu_instant_event" | b"overhead" | b"Trace" => {
                Self::Ignored
            }
            b"cuda_sync" | b"cuda_event" | b"cuda_profiler_range" | b"external_correlation" => Self::Ignored,
            b"collective_comm" | b"glow_runtime" | b"__metadata" => Self::Ignored,
            _ => Self::Unknown,
        }
    }

    /// Returns true if arguments of such an event are read.
    #[inline]
    pub(super) fn has_arguments(self) -> bool {
        matches!(self, Self::Call | Self::Kernel | Self::Copy | Self::Set)
    }
}
