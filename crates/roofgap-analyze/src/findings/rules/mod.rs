//! The rules, one file for each kind of finding.

mod advice;
mod chains;
mod communication;
mod data_loading;
mod devices;
mod expert_balance;
mod experts;
mod launch;
mod memory;
mod occupancy;
mod overhead;
mod recompute;
mod serving;
mod small;
mod steps;
mod stragglers;
mod streams;
mod tensor;
mod waits;

pub use communication::without_waits;
pub use overhead::PROFILER_OVERHEAD;

use super::{Explanation, View};
use crate::result::Finding;

/// Looks at a stage and adds what it finds.
pub type Rule = fn(&View<'_>, &mut Vec<Finding>);

/// The rules that judge measured launches without a timeline.
pub const OF_COUNTERS: [Rule; 7] = [
    small::small_kernels,
    memory::at_the_roof,
    memory::far_from_the_roof,
    memory::bound_by_a_cache,
    tensor::tensor_cores_idle,
    occupancy::low_occupancy,
    advice::ncu_rules,
];

/// The rules that compare the ranks of a job.
pub const OF_JOB: [Rule; 2] = [stragglers::late_ranks, expert_balance::uneven];

/// Every rule about a single capture.
pub const ALL: [Rule; 26] = [
    launch::launch_bound,
    data_loading::waits_for_data,
    waits::synchronisation,
    waits::host_copies,
    small::small_kernels,
    memory::at_the_roof,
    memory::far_from_the_roof,
    memory::bound_by_a_cache,
    tensor::tensor_cores_idle,
    occupancy::low_occupancy,
    chains::unfused,
    experts::one_by_one,
    streams::one_stream,
    communication::exposed,
    devices::uneven,
    devices::take_turns,
    steps::long_tail,
    recompute::context_again,
    serving::starved_decode,
    serving::outside_steps,
    serving::small_batch,
    serving::between_steps,
    serving::eager_batches,
    serving::kv_cache_full,
    overhead::watching,
    advice::ncu_rules,
];

/// The explanation of every finding.
pub const EXPLANATIONS: [&Explanation; 28] = [
    &launch::LAUNCH_BOUND,
    &data_loading::DATA_LOADING,
    &waits::SYNC_IN_STEP,
    &waits::HOST_COPIES,
    &small::SMALL_KERNELS,
    &memory::AT_ROOF,
    &memory::BELOW_ROOF,
    &memory::CACHE_BOUND,
    &tensor::TENSOR_CORES_IDLE,
    &occupancy::LOW_OCCUPANCY,
    &chains::UNFUSED,
    &experts::ONE_BY_ONE,
    &streams::ONE_STREAM,
    &communication::EXPOSED,
    &devices::UNEVEN,
    &devices::TAKE_TURNS,
    &steps::STEP_TAIL,
    &recompute::CONTEXT_AGAIN,
    &serving::DECODE_STARVED,
    &serving::LATENCY_OUTSIDE_STEPS,
    &serving::BATCH_TOO_SMALL,
    &serving::EAGER_BATCHES,
    &serving::KV_CACHE_FULL,
    &serving::GAPS_BETWEEN_STEPS,
    &overhead::WATCHING,
    &advice::NCU_RULES,
    &stragglers::LATE_RANKS,
    &expert_balance::UNEVEN,
];
