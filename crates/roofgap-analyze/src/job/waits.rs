//! Arrival of the ranks at matched collectives.

use super::clocks::Clock;
use super::matching::MatchedSet;
use super::record::RankRecord;
use crate::result::{MatchedCollectives, RankInfo};
use roofgap_base::stats::median;
use roofgap_trace::Ns;
use rustc_hash::FxHashMap;
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
    pub fn of(records: &[RankRecord], sets: &[MatchedSet], clocks: &[Option<Clock>]) -> Self {
        let mut waits = Self { waited_ns: vec![None; records.len()], ..Self::default() };
        for set in sets {
            let row = waits.add(records, set, clocks);
            waits.rows.push(row);
        }
        waits.rows.sort_by(|a, b| {
            let rest = |row: &MatchedCollectives| (std::cmp::Reverse(row.latency_ns), row.group.clone());
            b.waited_ns.cmp(&a.waited_ns).then_with(|| rest(a).cmp(&rest(b)))
        });
        waits
    }

    fn add(
        &mut self,
        records: &[RankRecord],
        set: &MatchedSet,
        clocks: &[Option<Clock>],
    ) -> MatchedCollectives {
        let clock = |column: usize| clocks[set.ranks[column]];
        let error_ns = error(set.ranks.iter().filter_map(|at| clocks[*at]));
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
        let mut skew_sum: Ns = 0;
        let mut skew_max = 0;
        for rows in &set.rows {
            let own = |column: usize| &records[set.ranks[column]].collectives[rows[column]];
            let columns = 0..set.ranks.len();
            // Times of the reference; times of a rank whose clock is not known cannot be compared.
            let start = |column: usize| own(column).start - clock(column).map_or(0, |clock| clock.offset_ns);
            let latency = columns.clone().map(|column| own(column).end - own(column).start).min();
            sum.latency_ns += latency.unwrap_or(0);
            sum.bytes = sum.bytes.zip(own(0).bytes).and_then(|(sum, own)| sum.checked_add(own));
            for column in columns.clone() {
                self.late.entry((set.ranks[column], own(column).stage)).or_default().count += 1;
            }
            let first = columns.clone().map(start).min().unwrap_or(0);
            let Some((last_start, last)) = columns.clone().map(|column| (start(column), column)).max() else {
                continue;
            };
            let skew = last_start - first;
            skew_sum = skew.saturating_add(skew_sum);
            skew_max = skew_max.max(skew);
            if error_ns.is_none_or(|error| skew <= error) {
                continue;
            }
            let mut others = Vec::with_capacity(set.ranks.len());
            for column in columns.filter(|column| *column != last) {
                let waited = (last_start - start(column)).min(own(column).exposed_ns);
                others.push(waited);
                sum.waited_ns = waited.saturating_add(sum.waited_ns);
                let total = self.waited_ns[set.ranks[column]].get_or_insert(0);
                *total = waited.saturating_add(*total);
                let in_stage = self.late.entry((set.ranks[column], own(column).stage)).or_default();
                in_stage.waited_ns = waited.saturating_add(in_stage.waited_ns);
            }
            last_counts[last] += 1;
            let late = self.late.entry((set.ranks[last], own(last).stage)).or_default();
            late.last_count += 1;
            late.waited_for_ns = median(&mut others).unwrap_or(0).saturating_add(late.waited_for_ns);
        }
        let above = |skew: Ns| Some(skew).filter(|skew| error_ns.is_some_and(|error| *skew > error));
        sum.skew_mean_ns = above(skew_sum / (set.rows.len().max(1) as i64));
        sum.skew_max_ns = above(skew_max);
        let most =
            (0..set.ranks.len()).max_by_key(|column| (last_counts[*column], std::cmp::Reverse(*column)));
        if let Some(column) = most.filter(|column| last_counts[*column] > 0) {
            sum.last_rank = Some(records[set.ranks[column]].rank());
            sum.last_count = last_counts[column];
        }
        sum
    }

    /// Returns the exposed time that a rank waited for others, by stage.
    pub fn by_stage(&self, at: usize, record: &RankRecord) -> FxHashMap<String, Ns> {
        let own = self.late.iter().filter(|((rank, _), _)| *rank == at);
        own.filter_map(|((_, stage), late)| {
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

/// Returns the largest error of the difference of two of the clocks.
pub fn error(clocks: impl Iterator<Item = Clock>) -> Option<Ns> {
    let mut errors: Vec<Ns> = clocks.map(|clock| clock.error_ns).collect();
    errors.sort_unstable_by_key(|error| std::cmp::Reverse(*error));
    match errors[..] {
        [a, b, ..] => Some(a + b),
        _ => None,
    }
}
