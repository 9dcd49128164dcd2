//! Collectives of several ranks that belong together: by sequence number, else by their order within the group.

use super::record::RankRecord;
use super::spans;
use crate::communication::RankCollective;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

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
            Err(why) => matched.unmatched.push(why),
        }
    }
    matched
}

fn match_group(
    records: &[RankRecord],
    label: &str,
    members: &[u32],
    ranks: &[RankRows],
) -> Result<Vec<MatchedSet>, String> {
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
            )),
        };
    }
    let size = first_rows.iter().map(|&at| row(*first, at).group_size).max().unwrap_or(0);
    if members.is_empty() && size > 0 && ranks.len() > size as usize {
        return Err(format!(
            "{} ranks name {group} of {size} ranks, and the captures do not list the ranks of each",
            ranks.len()
        ));
    }
    let positions: Vec<usize> = ranks.iter().map(|(at, _)| *at).collect();
    let mut sets: BTreeMap<&'static str, MatchedSet> = BTreeMap::new();
    let mut add = |rows: Vec<usize>, by_sequence: bool| {
        let collective = row(*first, rows[0]).collective;
        let set = sets.entry(collective).or_insert_with(|| MatchedSet {
            group: label.to_owned(),
            collective,
            ranks: positions.clone(),
            rows: Vec::new(),
            by_sequence,
        });
        set.rows.push(rows);
    };
    if let Some(numbered) = numbered(records, ranks) {
        for &at in first_rows {
            let collective = row(*first, at);
            let key = (collective.collective, collective.sequence);
            let rows: Option<Vec<usize>> = numbered.iter().map(|rows| rows.get(&key).copied()).collect();
            if let Some(rows) = rows {
                add(rows, true);
            }
        }
        if sets.is_empty() {
            return Err(format!(
                "the collectives of {group} on ranks {} have no sequence number in common",
                spans(&names)
            ));
        }
        return Ok(sets.into_values().collect());
    }
    for (at, rows) in others {
        if rows.len() != first_rows.len() {
            return Err(format!(
                "{group} has {} collectives on rank {} and {} on rank {}, without sequence numbers to tell which belong together",
                first_rows.len(),
                records[*first].rank(),
                rows.len(),
                records[*at].rank()
            ));
        }
        let same = |(&a, &b): (&usize, &usize)| row(*first, a).collective == row(*at, b).collective;
        if !first_rows.iter().zip(rows).all(same) {
            return Err(format!(
                "the collectives of {group} have another order on rank {} than on rank {}, without sequence numbers to tell which belong together",
                records[*at].rank(),
                records[*first].rank()
            ));
        }
    }
    for number in 0..first_rows.len() {
        add(ranks.iter().map(|(_, rows)| rows[number]).collect(), false);
    }
    Ok(sets.into_values().collect())
}

/// Collectives of one rank by kind and sequence number.
type Numbered = FxHashMap<(&'static str, Option<u64>), usize>;

/// Returns the collectives of each rank by kind and sequence number; `None` unless all have one that occurs once.
fn numbered(records: &[RankRecord], ranks: &[RankRows]) -> Option<Vec<Numbered>> {
    let of_rank = |(at, rows): &RankRows| {
        let mut numbered = FxHashMap::default();
        for &row in rows {
            let collective = &records[*at].collectives[row];
            collective.sequence?;
            let known = numbered.insert((collective.collective, collective.sequence), row);
            if known.is_some() {
                return None;
            }
        }
        Some(numbered)
    };
    ranks.iter().map(of_rank).collect()
}
