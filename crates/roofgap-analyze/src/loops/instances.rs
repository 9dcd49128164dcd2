//! From anchors to the instances of a loop, and what is known of them.

use super::anchors::Anchor;
use super::events::{Event, Events, Sums};
use super::{FEW, WORTH, middle};
use roofgap_trace::Ns;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Two instances are the same from this on: they have more events in common than they differ in, counting the differences of both.
const SAME: f64 = 2.0 / 3.0;

/// Periods that show where an instance begins, at most. The last ones: the first are warm-up.
const SHOWN: usize = 200;

/// A loop with its numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    /// Instances, as positions of events.
    pub instances: Vec<Range<usize>>,
    pub period_ns: Ns,
    /// Median number of events of an instance.
    pub length: usize,
    /// Parts of all operations and of the GPU time.
    pub cover: f64,
    pub share: f64,
    /// Instances that differ from the one before.
    pub different: usize,
    /// What an instance usually has in common with the one before.
    alike: f64,
    /// Events of the anchor.
    anchor: usize,
    /// Part of the instances in which the host takes part: they wait, launch the graph of the one before again, exchange data with the
    /// host, or several threads launch.
    tied: f64,
    /// Part of the time of the trace from the first instance to the last.
    extent: f64,
    /// Part of the instances that compute; 1 where nothing does.
    computes: f64,
    /// Part of the later instances that keep memory or load code.
    grows: f64,
}

/// What a program does, ready to look for loops in it.
pub(super) struct Sequence<'a> {
    events: &'a [Event],
    pub tokens: &'a [u32],
    /// Number of different tokens, at most.
    kinds: usize,
    pub sums: Sums,
    pub hashes: Hashes,
}

/// Factor of the hash of a sequence, which must be odd.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes of all parts of a sequence.
pub(super) struct Hashes {
    /// Hash of the first events, for each number of them.
    first: Vec<u64>,
    /// Powers of the factor.
    powers: Vec<u64>,
}

impl Hashes {
    fn new(tokens: &[u32]) -> Self {
        let (mut first, mut powers) = (vec![0u64], vec![1u64]);
        for token in tokens {
            let mixed = (u64::from(*token) + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            let last = first.last().copied().unwrap_or(0);
            first.push(last.wrapping_mul(FACTOR).wrapping_add(mixed ^ (mixed >> 32)));
            powers.push(powers.last().copied().unwrap_or(1).wrapping_mul(FACTOR));
        }
        Self { first, powers }
    }

    /// Returns the hash of the events from one place to another.
    pub(super) fn of(&self, from: usize, to: usize) -> u64 {
        self.first[to].wrapping_sub(self.first[from].wrapping_mul(self.powers[to - from]))
    }
}

/// Returns twice the events that two parts have in common over all of both (Dice). `counts` has a zero for each token.
fn similarity(a: &[u32], b: &[u32], counts: &mut [i32]) -> f64 {
    let mut common = 0;
    a.iter().for_each(|token| counts[*token as usize] += 1);
    for token in b {
        let count = &mut counts[*token as usize];
        common += i32::from(*count > 0);
        *count -= i32::from(*count > 0);
    }
    a.iter().for_each(|token| counts[*token as usize] = 0);
    f64::from(2 * common) / (a.len() + b.len()).max(1) as f64
}

impl<'a> Sequence<'a> {
    pub(super) fn of(events: &'a Events, tokens: &'a [u32]) -> Self {
        let kinds = tokens.iter().max().map_or(0, |most| *most as usize + 1);
        Self { events: &events.all, tokens, kinds, sums: events.sums(), hashes: Hashes::new(tokens) }
    }

    fn part(&self, range: &Range<usize>) -> &'a [Event] {
        &self.events[range.clone()]
    }

    /// Returns the instances at the places of an anchor, moved to where they begin, and what each has in common with the next, 0 to 1. A
    /// stretch that is far longer than the others ends a run of them.
    fn instances(&self, anchor: &Anchor, shift: isize) -> (Vec<Range<usize>>, Vec<f64>) {
        let all = self.tokens.len();
        let place = |at: &u32| (*at as usize).saturating_add_signed(shift);
        let mut cuts: Vec<usize> = anchor.places.iter().map(place).filter(|at| *at < all).collect();
        // The first instance may lack the anchor, as the last one may be cut off.
        let before = cuts.first().filter(|first| **first > 0).map(|first| first.saturating_sub(anchor.gap));
        cuts.splice(..0, before);
        cuts.dedup();
        let span = |(at, from): (usize, &usize)| {
            let usual = all.min(from + anchor.gap);
            let next = cuts.get(at + 1).copied();
            *from..next.filter(|next| 2 * (next - from) < 3 * anchor.gap).unwrap_or(usual)
        };
        let spans: Vec<Range<usize>> = cuts.iter().enumerate().map(span).collect();
        let mut counts = vec![0; self.kinds];
        let mut compare = |a: &Range<usize>, b: &Range<usize>| {
            let hash = |part: &Range<usize>| self.hashes.of(part.start, part.end);
            match a.len() == b.len() && hash(a) == hash(b) {
                true => 1.0,
                false => similarity(&self.tokens[a.clone()], &self.tokens[b.clone()], &mut counts),
            }
        };
        let near: Vec<f64> = spans.windows(2).map(|pair| compare(&pair[0], &pair[1])).collect();
        let mut sorted = near.clone();
        sorted.sort_by(f64::total_cmp);
        let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
        // Midway between different and as usual in this loop.
        let limit = (SAME + usual.max(SAME)) / 2.0;
        let same = |at: usize| near.get(at).is_some_and(|near| *near > SAME && *near >= limit);
        // The first of a run may do more than the others.
        let begins =
            |at: usize| near.get(at).is_some_and(|near| *near > SAME) && same(at + 1) && same(at + 2);
        let belongs = |at: &usize| *at > 0 && same(at - 1) || same(*at) || begins(*at);
        let kept: Vec<usize> = (0..spans.len()).filter(belongs).collect();
        let following = kept.windows(2).filter(|pair| spans[pair[0]].end == spans[pair[1]].start);
        let near = following.map(|pair| near[pair[0]]).collect();
        (kept.into_iter().map(|at| spans[at].clone()).collect(), near)
    }

