//! The one event model: columns of ids and times, names held once, losses declared.

mod calls;
mod ids;
mod losses;
mod names;
mod ops;
mod order;
mod ranges;
mod summary;
mod trace;

pub use calls::{Call, CallClass, Calls, CpuOps};
pub use ids::{DeviceId, NameId, Ns, ProcessId, ThreadId};
pub use losses::{Loss, LossKind, Losses, Severity};
pub use names::Names;
pub use ops::{GpuOp, GpuOps, LaunchShape, MemoryKind, OpKind, ShapeId};
pub use ranges::{Mark, Range, RangeStyle, Ranges};
pub use summary::KernelTotal;
pub(crate) use trace::MOST_DEVICES;
pub use trace::{Device, Process, Source, Thread, Trace, range_name};
