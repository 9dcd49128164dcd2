//! Offsets between the clocks of the ranks, from the ends of matched collectives.

use super::matching::MatchedSet;
use super::record::RankRecord;
use roofgap_base::stats::median;
use roofgap_trace::Ns;

/// The clock of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Time of the rank minus the time of the reference.
    pub offset_ns: Ns,
    /// Largest error of the offset.
    pub error_ns: Ns,
    /// Rank whose clock is the reference.
    pub reference: u32,
}

/// Aligns the clocks of the ranks; `None` for a rank without matched collectives.
///
/// The lowest rank is the reference. A rank that shares no collective with it is aligned through others, whose errors add up.
pub fn align(records: &[RankRecord], sets: &[MatchedSet]) -> Vec<Option<Clock>> {
    let mut clocks: Vec<Option<Clock>> = vec![None; records.len()];
    let mut sets: Vec<&MatchedSet> = sets.iter().collect();
    // The more ends, the better the estimate.
    sets.sort_by_key(|set| std::cmp::Reverse(set.rows.len()));
    let reference = |clocks: &mut Vec<Option<Clock>>, at: usize| {
        clocks[at] = Some(Clock { offset_ns: 0, error_ns: 0, reference: records[at].rank() });
    };
    let first = sets.iter().flat_map(|set| &set.ranks).min();
    if let Some(&first) = first {
        reference(&mut clocks, first);
    }
    loop {
        let mut changed = false;
        for set in &sets {
            let known = |column: &usize| clocks[set.ranks[*column]].map(|clock| (clock.error_ns, *column));
            let Some((_, base)) = (0..set.ranks.len()).filter_map(|column| known(&column)).min() else {
                continue;
            };
            let Some(base_clock) = clocks[set.ranks[base]] else {
                continue;
            };
            for column in 0..set.ranks.len() {
                if clocks[set.ranks[column]].is_some() {
                    continue;
                }
                if let Some((offset_ns, error_ns)) = estimate(records, set, base, column) {
                    clocks[set.ranks[column]] = Some(Clock {
                        offset_ns: base_clock.offset_ns + offset_ns,
                        error_ns: base_clock.error_ns + error_ns,
                        ..base_clock
                    });
                    changed = true;
                }
            }
        }
        if changed {
            continue;
        }
        // A part of the job that shares no collective with the others has a reference of its own.
        let apart = sets.iter().flat_map(|set| &set.ranks).filter(|at| clocks[**at].is_none()).min();
        let Some(&apart) = apart else {
            return clocks;
        };
        reference(&mut clocks, apart);
    }
}

/// Estimates the offset of a rank from that of another and its largest error.
///
/// The offset is the median difference of the ends. Its error is the largest difference from it; where no drift contradicts it, the
/// fact that no rank ends a collective before the other has started it can make the error smaller.
fn estimate(records: &[RankRecord], set: &MatchedSet, base: usize, rank: usize) -> Option<(Ns, Ns)> {
    let pairs = || {
        set.rows.iter().map(|rows| {
            let base = &records[set.ranks[base]].collectives[rows[base]];
            let own = &records[set.ranks[rank]].collectives[rows[rank]];
            (base, own)
        })
    };
    let offset = median(&mut pairs().map(|(base, own)| own.end - base.end).collect::<Vec<Ns>>())?;
    let spread = pairs().map(|(base, own)| (own.end - base.end - offset).abs()).max()?;
    let least = pairs().map(|(base, own)| own.start - base.end).max()?;
    let most = pairs().map(|(base, own)| own.end - base.start).min()?;
    let error = if (least..=most).contains(&offset) {
        spread.min((offset - least).max(most - offset))
    } else {
        spread
    };
    Some((offset, error))
}
