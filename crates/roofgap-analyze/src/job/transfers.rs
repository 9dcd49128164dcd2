//! Sends and receives of two ranks that belong together: by sequence number, else by their order.

use super::by_number;
use super::matching::Clock;
use super::record::RankRecord;
use crate::communication::RankTransfer;
use crate::result::MatchedTransfers;
use std::collections::BTreeMap;

/// The transfers from one rank to another in a group.
#[derive(Default)]
struct Pair<'r> {
    sends: Vec<&'r RankTransfer>,
    receives: Vec<&'r RankTransfer>,
}

/// Matches the transfers of the ranks. The records are in the order of their ranks.
pub fn find(records: &[RankRecord], clocks: &[Option<Clock>]) -> (Vec<MatchedTransfers>, Vec<String>) {
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
        let found = find(&[sender, receiver], &[clock(0), clock(1_000)]);
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
        let found = find(&[sender(), receives([5, 6])], &[None, None]);
        assert_eq!((found.0[0].count, found.0[0].receive_ns), (1, 5));
        let counts = "rank 0 sends 2 times to rank 1, which receives 2 times";
        assert_eq!(found.1, [format!("{counts}; sequence numbers in common: 1")]);
        let found = find(&[sender(), receives([8, 9])], &[None, None]);
        assert!(found.0.is_empty());
        assert_eq!(found.1, [format!("{counts}; sequence numbers in common: 0")]);
    }

    #[test]
    fn what_cannot_be_matched_is_said() {
        let sender = || rank(0, &[(1, true, None, 0, 10), (1, true, None, 20, 30), (7, true, None, 40, 50)]);
        let receiver = rank(1, &[(0, false, None, 5, 10)]);
        let found = find(&[sender(), receiver], &[None, None]);
        assert!(found.0.is_empty());
        assert!(found.1[0].contains("sends 2 times to rank 1, which receives 1 times"));
        let receiver = rank(1, &[(0, false, None, 5, 10), (0, false, None, 25, 30)]);
        let found = find(&[sender(), receiver], &[None, None]);
        assert_eq!((found.0.len(), found.0[0].receiver_waited_ns), (1, None));
        assert_eq!(found.0[0].matched_by, "order");
    }
}
