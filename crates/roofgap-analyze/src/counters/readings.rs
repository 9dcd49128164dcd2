//! The counters of one launch by meaning instead of by metric.

use roofgap_trace::ncu::{Base, CounterSet, LaunchCounters, Unit};

use super::caches;
use super::work::Work;
use crate::result::CacheRates;

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
    /// Bytes to and from DRAM.
    pub dram_bytes: Option<f64>,
    /// Bytes through L2.
    pub l2_bytes: Option<f64>,
    /// Multiprocessors.
    pub sms: Option<f64>,
    /// The arithmetic.
    pub work: Option<Work>,
    /// Rates of the caches.
    pub caches: Option<CacheRates>,
}

impl Readings {
    /// Reads one launch.
    pub fn of(set: &CounterSet, launch: &LaunchCounters) -> Self {
        let percent = |names: &[&str]| names.iter().find_map(|name| set.value(launch, name, Unit::PERCENT));
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
            dram_bytes: bytes("dram__bytes.sum").or_else(read_and_written).or_else(from_rate),
            l2_bytes: bytes("lts__t_bytes.sum"),
            sms,
            work: Work::of(set, launch),
            caches: caches::rates(set, launch),
        }
    }

    /// The mean of several launches of one kernel and shape; what only some have is the mean of those.
    pub fn mean(all: &[Self]) -> Self {
        let mean = |get: fn(&Self) -> Option<f64>| {
            let (sum, count) =
                all.iter().filter_map(get).fold((0.0, 0u32), |(sum, n), value| (sum + value, n + 1));
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
            dram_bytes: mean(|r| r.dram_bytes),
            l2_bytes: mean(|r| r.l2_bytes),
            sms: mean(|r| r.sms),
            work: mean_work(all),
            caches: caches::mean(all.iter().filter_map(|r| r.caches)),
        }
    }

    /// Floating-point operations.
    pub fn flops(&self) -> Option<f64> {
        self.work.as_ref().and_then(Work::flops)
    }
}

fn mean_work(all: &[Readings]) -> Option<Work> {
    let works: Vec<&Work> = all.iter().filter_map(|r| r.work.as_ref()).collect();
    let first = works.first()?;
    let mut mean =
        Work { by_kind: Vec::new(), tensor_uncounted: works.iter().any(|work| work.tensor_uncounted) };
    for (kind, _) in &first.by_kind {
        let of =
            |work: &&Work| work.by_kind.iter().find(|(own, _)| own == kind).map_or(0.0, |(_, flops)| *flops);
        mean.by_kind.push((*kind, works.iter().map(of).sum::<f64>() / works.len() as f64));
    }
    Some(mean)
}
