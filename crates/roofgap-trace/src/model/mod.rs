//! The event model: columns of ids and times, interned names, declared losses.

mod backward;
mod calls;
mod distributed;
mod graph_nodes;
mod ids;
mod limits;
mod losses;
mod ops;
mod order;
mod ranges;
mod shaped;
mod split;
mod trace;
mod windows;

pub use backward::BackwardLink;
pub use calls::{Call, CallClass, Calls, CpuOps};
pub(crate) use distributed::group_label;
pub use distributed::{Collective, Distributed, ProcessGroup};
pub use graph_nodes::GraphNodes;
pub use ids::{DeviceId, NameId, Names, Ns, ProcessId, ThreadId};
pub use losses::{Loss, LossKind, Losses, Severity};
pub use ops::{GpuOp, GpuOps, LaunchShape, MemoryKind, OpKind, ShapeId};
pub use ranges::{Mark, Range, RangeCollective, RangeStyle, Ranges};
pub use shaped::ShapedOperator;
pub(crate) use trace::MOST_DEVICES;
pub use trace::{Device, KernelTotal, Process, Source, SourceFormat, Thread, Trace, range_name};
pub use windows::RecordedWindows;
