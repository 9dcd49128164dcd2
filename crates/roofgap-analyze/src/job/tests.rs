//! Matching and clocks on records made by hand.

use super::matching::match_collectives;
use super::matching::{Clock, align};
use super::record::RankRecord;
use super::spans;
use super::waits::balance;
use crate::communication::RankCollective;
use crate::result::RankInfo;
use roofgap_trace::NameId;

/// A rank whose collectives are given by group, kind, sequence number, start and end.
fn rank(rank: u32, rows: &[(u32, &'static str, Option<u64>, i64, i64)]) -> RankRecord {
    let collective =
        |&(group, collective, sequence, start, end): &(u32, &'static str, Option<u64>, i64, i64)| {
            RankCollective {
                group: Some(NameId(group)),
                group_size: 2,
                collective,
                sequence,
                start,
                end,
                exposed_ns: end - start,
                bytes: None,
                stage: None,
                experts_ns: 0,
            }
        };
    RankRecord {
        info: RankInfo { rank, ..RankInfo::default() },
        collectives: rows.iter().map(collective).collect(),
        groups: rows.iter().map(|row| (NameId(row.0), format!("g{}", row.0))).collect(),
        members: Default::default(),
        transfers: Vec::new(),
        stages: Vec::new(),
        has_experts: false,
    }
}

fn unmatched(records: &[RankRecord]) -> String {
    let matched = match_collectives(records);
    assert!(matched.sets.is_empty(), "{:?}", matched.sets);
    matched.unmatched.join("\n")
}

#[test]
fn order_needs_the_same_collectives_on_every_rank() {
    let all = |start| (1, "all_reduce", None, start, start + 10);
    let gather = |start| (1, "all_gather", None, start, start + 10);
    let why = unmatched(&[rank(0, &[all(0), all(20)]), rank(1, &[all(0)])]);
    assert!(why.contains("group g1 on ranks 0-1 differ in number or order"), "{why}");
    let why = unmatched(&[rank(0, &[all(0), gather(20)]), rank(1, &[gather(0), all(20)])]);
    assert!(why.contains("group g1 on ranks 0-1 differ in number or order"), "{why}");
    let why = unmatched(&[rank(0, &[all(0)]), rank(3, &[(2, "all_reduce", None, 0, 10)])]);
    assert!(why.contains("group g1 are on rank 0 alone"), "{why}");
}

/// Two groups of two ranks work at the same time: in each, the second rank computes 40 ns longer, and the first waits for it.
#[test]
fn groups_of_other_ranks_do_not_add_to_the_bound_of_experts() {
    let records: Vec<RankRecord> = (0..4)
        .map(|number| {
            let late = i64::from(number % 2) * 40;
            let group = 1 + number / 2;
            let rows = [0, 1_000].map(|at| (group, "all_to_all", None, at + 100 + late, at + 200));
            let mut record = rank(number, &rows);
            for row in &mut record.collectives {
                row.experts_ns = 60 + late;
            }
            record.has_experts = true;
            record
        })
        .collect();
    let matched = match_collectives(&records);
    assert_eq!(matched.sets.len(), 2, "{matched:?}");
    let clock = Clock { offset_ns: 0, error_ns: 0, reference: 0 };
    let clocks = [Some(clock); 4];
    let (rows, why) = balance(&records, &matched.sets, &clocks);
    assert_eq!((rows.len(), rows[0].sections, why), (1, 4, None));
    // The slowest is 20 ns above the mean, in two sections of each rank.
    assert_eq!(rows[0].bound_ns, Some(40), "{rows:?}");
}

#[test]
fn one_label_for_several_groups_is_not_matched_without_their_ranks() {
    let row = (1, "all_reduce", None, 0, 10);
    let mut records = [0, 1, 2, 3].map(|number| rank(number, &[row]));
    let why = unmatched(&records);
    assert!(why.contains("4 ranks name group g1 of 2 ranks"), "{why}");
    for (at, record) in records.iter_mut().enumerate() {
        let members = if at < 2 { vec![0, 1] } else { vec![2, 3] };
        record.members.insert("g1".to_owned(), members);
    }
    let matched = match_collectives(&records);
    let ranks: Vec<&[usize]> = matched.sets.iter().map(|set| set.ranks.as_slice()).collect();
    assert_eq!(ranks, [&[0, 1], &[2, 3]]);
}

#[test]
fn collectives_without_a_group_are_matched_by_order() {
    let mut records = [0, 1].map(|number| rank(number, &[(1, "all_reduce", None, 0, 10)]));
    for record in &mut records {
        record.collectives[0].group = None;
        record.collectives[0].group_size = 0;
    }
    let matched = match_collectives(&records);
    let groups: Vec<&str> = matched.sets.iter().map(|set| set.group.as_str()).collect();
    assert_eq!(groups, [""]);
}

#[test]
fn sequence_numbers_match_where_a_rank_recorded_more() {
    let row = |number, start| (1, "all_reduce", Some(number), start, start + 10);
    let matched = match_collectives(&[
        rank(0, &[row(5, 0), row(6, 20), row(7, 40)]),
        rank(1, &[row(6, 120), row(7, 140), row(8, 160)]),
    ]);
    let [set] = &matched.sets[..] else {
        panic!("{matched:?}");
    };
    assert!(set.by_sequence);
    assert_eq!(set.rows, [[1, 0], [2, 1]]);
    // A number that occurs twice tells nothing.
    let why = unmatched(&[rank(0, &[row(5, 0), row(5, 20)]), rank(1, &[row(5, 0)])]);
    assert!(why.contains("on ranks 0-1 differ in number or order"), "{why}");
}

#[test]
fn clocks_are_aligned_through_other_ranks_and_errors_add_up() {
    let records = [
        rank(0, &[(1, "all_reduce", None, 0, 100), (1, "all_reduce", None, 1_000, 1_104)]),
        rank(
            1,
            &[
                (1, "all_reduce", None, 5_000, 5_100),
                (1, "all_reduce", None, 6_000, 6_100),
                (2, "all_reduce", None, 7_000, 7_100),
                (2, "all_reduce", None, 8_000, 8_100),
            ],
        ),
        rank(2, &[(2, "all_reduce", None, 7_900, 8_006), (2, "all_reduce", None, 8_900, 9_000)]),
        rank(4, &[(3, "all_reduce", None, 0, 100)]),
        rank(5, &[(3, "all_reduce", None, 40, 140)]),
        rank(6, &[]),
    ];
    let matched = match_collectives(&records);
    let clocks = align(&records, &matched.sets);
    let seen: Vec<Option<(i64, i64, u32)>> = clocks
        .iter()
        .map(|clock| clock.map(|clock| (clock.offset_ns, clock.error_ns, clock.reference)))
        .collect();
    assert_eq!(
        seen,
        [Some((0, 0, 0)), Some((4_998, 2, 0)), Some((5_901, 5, 0)), Some((0, 0, 4)), Some((40, 0, 4)), None]
    );
}

#[test]
fn numbers_in_words() {
    assert_eq!(spans(&[0, 2, 3, 4, 9]), "0, 2-4, 9");
}
