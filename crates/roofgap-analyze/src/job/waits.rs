//! Arrival of the ranks at matched collectives, where a late rank loses its time, and the balance of the experts of a mixture: their time
//! before each matched collective.

use super::matching::{Clock, MatchedSet};
use super::record::{RankRecord, StageCost};
use crate::result::{ExpertBalance, ExpertTime, MatchedCollectives, RankInfo, Straggler};
use roofgap_base::stats::median;
use roofgap_trace::Ns;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Lateness of a rank at the collectives of a stage.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lateness {
    /// Number of collectives.
    pub count: u64,
    /// Number of collectives in which it arrived last.
    pub last_count: u64,
    /// Exposed time that the other ranks (their median) waited for it, ns.
    pub waited_for_ns: Ns,
    /// Exposed time that it waited for the others, ns.
    pub waited_ns: Ns,
}

/// Arrival of all ranks at all matched collectives.
#[derive(Debug, Default)]
pub struct Waits {
    /// Matched collectives, most exposed wait first.
    pub rows: Vec<MatchedCollectives>,
    /// Lateness by position of the rank and of its stage.
    pub late: BTreeMap<(usize, Option<usize>), Lateness>,
    /// Exposed wait by position of the rank; `None` without matched collectives.
    waited_ns: Vec<Option<Ns>>,
}

impl Waits {
    /// Compares the aligned starts of matched collectives. A spread that is not above the error of the clocks is no skew.
    pub fn new(records: &[RankRecord], sets: &[MatchedSet], clocks: &[Option<Clock>]) -> Self {
        let mut waits = Self { waited_ns: vec![None; records.len()], ..Self::default() };
        for set in sets {
            let row = waits.add(records, set, clocks);
            waits.rows.push(row);
        }
        waits.rows.sort_by(|a, b| {
            (b.waited_ns, b.latency_ns, &a.group).cmp(&(a.waited_ns, a.latency_ns, &b.group))
        });
        waits
    }

    fn add(
        &mut self,
        records: &[RankRecord],
        set: &MatchedSet,
        clocks: &[Option<Clock>],
    ) -> MatchedCollectives {
        let error_ns = set.clock_error(clocks);
        let mut sum = MatchedCollectives {
            group: Some(set.group.clone()).filter(|group| !group.is_empty()),
            collective: set.collective.to_owned(),
            ranks: set.ranks.iter().map(|at| records[*at].rank()).collect(),
            count: set.rows.len() as u64,
            matched_by: if set.by_sequence { "sequence" } else { "order" }.to_owned(),
            bytes: Some(0),
            ..MatchedCollectives::default()
        };
        for at in &set.ranks {
            self.waited_ns[*at].get_or_insert(0);
        }
        let mut last_counts = vec![0_u64; set.ranks.len()];
        let (mut skew_sum, mut skew_max): (Ns, Ns) = (0, 0);
        for meeting in set.meetings(records, clocks) {
            let columns = meeting.columns();
            let collective = |column: usize| meeting.collective(column);
            let place = |column: usize| (meeting.rank(column), collective(column).stage);
            sum.latency_ns +=
                columns.clone().map(|at| collective(at).end - collective(at).start).min().unwrap_or(0);
            sum.bytes =
                sum.bytes.zip(collective(0).bytes).and_then(|(sum, collective)| sum.checked_add(collective));
            for column in columns.clone() {
                self.late.entry(place(column)).or_default().count += 1;
            }
            let Some((last_start, last)) = meeting.last() else {
                continue;
            };
            let skew = last_start - columns.clone().map(|at| meeting.start(at)).min().unwrap_or(0);
            skew_sum = skew.saturating_add(skew_sum);
            skew_max = skew_max.max(skew);
            if error_ns.is_none_or(|error| skew <= error) {
                continue;
            }
            let mut others = Vec::with_capacity(set.ranks.len());
            for column in columns.filter(|column| *column != last) {
                let waited = (last_start - meeting.start(column)).min(collective(column).exposed_ns);
                others.push(waited);
                let in_all = self.waited_ns[meeting.rank(column)].get_or_insert(0);
                let in_stage = &mut self.late.entry(place(column)).or_default().waited_ns;
                for total in [&mut sum.waited_ns, in_all, in_stage] {
                    *total = waited.saturating_add(*total);
                }
            }
            last_counts[last] += 1;
            let late = self.late.entry(place(last)).or_default();
            late.last_count += 1;
            late.waited_for_ns = median(&mut others).unwrap_or(0).saturating_add(late.waited_for_ns);
        }
        let above = |skew: Ns| Some(skew).filter(|skew| error_ns.is_some_and(|error| *skew > error));
        sum.skew_mean_ns = above(skew_sum / (set.rows.len().max(1) as i64));
        sum.skew_max_ns = above(skew_max);
        let most = (0..set.ranks.len()).max_by_key(|column| (last_counts[*column], Reverse(*column)));
        if let Some(column) = most.filter(|column| last_counts[*column] > 0) {
            sum.last_rank = Some(records[set.ranks[column]].rank());
            sum.last_count = last_counts[column];
        }
        sum
    }

