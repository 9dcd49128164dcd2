//! Collectives and transfers of several ranks that belong together, and the clocks that the ends of collectives tell.

use super::record::RankRecord;
use super::{by_number, spans};
use crate::communication::{RankCollective, RankTransfer};
use crate::result::{MatchedTransfers, NotKnown};
use roofgap_base::stats::median;
use roofgap_trace::Ns;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// The matched collectives of one group and kind.
#[derive(Debug)]
pub struct MatchedSet {
    /// Label of the group; empty where unknown.
    pub group: String,
    pub collective: &'static str,
    /// Positions of the ranks among the records.
    pub ranks: Vec<usize>,
    /// For each collective the position on each of `ranks`.
    pub rows: Vec<Vec<usize>>,
    pub by_sequence: bool,
}

impl MatchedSet {
    /// Iterates over its collectives.
    pub fn meetings<'r>(
        &'r self,
        records: &'r [RankRecord],
        clocks: &'r [Option<Clock>],
    ) -> impl Iterator<Item = Meeting<'r>> {
        self.rows.iter().map(move |rows| Meeting { set: self, rows, records, clocks })
    }

    /// Returns the largest error of the difference of two of its clocks; `None` where fewer are known.
    pub fn clock_error(&self, clocks: &[Option<Clock>]) -> Option<Ns> {
        let mut errors: Vec<Ns> =
            self.ranks.iter().filter_map(|at| clocks[*at]).map(|clock| clock.error_ns).collect();
        errors.sort_unstable_by_key(|error| Reverse(*error));
        match errors[..] {
            [a, b, ..] => Some(a + b),
            _ => None,
        }
    }
}

/// One collective as each of its ranks ran it.
#[derive(Clone, Copy)]
pub struct Meeting<'r> {
    set: &'r MatchedSet,
    rows: &'r [usize],
    records: &'r [RankRecord],
    clocks: &'r [Option<Clock>],
}

impl<'r> Meeting<'r> {
    /// Returns the columns of its ranks.
    pub fn columns(&self) -> Range<usize> {
        0..self.set.ranks.len()
    }

    /// Returns the position of the rank of a column.
    pub fn rank(&self, column: usize) -> usize {
        self.set.ranks[column]
    }

    /// Returns the collective as the rank of a column ran it.
    pub fn collective(&self, column: usize) -> &'r RankCollective {
        &self.records[self.rank(column)].collectives[self.rows[column]]
    }

    /// Returns its start in the clock of the reference. Times of a rank whose clock is not known cannot be compared.
    pub fn start(&self, column: usize) -> Ns {
        self.collective(column).start - self.clocks[self.rank(column)].map_or(0, |clock| clock.offset_ns)
    }

    /// Returns the last start, and its column.
    pub fn last(&self) -> Option<(Ns, usize)> {
        self.columns().map(|column| (self.start(column), column)).max()
    }
}

/// Matched collectives, and reasons for those that are not.
#[derive(Debug, Default)]
pub struct Matched {
    pub sets: Vec<MatchedSet>,
    pub unmatched: Vec<String>,
}

/// A process group by its label and, where known, its ranks.
type GroupKey<'r> = (&'r str, &'r [u32]);

/// The collectives of a group on one rank, in the order of their start.
type RankRows = (usize, Vec<usize>);

/// Matches the collectives of the ranks. The records are in the order of their ranks.
pub fn match_collectives(records: &[RankRecord]) -> Matched {
    let mut groups: BTreeMap<GroupKey<'_>, Vec<RankRows>> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        let mut rows: FxHashMap<_, Vec<usize>> = FxHashMap::default();
        for (row, collective) in record.collectives.iter().enumerate() {
            rows.entry(collective.group).or_default().push(row);
        }
        for (group, rows) in rows {
            let label = group.and_then(|group| record.groups.get(&group));
            let label = label.map_or("", String::as_str);
            let members = record.members.get(label).map_or(&[][..], Vec::as_slice);
            groups.entry((label, members)).or_default().push((at, rows));
        }
    }
    let mut matched = Matched::default();
    for ((label, members), ranks) in groups {
        match match_group(records, label, members, &ranks) {
            Ok(sets) => matched.sets.extend(sets),
            Err(why) => matched.unmatched.push(why.into()),
        }
    }
    matched
}

