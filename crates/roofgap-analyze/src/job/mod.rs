//! Several ranks of one job: each is reduced to a [`RankRecord`], and [`join_ranks`] puts the records together.
//!
//! - `record`: what is kept of a rank after its trace is gone;
//! - `matching`: collectives and transfers of the ranks that belong together, and the offsets between clocks that they tell;
//! - `waits`: which rank arrives last, which ranks wait for it, and where it loses its time;

mod matching;
mod record;
mod waits;

#[cfg(test)]
mod tests;

pub use record::RankRecord;

use crate::result::{About, Analysis, Job, Reason};
use crate::{checks, findings};
use matching::{align, match_collectives, match_transfers};
use record::utilisation_of_job;
use std::collections::BTreeMap;
use waits::{Waits, balance, stragglers};

/// The most missing ranks that are listed; more are those of a broken file.
const MOST_MISSING: usize = 1 << 16;

/// Reason for a job without collectives to match.
const NO_COLLECTIVES: &str = "no collective was recorded in which every rank waits for all others (all-reduce, all-gather, reduce-scatter, \
     all-to-all, barrier), so clocks, skew and waits are not known";

/// Adds the ranks of a job to the analysis of one of them. Of several records of one rank, the first counts.
pub fn join_ranks(analysis: &mut Analysis, shown_rank: u32, records: Vec<RankRecord>) {
    let mut reasons = Vec::new();
    let (mut records, world_size, missing) = given_ranks(records, &mut reasons);
    let mut matched = match_collectives(&records);
    if records.iter().all(|record| record.collectives.is_empty()) {
        matched.unmatched.push(NO_COLLECTIVES.to_owned());
    }
    let clocks = align(&records, &matched.sets);
    let waits = Waits::new(&records, &matched.sets, &clocks);
    let stragglers = stragglers(&records, &waits);
    let (experts, experts_reason) = balance(&records, &matched.sets, &clocks);
    let (transfers, unmatched) = match_transfers(&records, &clocks);
    reasons.extend(unmatched);
    let utilisation = utilisation_of_job(&records, world_size);
    let utilisation = utilisation.map_err(|why| reasons.push(why.into())).unwrap_or_default();
    let shown = records.iter().position(|record| record.rank() == shown_rank);
    // Waits are not known without clocks.
    let waited_ns = shown
        .filter(|at| clocks[*at].is_some())
        .map(|at| waits.by_stage(at, &records[at]))
        .unwrap_or_default();
    for (at, record) in records.iter_mut().enumerate() {
        let info = &mut record.info;
        info.world_size = world_size;
        if let Some(clock) = &clocks[at] {
            info.clock_offset_ns = Some(clock.offset_ns);
            info.clock_error_ns = Some(clock.error_ns);
            info.clock_reference = Some(clock.reference);
        }
        waits.describe(at, info);
    }
    analysis.ranks = records.into_iter().map(|record| record.info).collect();
    analysis.job = Some(Job {
        world_size,
        shown_rank,
        missing,
        clock_error_ns: clocks.iter().flatten().map(|clock| clock.error_ns).max(),
        collectives: waits.rows,
        stragglers,
        experts,
        transfers,
        utilisation,
        other_processes: Vec::new(),
    });
    let mut add =
        |path: &str, why: String| analysis.reasons.push(Reason::new(About::Other(path.to_owned()), why));
    reasons.into_iter().for_each(|why| add("ranks", why));
    experts_reason.into_iter().for_each(|why| add("job.experts", why.to_owned()));
    matched.unmatched.into_iter().for_each(|why| add("job.collectives", why));
    findings::add_of_job(analysis, &waited_ns);
    checks::declare(analysis);
}

/// Returns the ranks that were given, in the order of their numbers, the number of all, and the missing ones.
fn given_ranks(
    mut records: Vec<RankRecord>,
    reasons: &mut Vec<String>,
) -> (Vec<RankRecord>, Option<u32>, Vec<u32>) {
    records.sort_by_key(RankRecord::rank);
    records.dedup_by(|later, first| {
        let same = later.rank() == first.rank();
        if same {
            reasons.push(format!(
                "rank {} was given more than once: {} is left out beside {}",
                first.rank(),
                later.info.sources.join(", "),
                first.info.sources.join(", ")
            ));
        }
        same
    });
    let sizes = || records.iter().filter_map(|record| record.info.world_size);
    let world_size = sizes().max();
    if sizes().min() != world_size {
        reasons.push("the captures tell different numbers of ranks; the largest counts".to_owned());
    }
    let present = |rank: &u32| records.binary_search_by_key(rank, RankRecord::rank).is_ok();
    let absent = (0..world_size.unwrap_or(0)).filter(|rank| !present(rank));
    let missing: Vec<u32> = absent.take(MOST_MISSING).collect();
    if let Some(size) = world_size.filter(|_| !missing.is_empty()) {
        let given = records.iter().filter(|record| record.rank() < size).count();
        reasons.push(format!(
            "{} of {size} ranks were not given: {}{}",
            size as usize - given,
            spans(&missing),
            if missing.len() == MOST_MISSING { " and more" } else { "" }
        ));
    }
    (records, world_size, missing)
}

/// Returns rows by their number; `None` unless all have one that occurs once.
fn by_number<K: Ord, T>(rows: impl Iterator<Item = (Option<K>, T)>) -> Option<BTreeMap<K, T>> {
    let mut numbered = BTreeMap::new();
    for (number, row) in rows {
        if numbered.insert(number?, row).is_some() {
            return None;
        }
    }
    Some(numbered)
}

/// Formats sorted numbers as spans, such as `1, 4-6`.
fn spans(numbers: &[u32]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match spans.last_mut() {
            Some((_, last)) if number.checked_sub(1) == Some(*last) => *last = number,
            _ => spans.push((number, number)),
        }
    }
    let text = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    spans.iter().map(text).collect::<Vec<_>>().join(", ")
}