    /// Returns the exposed time that a rank waited for others, by stage.
    pub fn by_stage(&self, at: usize, record: &RankRecord) -> FxHashMap<String, Ns> {
        let of_rank = self.late.iter().filter(|((rank, _), _)| *rank == at);
        of_rank
            .filter_map(|((_, stage), late)| {
                let stage = record.stages.get((*stage)?)?;
                Some((stage.name.clone(), late.waited_ns))
            })
            .collect()
    }

    /// Adds the sums of a rank.
    pub fn describe(&self, at: usize, info: &mut RankInfo) {
        let Some(waited_ns) = self.waited_ns[at] else {
            return;
        };
        let late = || self.late.iter().filter(|((rank, _), _)| *rank == at).map(|(_, late)| late);
        info.waited_ns = Some(waited_ns);
        info.last_count = Some(late().map(|late| late.last_count).sum());
        info.waited_for_ns = Some(late().map(|late| late.waited_for_ns).sum());
    }
}

/// Least wait of a straggler, in parts of the time of its stage.
const LEAST_PART: i64 = 200;

/// Lists the ranks for which others wait, most time first.
pub fn stragglers(records: &[RankRecord], waits: &Waits) -> Vec<Straggler> {
    let mut stragglers = Vec::new();
    for ((at, stage), late) in &waits.late {
        let record = &records[*at];
        let own_stage = stage.and_then(|stage| record.stages.get(stage));
        let least = own_stage.map_or(0, |own_stage| own_stage.elapsed_ns / LEAST_PART);
        if late.waited_for_ns <= least {
            continue;
        }
        let others: Vec<&StageCost> = own_stage
            .map(|own_stage| {
                let same = |other: &RankRecord| other.rank() != record.rank();
                let ranks = records.iter().filter(|other| same(other));
                ranks
                    .filter_map(|other| other.stages.iter().find(|stage| stage.name == own_stage.name))
                    .collect()
            })
            .unwrap_or_default();
        let kernel = own_stage.and_then(|own_stage| slower_kernel(own_stage, &others));
        let idle: Option<Vec<i64>> = others.iter().map(|other| other.idle_ns).collect();
        let idle = idle
            .and_then(|mut idle| median(&mut idle))
            .zip(own_stage.and_then(|own_stage| own_stage.idle_ns));
        stragglers.push(Straggler {
            rank: record.rank(),
            stage: own_stage.map(|own_stage| own_stage.name.clone()),
            last_count: late.last_count,
            collective_count: late.count,
            waited_for_ns: late.waited_for_ns,
            kernel: kernel.as_ref().map(|(name, _)| name.clone()),
            kernel_excess_ns: kernel.map(|(_, excess)| excess),
            idle_excess_ns: idle.map(|(others, own_stage)| own_stage - others),
        });
    }
    stragglers.sort_by_key(|straggler| (Reverse(straggler.waited_for_ns), straggler.rank));
    stragglers
}

/// Returns the kernel that takes most time above the median of the other ranks, and that time.
fn slower_kernel(slower: &StageCost, others: &[&StageCost]) -> Option<(String, i64)> {
    if others.is_empty() {
        return None;
    }
    let total = |kernels: &FxHashMap<String, i64>, name: &str| kernels.get(name).copied().unwrap_or(0);
    let excess = slower.kernels.iter().filter_map(|(name, own_ns)| {
        let mut others: Vec<i64> = others.iter().map(|other| total(&other.kernels, name)).collect();
        Some((own_ns - median(&mut others)?, name))
    });
    let (excess_ns, name) = excess.max_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.cmp(a.1)))?;
    (excess_ns > 0).then(|| (name.clone(), excess_ns))
}

/// Reason for expert kernels whose times are not compared.
const NOT_COMPARED: &str = "kernels of experts (grouped products, fused experts) were recorded, but before no collective that could be \
     matched across ranks, so the balance of the experts is not known";

