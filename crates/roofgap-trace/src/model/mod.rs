//! The event model: columns of ids and times, interned names, declared losses.

mod calls;
mod distributed;
mod host;
mod ids;
mod limits;
mod losses;
mod ops;
mod order;
mod ranges;
mod sampled;
mod trace;

pub use calls::{BackwardLink, Call, CallClass, Calls, CpuOps, ShapedOperator};
pub use distributed::{Collective, Distributed, ProcessGroup};
pub(crate) use distributed::{group_label, launcher_rank};
pub use host::{ForeignSample, FrameId, HostFrame, HostSample, HostSpan, HostStacks, NOT_RUNNING, StackId};
pub use ids::{DeviceId, NameId, Names, Ns, ProcessId, ThreadId};
pub use losses::{Loss, LossKind, Losses, Severity};
pub(crate) use ops::is_within;
pub use ops::{GpuOp, GpuOps, LaunchShape, MemoryKind, OpKind, ShapeId};
pub use ranges::{GraphNodes, Mark, Range, RangeCollective, RangeStyle, Ranges};
pub use sampled::{SampledCounters, SampledMetric};
pub(crate) use trace::MOST_DEVICES;
pub use trace::{Device, KernelTotal, Process, RecordedWindows, Source, Thread, Trace, range_name};