    /// Returns the offsets from the anchor at which an instance may begin: first where the CPU usually stands longest, as it waits or works
    /// without launching, then those with which the recording begins or ends with an instance. Only pairs of events that come once in a
    /// period count; others begin what repeats inside.
    pub(super) fn boundaries(&self, anchor: &Anchor) -> Vec<isize> {
        let (gap, tokens) = (anchor.gap, self.tokens);
        let even = anchor.places.windows(2).filter(|pair| (pair[1] - pair[0]) as usize == gap);
        let whole: Vec<usize> = even.rev().take(SHOWN).map(|pair| pair[0] as usize).collect();
        let Some(&last) = whole.first() else { return vec![0] };
        let pair = |offset: usize| {
            let before = if offset > 0 { last + offset - 1 } else { last + gap - 1 };
            (tokens[before], tokens[last + offset])
        };
        let mut often: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        (0..gap).for_each(|offset| *often.entry(pair(offset)).or_default() += 1);
        let idle = |at: usize| {
            let before = at.checked_sub(1).map(|before| &self.events[before]);
            let free = |before: &Event| if before.is_wait { before.start } else { before.end };
            before.map_or(0, |before| (self.events[at].start - free(before)).max(0))
        };
        let once = |offset: &usize| often.get(&pair(*offset)) == Some(&1);
        let times =
            (0..gap).filter(once).map(|offset| (middle(whole.iter().map(|at| idle(at + offset))), offset));
        // The first of equals.
        let longest = times.reduce(|best, one| if one.0 > best.0 { one } else { best });
        let idle = longest.map_or(0, |(_, offset)| offset);
        let begin =
            |place: u32, edge: usize| (edge as isize - place as isize).rem_euclid(gap as isize) as usize;
        let (first, end) = (anchor.places[0], anchor.places[anchor.places.len() - 1]);
        let mut offsets = vec![idle];
        for aligned in [begin(first, 0), begin(end, tokens.len())].into_iter().filter(once) {
            if !offsets.contains(&aligned) {
                offsets.push(aligned);
            }
        }
        offsets.into_iter().flat_map(|offset| [offset as isize, offset as isize - gap as isize]).collect()
    }

    /// Measures the loop of an anchor; `None` for fewer than three instances, or where they do not follow one another.
    pub(super) fn measure(&self, anchor: &Anchor, shift: isize) -> Option<Measured> {
        let (instances, near) = self.instances(anchor, shift);
        let following = || instances.windows(2).filter(|pair| pair[0].end == pair[1].start);
        if instances.len() < FEW || following().count() < FEW - 1 {
            return None;
        }
        let start = |part: &Range<usize>| self.events[part.start].start;
        let gpu_end = |part: &Range<usize>| {
            self.part(part).iter().map(|event| event.gpu_end).max().filter(|end| *end > 0)
        };
        let on_cpu = middle(following().map(|pair| start(&pair[1]) - start(&pair[0])));
        let on_gpu = middle(following().filter_map(|pair| Some(gpu_end(&pair[1])? - gpu_end(&pair[0])?)));
        let share_of = |parts: &[Range<usize>], is: &dyn Fn(&[Event]) -> bool| {
            let count = parts.iter().filter(|part| is(self.part(part))).count();
            count as f64 / parts.len().max(1) as f64
        };
        let threads = |list: &[Event]| {
            let mut threads = list.iter().filter(|event| !event.is_wait).map(|event| event.thread);
            let first = threads.next();
            threads.any(|thread| Some(thread) != first)
        };
        let keeps = |list: &[Event]| {
            let taken = list.iter().map(|event| event.taken).sum::<i32>();
            i64::from(taken) * WORTH > list.len() as i64
        };
        let graph = |part: &Range<usize>| self.part(part).iter().map(|event| event.graph).max();
        let replays = |pair: &[Range<usize>]| graph(&pair[0]) > Some(0) && graph(&pair[0]) == graph(&pair[1]);
        let replayed = instances.windows(2).filter(|pair| replays(pair)).count();
        let share = |is: &dyn Fn(&[Event]) -> bool| share_of(&instances, is);
        let tied = [
            replayed as f64 / instances.len() as f64,
            share(&|list| list.iter().any(|event| event.is_wait)),
            share(&|list| list.iter().any(|event| event.is_exchange)),
            share(&threads),
        ];
        let (cover, gpu_share) = self.sums.parts(instances.iter().cloned());
        let mut lengths: Vec<usize> = instances.iter().map(Range::len).collect();
        lengths.sort_unstable();
        Some(Measured {
            period_ns: if on_gpu > 0 { on_gpu } else { on_cpu },
            length: lengths[lengths.len() / 2],
            cover,
            share: gpu_share,
            different: near.iter().filter(|near| **near < 1.0).count(),
            alike: near.iter().sum::<f64>() / near.len().max(1) as f64,
            anchor: anchor.size,
            extent: {
                let time = |part: &[Event]| match (part.first(), part.last()) {
                    (Some(first), Some(last)) => (last.end.max(last.gpu_end) - first.start) as f64,
                    _ => 0.0,
                };
                let whole = instances
                    .first()
                    .zip(instances.last())
                    .map_or(0..0, |(first, last)| first.start..last.end);
                time(self.part(&whole)) / time(self.events).max(1.0)
            },
            computes: match self.events.iter().any(|event| event.computes) {
                true => share(&|list| list.iter().any(|event| event.computes)),
                false => 1.0,
            },
            tied: tied.into_iter().fold(0.0, f64::max),
            grows: share_of(&instances[instances.len() / 2..], &keeps),
            instances,
        })
    }
}

