//! Several ranks of one job: each is reduced to a [`RankRecord`], and [`join_ranks`] puts the records together.
//!
//! - `record`: what is kept of a rank after its trace is gone;
//! - `activity`: the activity of a rank over time;
//! - `matching`: collectives of the ranks that belong together;
//! - `clocks`: offsets between the clocks of the ranks;
//! - `waits`: which rank arrives last, and which ranks wait for it;
//! - `experts`: time of the experts of a mixture on each rank;
//! - `stragglers`: the stage and kernel in which a late rank loses its time;
//! - `transfers`: sends and receives that belong together;
//! - `utilisation`: MFU and MBU of all ranks together.

mod activity;
mod clocks;
mod experts;
mod matching;
mod record;
mod stragglers;
mod transfers;
mod utilisation;
mod waits;

#[cfg(test)]
mod tests;

pub use record::RankRecord;

use crate::findings;
use crate::result::{About, Analysis, Job, Reason};
use clocks::align;
use matching::match_collectives;
use waits::Waits;

/// The most missing ranks that are listed; more are those of a broken file.
const MOST_MISSING: usize = 1 << 16;

/// Reason for a job without collectives to match.
const NO_COLLECTIVES: &str = "no collective was recorded in which every rank waits for all others (all-reduce, all-gather, reduce-scatter, \
     all-to-all, barrier), so clocks, skew and waits are not known";

/// Adds the ranks of a job to the analysis of one of them. Of several records of one rank, the first counts.
pub fn join_ranks(analysis: &mut Analysis, shown_rank: u32, mut records: Vec<RankRecord>) {
    let mut reasons = Vec::new();
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
    let told = || records.iter().filter_map(|record| record.info.world_size);
    let world_size = told().max();
    if told().min() != world_size {
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

    let mut matched = match_collectives(&records);
    if records.iter().all(|record| record.collectives.is_empty()) {
        matched.unmatched.push(NO_COLLECTIVES.to_owned());
    }
    let clocks = align(&records, &matched.sets);
    let waits = Waits::of(&records, &matched.sets, &clocks);
    let stragglers = stragglers::find(&records, &waits);
    let (experts, experts_reason) = experts::balance(&records, &matched.sets, &clocks);
    let transfers = transfers::find(&records, &clocks);
    reasons.extend(transfers.unmatched);
    let utilisation = match utilisation::of_job(&records, world_size) {
        Ok(rows) => rows,
        Err(why) => {
            reasons.push(why.to_string());
            Vec::new()
        }
    };
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
        transfers: transfers.rows,
        utilisation,
        other_processes: Vec::new(),
    });
    let about = |path: &str| About::Other(path.to_owned());
    analysis.reasons.extend(reasons.into_iter().map(|why| Reason::new(about("ranks"), why)));
    analysis.reasons.extend(experts_reason.map(|why| Reason::new(about("job.experts"), why)));
    analysis
        .reasons
        .extend(matched.unmatched.into_iter().map(|why| Reason::new(about("job.collectives"), why)));
    findings::add_of_job(analysis, &waited_ns);
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
