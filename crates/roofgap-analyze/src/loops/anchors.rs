//! Anchors: short sequences of events that come back at mostly even distances.

use super::instances::{Hashes, Sequence};
use super::{ALIKE, FEW, TRIED, WORTH};
use rustc_hash::{FxHashMap, FxHashSet};

/// Places at which an instance could begin.
#[derive(Debug, Clone)]
pub(super) struct Anchor {
    /// Number of events that come back.
    pub size: usize,
    /// Median distance.
    pub gap: usize,
    pub places: Vec<u32>,
    /// Events in instances at an even distance, for the choice.
    even: usize,
}

/// Lengths of the sequences.
const SIZES: [usize; 6] = [1, 2, 4, 16, 64, 256];

/// Returns the best anchors of each length of a period.
pub(super) fn anchors(sequence: &Sequence<'_>) -> Vec<(usize, Vec<Anchor>)> {
    let Sequence { tokens, sums, hashes, .. } = sequence;
    let mut lengths: Vec<(usize, Vec<Anchor>)> = Vec::new();
    let mut seen: FxHashSet<(usize, usize, usize)> = FxHashSet::default();
    for size in SIZES.into_iter().take_while(|size| FEW * size <= tokens.len()) {
        let groups = Groups::of(hashes, tokens.len(), size);
        for places in groups.iter().filter(|places| places.len() >= FEW) {
            let mut gaps: Vec<u32> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let half = gaps.len() / 2;
            let gap = *gaps.select_nth_unstable(half).1 as usize;
            let uneven = gaps.iter().filter(|other| other.abs_diff(gap as u32) as usize * 10 > gap).count();
            let (first, last) = (places[0] as usize, places[places.len() - 1] as usize);
            let mut is_new = || seen.insert((places.len(), first / gap, last / gap));
            if 2 * uneven >= gaps.len() || places.len() * gap > 2 * tokens.len() || !is_new() {
                continue;
            }
            if !sums
                .is_worth(places.iter().map(|at| *at as usize..(*at as usize + gap).min(tokens.len())), WORTH)
            {
                continue;
            }
            let even = (places.len() - uneven) * gap;
            let known = lengths.iter().position(|(length, _)| length.abs_diff(gap) * ALIKE <= *length);
            let at = known.unwrap_or_else(|| {
                lengths.push((gap, Vec::new()));
                lengths.len() - 1
            });
            let list = &mut lengths[at].1;
            // Most events in even instances, then the shortest sequence.
            let position = list.partition_point(|other| other.even >= even);
            if position < TRIED {
                list.insert(position, Anchor { size, gap, places: places.to_vec(), even });
                list.truncate(TRIED);
            }
        }
        if groups.is_unique() {
            break;
        }
    }
    lengths
}

/// Places by the sequence that begins there.
struct Groups {
    places: Vec<u32>,
    /// Beginning of each group in `places`.
    starts: Vec<u32>,
}

impl Groups {
    fn of(hashes: &Hashes, events: usize, size: usize) -> Self {
        let count = events + 1 - size;
        let mut numbers: FxHashMap<u64, u32> = FxHashMap::default();
        let mut group = Vec::with_capacity(count);
        let mut starts = vec![0u32];
        for at in 0..count {
            let next = numbers.len() as u32;
            let number = *numbers.entry(hashes.of(at, at + size)).or_insert(next);
            if number == next {
                starts.push(0);
            }
            starts[number as usize + 1] += 1;
            group.push(number);
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut places = vec![0u32; count];
        for (at, number) in (0u32..).zip(group) {
            let slot = &mut next[number as usize];
            places[*slot as usize] = at;
            *slot += 1;
        }
        Self { places, starts }
    }

    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.starts.windows(2).map(|pair| &self.places[pair[0] as usize..pair[1] as usize])
    }

    fn is_unique(&self) -> bool {
        self.starts.len() == self.places.len() + 1
    }
}
