//! What the counters of one launch say, by meaning instead of by metric.

use roofgap_trace::ncu::{Base, CounterSet, LaunchCounters, Unit};

use super::work::Work;

/// The resource that keeps more blocks from being resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OccupancyLimit {
    /// Registers a thread.
    Registers,
    /// Shared memory a block.
    SharedMemory,
    /// Warps of the multiprocessor.
    Warps,
    /// Blocks of the multiprocessor.
    Blocks,
    /// Barriers of the multiprocessor.
    Barriers,
}

impl OccupancyLimit {
    /// The resource in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::SharedMemory => "shared memory",
            Self::Warps => "warps a multiprocessor",
            Self::Blocks => "blocks a multiprocessor",
            Self::Barriers => "barriers",
        }
    }
}

/// The counters of a launch, or the mean of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// Nanoseconds under ncu.
    pub duration_ns: Option<f64>,
    /// Compute throughput, % of peak.
    pub sm_pct: Option<f64>,
    /// Memory throughput, % of peak.
    pub memory_pct: Option<f64>,
    /// DRAM, % of peak.
    pub dram_pct: Option<f64>,
    /// L2, % of peak.
    pub l2_pct: Option<f64>,
    /// L1, % of peak of the cycles in which it was active.
    pub l1_pct: Option<f64>,
    /// Achieved occupancy, %.
    pub occupancy_pct: Option<f64>,
    /// Occupancy that the launch allows at most, %.
    pub theoretical_occupancy_pct: Option<f64>,
    /// Bytes to and from DRAM.
    pub dram_bytes: Option<f64>,
    /// Bytes through L2.
    pub l2_bytes: Option<f64>,
    /// Multiprocessors.
    pub sms: Option<f64>,
    /// What limits occupancy.
    pub occupancy_limit: Option<OccupancyLimit>,
    /// The arithmetic.
    pub work: Option<Work>,
}

impl Readings {
    /// Reads one launch.
    #[must_use]
    pub fn of(set: &CounterSet, launch: &LaunchCounters) -> Self {
        let percent = |names: &[&str]| {
            names
                .iter()
                .find_map(|name| set.value(launch, name, Unit::PERCENT))
        };
        let bytes = |name: &str| set.value(launch, name, Unit::BYTE);
        let duration_ns = set.value(launch, "gpu__time_duration.sum", Unit::NANOSECOND);
        let read_and_written = || Some(bytes("dram__bytes_read.sum")? + bytes("dram__bytes_write.sum")?);
        let from_rate = || {
            let rate = set.value(launch, "dram__bytes.sum.per_second", Unit::BYTE_PER_SECOND)?;
            Some(rate * duration_ns? * 1e-9)
        };
        let sms = set
            .value(launch, "launch__sm_count", Unit::of(Base::Sm))
            .or_else(|| set.value(launch, "device__attribute_multiprocessor_count", Unit::ONE));
        Self {
            duration_ns,
            sm_pct: percent(&["sm__throughput.avg.pct_of_peak_sustained_elapsed"]),
            memory_pct: percent(&["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"]),
            dram_pct: percent(&[
                "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
                "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            ]),
            l2_pct: percent(&["lts__throughput.avg.pct_of_peak_sustained_elapsed"]),
            l1_pct: percent(&["l1tex__throughput.avg.pct_of_peak_sustained_active"]),
            occupancy_pct: percent(&["sm__warps_active.avg.pct_of_peak_sustained_active"]),
            theoretical_occupancy_pct: percent(&["sm__maximum_warps_per_active_cycle_pct"]),
            dram_bytes: bytes("dram__bytes.sum")
                .or_else(read_and_written)
                .or_else(from_rate),
            l2_bytes: bytes("lts__t_bytes.sum"),
            sms,
            occupancy_limit: occupancy_limit(set, launch),
            work: Work::of(set, launch),
        }
    }

    /// The mean of several launches of one kernel and shape; what only some have is the mean of those.
    #[must_use]
    pub fn mean(all: &[Self]) -> Self {
        let mean = |get: fn(&Self) -> Option<f64>| {
            let (sum, count) = all
                .iter()
                .filter_map(get)
                .fold((0.0, 0u32), |(sum, n), value| (sum + value, n + 1));
            (count > 0).then(|| sum / f64::from(count))
        };
        Self {
            duration_ns: mean(|r| r.duration_ns),
            sm_pct: mean(|r| r.sm_pct),
            memory_pct: mean(|r| r.memory_pct),
            dram_pct: mean(|r| r.dram_pct),
            l2_pct: mean(|r| r.l2_pct),
            l1_pct: mean(|r| r.l1_pct),
            occupancy_pct: mean(|r| r.occupancy_pct),
            theoretical_occupancy_pct: mean(|r| r.theoretical_occupancy_pct),
            dram_bytes: mean(|r| r.dram_bytes),
            l2_bytes: mean(|r| r.l2_bytes),
            sms: mean(|r| r.sms),
            occupancy_limit: all.iter().find_map(|r| r.occupancy_limit),
            work: mean_work(all),
        }
    }

    /// Floating-point operations.
    #[must_use]
    pub fn flops(&self) -> Option<f64> {
        self.work.as_ref().and_then(Work::flops)
    }
}

fn mean_work(all: &[Readings]) -> Option<Work> {
    let works: Vec<&Work> = all.iter().filter_map(|r| r.work.as_ref()).collect();
    let first = works.first()?;
    let mut mean = Work {
        by_kind: Vec::new(),
        tensor_uncounted: works.iter().any(|work| work.tensor_uncounted),
    };
    for (kind, _) in &first.by_kind {
        let of = |work: &&Work| {
            work.by_kind
                .iter()
                .find(|(own, _)| own == kind)
                .map_or(0.0, |(_, flops)| *flops)
        };
        mean.by_kind
            .push((*kind, works.iter().map(of).sum::<f64>() / works.len() as f64));
    }
    Some(mean)
}

fn occupancy_limit(set: &CounterSet, launch: &LaunchCounters) -> Option<OccupancyLimit> {
    let blocks = |name: &str| {
        set.quantity(launch, name)
            .map(|quantity| quantity.value)
            .filter(|value| *value > 0.0)
    };
    [
        (OccupancyLimit::Registers, "launch__occupancy_limit_registers"),
        (OccupancyLimit::SharedMemory, "launch__occupancy_limit_shared_mem"),
        (OccupancyLimit::Warps, "launch__occupancy_limit_warps"),
        (OccupancyLimit::Blocks, "launch__occupancy_limit_blocks"),
        (OccupancyLimit::Barriers, "launch__occupancy_limit_barriers"),
    ]
    .into_iter()
    .filter_map(|(limit, name)| Some((limit, blocks(name)?)))
    .min_by(|a, b| a.1.total_cmp(&b.1))
    .map(|(limit, _)| limit)
}