impl Measured {
    /// Returns the part of the operations or of the GPU time that it explains, 0 to 1.
    pub(super) fn explains(&self) -> f64 {
        self.alike * self.cover.max(self.share)
    }

    /// Returns the part that it explains, in tenths.
    pub(super) fn tenths(&self) -> u32 {
        (10.0 * self.explains()).round() as u32
    }

    /// Tells whether the host takes part in most instances.
    pub(super) fn is_tied(&self) -> bool {
        self.tied > 0.5
    }

    /// Returns how many instances of another loop begin in each of this.
    fn inside(&self, inner: &Self) -> Vec<usize> {
        let before = |at: usize| inner.instances.partition_point(|other| other.start < at);
        self.instances.iter().map(|part| before(part.end) - before(part.start)).collect()
    }

    /// Returns the usual number of instances of another loop in each of this, and how many have it.
    fn usually_inside(&self, inner: &Self) -> (usize, usize) {
        let mut often: FxHashMap<usize, usize> = FxHashMap::default();
        self.inside(inner).into_iter().for_each(|count| *often.entry(count).or_default() += 1);
        let most = often.into_iter().max_by_key(|(count, often)| (*often, std::cmp::Reverse(*count)));
        most.unwrap_or_default()
    }

    /// Tells whether an inner loop can be inside of this one, or beside it. Its instances lie in one of this each, and where it fills them, it
    /// comes as often each time, and this has something of its own: a sequence shorter than the inner period that comes once.
    pub(super) fn fits(&self, inner: &Self) -> bool {
        let of = |at: usize| self.instances.partition_point(|part| part.end <= at);
        let touched =
            |part: &&Range<usize>| self.instances.get(of(part.start)).is_some_and(|own| own.start < part.end);
        let touching = inner.instances.iter().filter(touched);
        let crossing = touching.clone().filter(|part| {
            let own = &self.instances[of(part.start)];
            part.start < own.start || own.end < part.end
        });
        let (touching, crossing) = (touching.count(), crossing.count());
        if crossing * 10 > touching {
            return false;
        }
        let all: usize = self.instances.iter().map(Range::len).sum();
        if 2 * touching * inner.length < all {
            return true;
        }
        let (usual, often) = self.usually_inside(inner);
        usual >= 2
            && 2 * often > self.instances.len()
            && !(self.length == usual * inner.length && self.anchor > inner.anchor)
    }

    /// Tells whether it fills most of the recording, by operations, by GPU time or by time.
    pub(super) fn is_most(&self) -> bool {
        2.0 * self.cover.max(self.share).max(self.extent) >= 1.0
    }

    /// Tells whether this is a step of the program. In start-up most instances keep memory or load code, in a steady loop only the first do.
    /// A block inside one pass is not tied to the host, and no blocks repeat inside it.
    pub(super) fn is_step(&self, tree: &[Self]) -> bool {
        let repeats = |inner: &&Self| {
            let (usual, often) = self.usually_inside(inner);
            inner.instances.len() >= FEW * self.instances.len()
                && (2..self.length).contains(&inner.length)
                && 2.0 * inner.cover > self.cover
                && usual.min(often) >= FEW
        };
        self.is_steady() && (self.is_tied() || tree.iter().any(|inner| repeats(&inner)))
    }

    /// Tells whether most instances compute, and keep no memory and load no code.
    pub(super) fn is_steady(&self) -> bool {
        2.0 * self.grows < 1.0 && 2.0 * self.computes > 1.0
    }
}