fn match_group(
    records: &[RankRecord],
    label: &str,
    members: &[u32],
    ranks: &[RankRows],
) -> Result<Vec<MatchedSet>, NotKnown> {
    let row = |at: usize, row: usize| -> &RankCollective { &records[at].collectives[row] };
    let names: Vec<u32> = ranks.iter().map(|(at, _)| records[*at].rank()).collect();
    let group = if label.is_empty() { "an unknown group".to_owned() } else { format!("group {label}") };
    let [(first, first_rows), others @ ..] = ranks else {
        return Ok(Vec::new());
    };
    if others.is_empty() {
        return match first_rows.first().map(|&at| row(*first, at).group_size) {
            Some(1) => Ok(Vec::new()),
            _ if members.len() == 1 => Ok(Vec::new()),
            _ => Err(format!(
                "the collectives of {group} are on rank {} alone of the ranks given",
                spans(&names)
            )
            .into()),
        };
    }
    let size = first_rows.iter().map(|&at| row(*first, at).group_size).max().unwrap_or(0);
    if members.is_empty() && size > 0 && ranks.len() > size as usize {
        return Err(format!(
            "{} ranks name {group} of {size} ranks, and the captures do not list the ranks of each",
            ranks.len()
        )
        .into());
    }
    let (rows, by_sequence): (Vec<Vec<usize>>, bool) = match numbered(records, ranks) {
        Some(numbered) => {
            let of_all = |at: &usize| {
                let collective = row(*first, *at);
                let key = (collective.collective, collective.sequence?);
                numbered.iter().map(|rows| rows.get(&key).copied()).collect()
            };
            (first_rows.iter().filter_map(of_all).collect(), true)
        }
        None => {
            let kinds = |(at, rows): &RankRows| -> Vec<&str> {
                rows.iter().map(|at_row| row(*at, *at_row).collective).collect()
            };
            let of_first = kinds(&ranks[0]);
            let same = ranks.iter().all(|rank| kinds(rank) == of_first);
            let of_all = |number| ranks.iter().map(|(_, rows)| rows[number]).collect();
            (if same { (0..first_rows.len()).map(of_all).collect() } else { Vec::new() }, false)
        }
    };
    if rows.is_empty() {
        let why = match by_sequence {
            true => "have no sequence number in common",
            false => "differ in number or order, without sequence numbers to tell which belong together",
        };
        return Err(format!("the collectives of {group} on ranks {} {why}", spans(&names)).into());
    }
    let mut sets: BTreeMap<&'static str, MatchedSet> = BTreeMap::new();
    for rows in rows {
        let collective = row(*first, rows[0]).collective;
        let set = sets.entry(collective).or_insert_with(|| MatchedSet {
            group: label.to_owned(),
            collective,
            ranks: ranks.iter().map(|(at, _)| *at).collect(),
            rows: Vec::new(),
            by_sequence,
        });
        set.rows.push(rows);
    }
    Ok(sets.into_values().collect())
}

/// Collectives of one rank by kind and sequence number.
type Numbered = BTreeMap<(&'static str, u64), usize>;

/// Returns the collectives of each rank by kind and sequence number; `None` unless all have one that occurs once.
fn numbered(records: &[RankRecord], ranks: &[RankRows]) -> Option<Vec<Numbered>> {
    let of_rank = |(at, rows): &RankRows| {
        by_number(rows.iter().map(|row| {
            let collective = &records[*at].collectives[*row];
            (collective.sequence.map(|sequence| (collective.collective, sequence)), *row)
        }))
    };
    ranks.iter().map(of_rank).collect()
}

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
    sets.sort_by_key(|set| Reverse(set.rows.len()));
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
        // A part of the job that shares no collective with the others has another reference.
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
            let other = &records[set.ranks[rank]].collectives[rows[rank]];
            (base, other)
        })
    };
    let offset = median(&mut pairs().map(|(base, other)| other.end - base.end).collect::<Vec<Ns>>())?;
    let spread = pairs().map(|(base, other)| (other.end - base.end - offset).abs()).max()?;
    let least = pairs().map(|(base, other)| other.start - base.end).max()?;
    let most = pairs().map(|(base, other)| other.end - base.start).min()?;
    let error = if (least..=most).contains(&offset) {
        spread.min((offset - least).max(most - offset))
    } else {
        spread
    };
    Some((offset, error))
}