/// Sums of the expert kernels of a stage.
#[derive(Default)]
struct ExpertSum {
    sections: u64,
    slowest_ns: Ns,
    /// Mean of the ranks, ns.
    mean_ns: f64,
    waited_ns: Option<Ns>,
    /// Time that balance saves, ns, by position of the rank. Groups of different ranks work at the same time, so that only the
    /// savings of one rank add up.
    bounds: BTreeMap<usize, f64>,
    /// Times of expert kernels and number of sections in which they were the slowest, by position of the rank.
    ranks: BTreeMap<usize, (Ns, u64)>,
}

/// Compares the time of expert kernels over the ranks, stage by stage, and says why it cannot where there are such kernels.
pub fn balance(
    records: &[RankRecord],
    sets: &[MatchedSet],
    clocks: &[Option<Clock>],
) -> (Vec<ExpertBalance>, Option<&'static str>) {
    let mut sums: BTreeMap<Option<String>, ExpertSum> = BTreeMap::new();
    for set in sets {
        add(&mut sums, records, set, clocks);
    }
    let why = sums.is_empty() && records.iter().any(|record| record.has_experts);
    let mut rows: Vec<ExpertBalance> = sums.into_iter().map(|(stage, sum)| sum.row(stage, records)).collect();
    rows.sort_by_key(|row| Reverse(row.bound_ns));
    (rows, why.then_some(NOT_COMPARED))
}

fn add(
    sums: &mut BTreeMap<Option<String>, ExpertSum>,
    records: &[RankRecord],
    set: &MatchedSet,
    clocks: &[Option<Clock>],
) {
    let clock_error = set.clock_error(clocks);
    for meeting in set.meetings(records, clocks) {
        let columns = meeting.columns();
        let experts = |column: usize| meeting.collective(column).experts_ns;
        let total: Ns = columns.clone().map(experts).sum();
        let slowest = columns.clone().max_by_key(|column| (experts(*column), Reverse(*column)));
        let Some(slowest) = slowest.filter(|_| total != 0) else {
            continue;
        };
        let stage = meeting.collective(0).stage.and_then(|stage| records[meeting.rank(0)].stages.get(stage));
        let sum = sums.entry(stage.map(|stage| stage.name.clone())).or_default();
        let mean = total as f64 / set.ranks.len() as f64;
        sum.sections += 1;
        sum.slowest_ns += experts(slowest);
        sum.mean_ns += mean;
        for column in columns.clone() {
            let (time, count) = sum.ranks.entry(meeting.rank(column)).or_default();
            *time += experts(column);
            *count += u64::from(column == slowest);
        }
        let Some(clock_error) = clock_error else {
            continue;
        };
        let last = meeting.last().map_or(0, |(start, _)| start);
        let waited = |column: usize| match last - meeting.start(column) {
            skew if skew > clock_error => skew.min(meeting.collective(column).exposed_ns),
            _ => 0,
        };
        let waits = columns.clone().map(waited);
        *sum.waited_ns.get_or_insert(0) += waits.clone().sum::<Ns>();
        // Balance saves what the slowest takes above the mean, and no more than another rank was seen to wait.
        let longest = waits.max().unwrap_or(0);
        let saved = (experts(slowest) as f64 - mean).min(longest as f64);
        for column in columns {
            *sum.bounds.entry(meeting.rank(column)).or_default() += saved;
        }
    }
}

impl ExpertSum {
    fn row(self, stage: Option<String>, records: &[RankRecord]) -> ExpertBalance {
        let mut ranks: Vec<ExpertTime> = self
            .ranks
            .into_iter()
            .map(|(at, (experts_ns, slowest_count))| ExpertTime {
                rank: records[at].rank(),
                experts_ns,
                slowest_count,
            })
            .collect();
        ranks.sort_by_key(|row| row.rank);
        let bound_ns = self.bounds.into_values().fold(0.0, f64::max);
        let most = ranks.iter().max_by_key(|row| (row.slowest_count, row.experts_ns));
        ExpertBalance {
            stage,
            sections: self.sections,
            slowest_rank: most.map_or(0, |row| row.rank),
            slowest_count: most.map_or(0, |row| row.slowest_count),
            slowest_ns: self.slowest_ns,
            mean_ns: self.mean_ns.round() as Ns,
            imbalance: self.slowest_ns as f64 / self.mean_ns,
            waited_ns: self.waited_ns,
            bound_ns: self.waited_ns.map(|_| bound_ns.round() as Ns),
            ranks,
        }
    }
}
