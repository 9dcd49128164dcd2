//! Balance of the experts of a mixture over the ranks: their time before each matched collective.

use super::clocks::Clock;
use super::matching::MatchedSet;
use super::record::RankRecord;
use super::waits::error;
use crate::result::{ExpertBalance, ExpertTime};
use roofgap_trace::Ns;
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
    rows.sort_by_key(|row| std::cmp::Reverse(row.bound_ns));
    (rows, why.then_some(NOT_COMPARED))
}

fn add(
    sums: &mut BTreeMap<Option<String>, Sum>,
    records: &[RankRecord],
    set: &MatchedSet,
    clocks: &[Option<Clock>],
) {
    let clock_error = error(set.ranks.iter().filter_map(|at| clocks[*at]));
    for rows in &set.rows {
        let own = |column: usize| &records[set.ranks[column]].collectives[rows[column]];
        let columns = 0..set.ranks.len();
        let experts = |column: usize| own(column).experts_ns;
        let total: Ns = columns.clone().map(experts).sum();
        let Some(slowest) =
            columns.clone().max_by_key(|column| (experts(*column), std::cmp::Reverse(*column)))
        else {
            continue;
        };
        if total == 0 {
            continue;
        }
        let stage = own(0).stage.and_then(|stage| records[set.ranks[0]].stages.get(stage));
        let sum = sums.entry(stage.map(|stage| stage.name.clone())).or_default();
        let mean = total as f64 / set.ranks.len() as f64;
        sum.sections += 1;
        sum.slowest_ns += experts(slowest);
        sum.mean_ns += mean;
        for column in columns.clone() {
            let (time, count) = sum.ranks.entry(set.ranks[column]).or_default();
            *time += experts(column);
            *count += u64::from(column == slowest);
        }
        let Some(clock_error) = clock_error else {
            continue;
        };
        let start =
            |column: usize| own(column).start - clocks[set.ranks[column]].map_or(0, |clock| clock.offset_ns);
        let last = columns.clone().map(start).max().unwrap_or(0);
        let waited = |column: usize| match last - start(column) {
            skew if skew > clock_error => skew.min(own(column).exposed_ns),
            _ => 0,
        };
        let waits = columns.clone().map(waited);
        *sum.waited_ns.get_or_insert(0) += waits.clone().sum::<Ns>();
        // Balance saves what the slowest takes above the mean, and no more than another rank was seen to wait.
        let longest = waits.max().unwrap_or(0);
        let saved = (experts(slowest) as f64 - mean).min(longest as f64);
        for column in columns {
            *sum.bounds.entry(set.ranks[column]).or_default() += saved;
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