/// The transfers from one rank to another in a group.
#[derive(Default)]
struct Pair<'r> {
    sends: Vec<&'r RankTransfer>,
    receives: Vec<&'r RankTransfer>,
}

/// Matches the transfers of the ranks. The records are in the order of their ranks.
pub fn match_transfers(
    records: &[RankRecord],
    clocks: &[Option<Clock>],
) -> (Vec<MatchedTransfers>, Vec<String>) {
    let mut pairs: BTreeMap<(u32, u32, &str), Pair<'_>> = BTreeMap::new();
    for record in records {
        for transfer in &record.transfers {
            let group = record.groups.get(&transfer.group).map_or("", String::as_str);
            let (rank, peer) = (record.rank(), transfer.peer);
            if transfer.sends {
                pairs.entry((rank, peer, group)).or_default().sends.push(transfer);
            } else {
                pairs.entry((peer, rank, group)).or_default().receives.push(transfer);
            }
        }
    }
    let position = |rank: u32| records.binary_search_by_key(&rank, RankRecord::rank).ok();
    let clock = |rank: u32| position(rank).and_then(|at| clocks[at]);
    let (mut rows, mut unmatched) = (Vec::new(), Vec::new());
    for ((from, to, group), pair) in pairs {
        // The other rank was not given.
        if position(from).is_none() || position(to).is_none() {
            continue;
        }
        let (matched, by_sequence) = pair.matched();
        let (sends, receives) = (pair.sends.len(), pair.receives.len());
        if matched.len() < sends.max(receives) {
            let counts =
                format!("rank {from} sends {sends} times to rank {to}, which receives {receives} times");
            unmatched.push(match by_sequence {
                true => format!("{counts}; sequence numbers in common: {}", matched.len()),
                false => format!("{counts}, without sequence numbers to tell which belong together"),
            });
        }
        if matched.is_empty() {
            continue;
        }
        let known = clock(from).zip(clock(to)).filter(|(a, b)| a.reference == b.reference);
        let mut row = MatchedTransfers {
            from,
            to,
            group: Some(group.to_owned()).filter(|group| !group.is_empty()),
            count: matched.len() as u64,
            matched_by: if by_sequence { "sequence" } else { "order" }.to_owned(),
            bytes: Some(0),
            receive_ns: 0,
            receiver_waited_ns: known.map(|_| 0),
            sender_waited_ns: known.map(|_| 0),
        };
        for (send, receive) in matched {
            row.bytes =
                row.bytes.zip(send.bytes.or(receive.bytes)).and_then(|(sum, bytes)| sum.checked_add(bytes));
            row.receive_ns += receive.end - receive.start;
            let Some((sender, receiver)) = known else { continue };
            let late = (send.start - sender.offset_ns) - (receive.start - receiver.offset_ns);
            // A difference that is not above the error of the clocks is none.
            let error = sender.error_ns + receiver.error_ns;
            if late > error {
                let waited = late.min(receive.exposed_ns);
                row.receiver_waited_ns = row.receiver_waited_ns.map(|sum| sum + waited);
            } else if -late > error {
                let waited = (-late).min(send.exposed_ns);
                row.sender_waited_ns = row.sender_waited_ns.map(|sum| sum + waited);
            }
        }
        rows.push(row);
    }
    rows.sort_by_key(|row: &MatchedTransfers| {
        let waited = row.receiver_waited_ns.unwrap_or(0) + row.sender_waited_ns.unwrap_or(0);
        (std::cmp::Reverse((waited, row.receive_ns)), row.from, row.to)
    });
    (rows, unmatched)
}

