//! The stage and kernel in which a late rank loses its time.

use super::record::{RankRecord, StageCost};
use super::waits::Waits;
use crate::result::Straggler;
use roofgap_base::stats::median;
use rustc_hash::FxHashMap;

/// Least wait of a straggler, in parts of the time of its stage.
const LEAST_PART: i64 = 200;

/// Lists the ranks for which others wait, most time first.
pub fn find(records: &[RankRecord], waits: &Waits) -> Vec<Straggler> {
    let mut found = Vec::new();
    for ((at, stage), late) in &waits.late {
        let record = &records[*at];
        let own = stage.and_then(|stage| record.stages.get(stage));
        let least = own.map_or(0, |own| own.elapsed_ns / LEAST_PART);
        if late.waited_for_ns <= least {
            continue;
        }
        let others: Vec<&StageCost> = own
            .map(|own| {
                let same = |other: &RankRecord| other.rank() != record.rank();
                let ranks = records.iter().filter(|other| same(other));
                ranks.filter_map(|other| other.stages.iter().find(|stage| stage.name == own.name)).collect()
            })
            .unwrap_or_default();
        let kernel = own.and_then(|own| slower_kernel(own, &others));
        let idle: Option<Vec<i64>> = others.iter().map(|other| other.idle_ns).collect();
        let idle = idle.and_then(|mut idle| median(&mut idle)).zip(own.and_then(|own| own.idle_ns));
        found.push(Straggler {
            rank: record.rank(),
            stage: own.map(|own| own.name.clone()),
            last_count: late.last_count,
            collective_count: late.count,
            waited_for_ns: late.waited_for_ns,
            kernel: kernel.as_ref().map(|(name, _)| name.clone()),
            kernel_excess_ns: kernel.map(|(_, excess)| excess),
            idle_excess_ns: idle.map(|(others, own)| own - others),
        });
    }
    found.sort_by_key(|straggler| (std::cmp::Reverse(straggler.waited_for_ns), straggler.rank));
    found
}

/// Returns the kernel that takes most time above the median of the other ranks, and that time.
fn slower_kernel(own: &StageCost, others: &[&StageCost]) -> Option<(String, i64)> {
    if others.is_empty() {
        return None;
    }
    let total = |kernels: &FxHashMap<String, i64>, name: &str| kernels.get(name).copied().unwrap_or(0);
    let excess = own.kernels.iter().filter_map(|(name, own_ns)| {
        let mut others: Vec<i64> = others.iter().map(|other| total(&other.kernels, name)).collect();
        Some((own_ns - median(&mut others)?, name))
    });
    let (excess_ns, name) = excess.max_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.cmp(a.1)))?;
    (excess_ns > 0).then(|| (name.clone(), excess_ns))
}
