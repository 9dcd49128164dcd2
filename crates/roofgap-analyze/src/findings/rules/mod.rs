//! The rules, one file for each kind of finding.

mod chains;
mod communication;
mod data_loading;
mod devices;
mod experts;
mod host;
mod launch;
mod lines;
mod memory;
mod ncu;
mod occupancy;
mod overhead;
mod ranks;
mod recompute;
mod serving;
mod small;
mod steps;
mod tensor;
mod waits;

pub use communication::{communication_roof_ns, without_waits};
pub use lines::fix as fix_of_kind;
pub use overhead::PROFILER_OVERHEAD;

use super::rule::Rule;

/// Every rule. Of rules with one cause the more specific comes first.
pub static RULES: &[Rule] = &[
    serving::EAGER_BATCHES,
    experts::ONE_BY_ONE,
    launch::LAUNCH_BOUND,
    data_loading::DATA_LOADING,
    waits::SYNC_IN_STEP,
    waits::HOST_COPIES,
    lines::IDLE_LINES,
    host::COLD_START,
    host::OUTSIDE,
    ranks::LATE_RANKS,
    ranks::UNEVEN_EXPERTS,
    communication::EXPOSED,
    devices::TAKE_TURNS,
    devices::UNEVEN,
    recompute::CONTEXT_AGAIN,
    chains::UNFUSED_ATTENTION,
    chains::UNFUSED,
    tensor::TENSOR_CORES_IDLE,
    memory::AT_ROOF,
    memory::BELOW_ROOF,
    memory::CACHE_BOUND,
    occupancy::LOW_OCCUPANCY,
    small::SMALL_KERNELS,
    ncu::NCU_RULES,
    steps::STEP_TAIL,
    serving::GAPS_BETWEEN_STEPS,
    serving::LATENCY_OUTSIDE_STEPS,
    serving::DECODE_STARVED,
    serving::KV_CACHE_FULL,
    serving::BATCH_TOO_SMALL,
    overhead::PROFILER_OVERHEAD,
];