impl<'r> Pair<'r> {
    /// Puts sends and receives together: by their numbers where all have one, else by their order where there are as many sends as
    /// receives.
    fn matched(&self) -> (Vec<(&'r RankTransfer, &'r RankTransfer)>, bool) {
        let numbered = |rows: &[&'r RankTransfer]| by_number(rows.iter().map(|row| (row.sequence, *row)));
        if let Some((sends, receives)) = numbered(&self.sends).zip(numbered(&self.receives)) {
            let both = |(number, send): (&u64, &&'r RankTransfer)| Some((*send, *receives.get(number)?));
            return (sends.iter().filter_map(both).collect(), true);
        }
        let pairs = self.sends.iter().copied().zip(self.receives.iter().copied());
        let same = self.sends.len() == self.receives.len();
        (pairs.filter(|_| same).collect(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::RankInfo;
    use roofgap_trace::NameId;

    fn rank(rank: u32, rows: &[(u32, bool, Option<u64>, i64, i64)]) -> RankRecord {
        let transfer =
            |&(peer, sends, sequence, start, end): &(u32, bool, Option<u64>, i64, i64)| RankTransfer {
                peer,
                sends,
                group: NameId(1),
                sequence,
                start,
                end,
                exposed_ns: end - start,
                bytes: Some(100),
            };
        RankRecord {
            info: RankInfo { rank, ..RankInfo::default() },
            collectives: Vec::new(),
            transfers: rows.iter().map(transfer).collect(),
            groups: [(NameId(1), "pp".to_owned())].into_iter().collect(),
            members: Default::default(),
            stages: Vec::new(),
            has_experts: false,
        }
    }

    fn clock(offset_ns: i64) -> Option<Clock> {
        Some(Clock { offset_ns, error_ns: 5, reference: 0 })
    }

    #[test]
    fn a_receiver_waits_for_its_sender() {
        let sender = rank(0, &[(1, true, Some(0), 100, 130), (1, true, Some(1), 200, 300)]);
        // Its clock is 1000 ahead: it waits 60 for the first, and is 90 late for the second.
        let receiver = rank(1, &[(0, false, Some(1), 1_290, 1_300), (0, false, Some(0), 1_040, 1_130)]);
        let found = match_transfers(&[sender, receiver], &[clock(0), clock(1_000)]);
        assert_eq!(found.1, [""; 0]);
        let [row] = &found.0[..] else {
            panic!("{found:?}");
        };
        assert_eq!((row.from, row.to, row.count, row.bytes), (0, 1, 2, Some(200)));
        assert_eq!((row.group.as_deref(), row.matched_by.as_str()), (Some("pp"), "sequence"));
        assert_eq!(row.receive_ns, 100);
        assert_eq!((row.receiver_waited_ns, row.sender_waited_ns), (Some(60), Some(90)));
    }

    #[test]
    fn numbers_without_a_partner_are_said() {
        let sender = || rank(0, &[(1, true, Some(4), 0, 10), (1, true, Some(5), 20, 30)]);
        let receives = |numbers: [u64; 2]| {
            let [a, b] = numbers.map(Some);
            rank(1, &[(0, false, a, 5, 10), (0, false, b, 25, 30)])
        };
        let found = match_transfers(&[sender(), receives([5, 6])], &[None, None]);
        assert_eq!((found.0[0].count, found.0[0].receive_ns), (1, 5));
        let counts = "rank 0 sends 2 times to rank 1, which receives 2 times";
        assert_eq!(found.1, [format!("{counts}; sequence numbers in common: 1")]);
        let found = match_transfers(&[sender(), receives([8, 9])], &[None, None]);
        assert!(found.0.is_empty());
        assert_eq!(found.1, [format!("{counts}; sequence numbers in common: 0")]);
    }

    #[test]
    fn what_cannot_be_matched_is_said() {
        let sender = || rank(0, &[(1, true, None, 0, 10), (1, true, None, 20, 30), (7, true, None, 40, 50)]);
        let receiver = rank(1, &[(0, false, None, 5, 10)]);
        let found = match_transfers(&[sender(), receiver], &[None, None]);
        assert!(found.0.is_empty());
        assert!(found.1[0].contains("sends 2 times to rank 1, which receives 1 times"));
        let receiver = rank(1, &[(0, false, None, 5, 10), (0, false, None, 25, 30)]);
        let found = match_transfers(&[sender(), receiver], &[None, None]);
        assert_eq!((found.0.len(), found.0[0].receiver_waited_ns), (1, None));
        assert_eq!(found.0[0].matched_by, "order");
    }
}
