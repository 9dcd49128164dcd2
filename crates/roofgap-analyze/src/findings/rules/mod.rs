//! The rules: a table, and one file for each kind of finding.

mod devices;
mod host;
mod kernels;
mod launch;
mod measured;
mod memory;
mod occupancy;
mod serving;
mod steps;
mod vitals;
mod waits;
mod words;

pub use devices::{communication_roof_ns, without_waits};
pub use host::{COLD_START, fix_of_kind};
pub use steps::{GRAPHS_WHOLE, PROFILER_OVERHEAD, STEP_TAIL};

use super::rule::{Cause, Change, Find, Needs, Rows, Rule, View};
use crate::execution::{Edit, LIGHT};
use crate::names::Family;
use crate::result::{Confidence, Finding};
use crate::roof::Keeps;
use crate::timeline::IdleCause;
use std::sync::LazyLock;

/// Every rule. Of rules with one cause the more specific comes first.
pub static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    vec![
        one(GRAPHS_WHOLE, Cause::Recording, steps::whole_graphs).confidence(Confidence::Guessed),
        one("graphs-not-used", Cause::Launches, serving::eager_batches).rows(Rows::Steps).edit(Edit::Graph),
        one("experts-one-by-one", Cause::Launches, launch::one_by_one)
            .rows(Rows::Gaps(IdleCause::Launch))
            .confidence(Confidence::Bounded),
        one("launch-bound", Cause::Launches, launch::launch_bound)
            .rows(Rows::Gaps(IdleCause::Launch))
            .edit(Edit::Graph),
        one("host-gaps", Cause::Host, host::other_work)
            .rows(Rows::Gaps(IdleCause::Launch))
            .edit(Edit::NoOtherWork),
        one("data-loading", Cause::Data, host::waits_for_data)
            .rows(Rows::Gaps(IdleCause::Launch))
            .edit(Edit::NoOtherWork),
        one("sync-in-step", Cause::Waits, waits::synchronisation)
            .rows(Rows::Gaps(IdleCause::Sync))
            .edit(Edit::NoWait),
        one("allocations", Cause::Waits, waits::allocations)
            .rows(Rows::Gaps(IdleCause::Launch))
            .edit(Edit::NoAllocations),
        one("managed-memory", Cause::Copies, waits::managed_memory).rows(Rows::Gaps(IdleCause::Other)),
        one("host-copies", Cause::Copies, waits::host_copies)
            .rows(Rows::Gaps(IdleCause::Copy))
            .edit(Edit::OverlapCopies),
        one("memsets", Cause::Copies, waits::memsets),
        one("late-start", Cause::Waits, waits::late_start)
            .rows(Rows::Gaps(IdleCause::Other))
            .confidence(Confidence::Guessed),
        each("idle-*", Cause::Launches, host::idle_by_kind),
        one(COLD_START, Cause::Steps, host::cold),
        one("host-outside", Cause::Host, host::outside).edit(Edit::EarlyStart),
        each("rank-straggler", Cause::Communication, devices::late_ranks).needs(Needs::Job),
        each("expert-imbalance", Cause::Communication, devices::uneven_experts).needs(Needs::Job),
        one(devices::EXPOSED, Cause::Communication, devices::exposed)
            .rows(Rows::Kernels(&[Family::Communication])),
        one("devices-take-turns", Cause::Devices, devices::take_turns),
        one("devices-uneven", Cause::Devices, devices::uneven),
        one("context-recomputed", Cause::Recompute, steps::context_again)
            .rows(Rows::Steps)
            .keeps(Keeps::Neither)
            .confidence(Confidence::Bounded),
        one("unfused-attention", Cause::Attention, kernels::unfused_attention)
            .rows(Rows::Kernels(&[Family::Softmax, Family::Gemm, Family::Gemv, Family::Elementwise]))
            .edit(Edit::FuseAttention)
            .keeps(Keeps::Flops)
            .confidence(Confidence::Bounded),
        one("unfused-elementwise", Cause::Fusion, kernels::unfused)
            .rows(Rows::Kernels(&LIGHT))
            .edit(Edit::Fuse)
            .keeps(Keeps::Flops)
            .confidence(Confidence::Bounded),
        one("tensor-cores-idle", Cause::Precision, kernels::tensor_cores_idle)
            .needs(Needs::Counters)
            .rows(Rows::Kernels(&[Family::Gemm]))
            .change(Change::Products)
            .keeps(Keeps::Bytes)
            .confidence(Confidence::Bounded),
        one("memory-at-roof", Cause::Bytes, memory::at_the_roof)
            .counted()
            .keeps(Keeps::Flops)
            .confidence(Confidence::Bounded),
        one("memory-below-roof", Cause::Kernels, memory::far_from_the_roof)
            .counted()
            .confidence(Confidence::Bounded),
        one("cache-bound", Cause::Kernels, memory::bound_by_a_cache)
            .counted()
            .confidence(Confidence::Bounded),
        one("pipe-bound", Cause::Kernels, memory::bound_by_a_pipe).counted().confidence(Confidence::Bounded),
        one("small-blocks", Cause::Kernels, kernels::small_blocks).counted().confidence(Confidence::Bounded),
        each("low-occupancy", Cause::Kernels, occupancy::low_occupancy)
            .counted()
            .confidence(Confidence::Bounded),
        one(ABOVE_ROOF, Cause::Kernels, memory::below_every_peak).counted().confidence(Confidence::Guessed),
        one("small-kernels", Cause::Kernels, kernels::small_kernels)
            .counted()
            .confidence(Confidence::Guessed),
        one("throttled", Cause::Clock, vitals::throttled)
            .rows(Rows::Kernels(&[]))
            .confidence(Confidence::Bounded),
        one("clock-ramp", Cause::Clock, vitals::clock_ramp).confidence(Confidence::Bounded),
        one("stretched-kernels", Cause::Tenant, kernels::stretched)
            .rows(Rows::Kernels(&[Family::Gemm, Family::Elementwise, Family::CopyLayout]))
            .confidence(Confidence::Bounded),
        one("other-tenant", Cause::Tenant, vitals::other_tenant).confidence(Confidence::Guessed),
        each("ncu-*", Cause::Kernels, kernels::ncu_rules).counted().confidence(Confidence::Bounded),
        one(STEP_TAIL, Cause::Steps, steps::long_tail).rows(Rows::Steps),
        one("gaps-between-steps", Cause::Host, serving::between_steps).rows(Rows::Steps),
        one("latency-outside-steps", Cause::Host, serving::outside_steps),
        one("decode-starved", Cause::Prompts, serving::starved_decode)
            .rows(Rows::Steps)
            .keeps(Keeps::Neither),
        one("kv-cache-full", Cause::Bytes, serving::kv_cache_full)
            .keeps(Keeps::Neither)
            .confidence(Confidence::Bounded),
        one("batch-too-small", Cause::Bytes, serving::small_batch)
            .keeps(Keeps::Flops)
            .confidence(Confidence::Bounded),
        one(PROFILER_OVERHEAD, Cause::Profiler, steps::watching),
    ]
});

/// Id of the rule about unclassified kernels.
pub const ABOVE_ROOF: &str = "above-roof";

/// Rules about gaps, whose findings are left out where others save as much.
pub const GAPS: [&str; 2] = ["launch-bound", "host-gaps"];

/// Share of the time of a stage, %, from which on gaps are worth a look.
const LEAST_SMALL_GAP_PCT: f64 = 10.0;

/// A rule that makes at most one finding about a stage.
fn one(id: &'static str, cause: Cause, find: fn(&View<'_>) -> Option<Finding>) -> Rule {
    Rule::new(id, cause, Find::One(find))
}

/// A rule that makes any number of findings about a stage.
fn each(id: &'static str, cause: Cause, find: fn(&View<'_>) -> Vec<Finding>) -> Rule {
    Rule::new(id, cause, Find::Each(find))
}
