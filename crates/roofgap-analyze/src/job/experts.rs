//! Balance of the experts of a mixture over the ranks: their time before each matched collective.

use super::matching::{Clock, MatchedSet};
use super::record::RankRecord;
use crate::result::{ExpertBalance, ExpertTime};
use roofgap_trace::Ns;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Reason for expert kernels whose times are not compared.
const NOT_COMPARED: &str = "kernels of experts (grouped products, fused experts) were recorded, but before no collective that could be \
     matched across ranks, so the balance of the experts is not known";

/// Sums of a stage.
#[derive(Default)]
struct Sum {
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
    let mut sums: BTreeMap<Option<String>, Sum> = BTreeMap::new();
    for set in sets {
        add(&mut sums, records, set, clocks);
    }
    let why = sums.is_empty() && records.iter().any(|record| record.has_experts);
    let mut rows: Vec<ExpertBalance> = sums.into_iter().map(|(stage, sum)| sum.row(stage, records)).collect();
    rows.sort_by_key(|row| Reverse(row.bound_ns));
    (rows, why.then_some(NOT_COMPARED))
}

fn add(
    sums: &mut BTreeMap<Option<String>, Sum>,
    records: &[RankRecord],
    set: &MatchedSet,
    clocks: &[Option<Clock>],
) {
    let clock_error = set.clock_error(clocks);
    for meeting in set.meetings(records, clocks) {
        let columns = meeting.columns();
        let experts = |column: usize| meeting.own(column).experts_ns;
        let total: Ns = columns.clone().map(experts).sum();
        let slowest = columns.clone().max_by_key(|column| (experts(*column), Reverse(*column)));
        let Some(slowest) = slowest.filter(|_| total != 0) else {
            continue;
        };
        let stage = meeting.own(0).stage.and_then(|stage| records[meeting.rank(0)].stages.get(stage));
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
            skew if skew > clock_error => skew.min(meeting.own(column).exposed_ns),
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

impl Sum {
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
