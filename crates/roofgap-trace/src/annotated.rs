//! Collectives and process groups that the annotation of a Python program writes as ranges and marks.
//!
//! ```text
//! mark  = "roofgap.group rank=R world=N name=NAME size=N ranks=0-3,8 desc=TEXT"
//! range = "roofgap.collective NAME group=NAME desc=TEXT size=N in=BYTES out=BYTES on=host|device wait=0|1 peer=R seq=N"
//! ```
//!
//! Values have no blanks, and fields may be absent. The range is the call. `on=host` is a backend whose collectives run no kernels; with
//! `wait=1` the call returns when the collective has ended.

use crate::model::group_label;
use crate::{Collective, Distributed, LossKind, NameId, ProcessGroup, ProcessId, RangeCollective, Trace};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

const GROUP: &str = "roofgap.group ";
const COLLECTIVE: &str = "roofgap.collective ";

/// The most ranks of a group that are listed; more are those of a broken file.
const MOST_RANKS: u32 = 1 << 16;

/// A process group, as a member marks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMark {
    pub rank: u32,
    pub world_size: u32,
    group: ProcessGroup,
}

impl GroupMark {
    /// Parses the text of a mark; `None` for any other.
    pub fn parse(text: &str) -> Option<Self> {
        let fields = Fields(text.strip_prefix(GROUP)?);
        let (rank, world_size) = (fields.number("rank")?, fields.number("world")?);
        (rank < world_size).then(|| Self {
            rank,
            world_size,
            group: ProcessGroup {
                name: fields.text("name").unwrap_or_default().to_owned(),
                description: fields.text("desc").unwrap_or_default().to_owned(),
                size: fields.number("size").unwrap_or(0),
                ranks: fields.text("ranks").and_then(ranks).unwrap_or_default(),
            },
        })
    }
}

/// Fields of a name, as `KEY=VALUE` between blanks.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    fn text(self, key: &str) -> Option<&'a str> {
        let mut fields = self.0.split(' ').filter_map(|field| field.split_once('='));
        fields.find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    fn number<T: std::str::FromStr>(self, key: &str) -> Option<T> {
        self.text(key)?.parse().ok()
    }
}

/// Parses numbers and spans, such as `0-3,8`.
fn ranks(text: &str) -> Option<Vec<u32>> {
    let mut ranks = Vec::new();
    for span in text.split(',') {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last.checked_sub(first)? >= MOST_RANKS || ranks.len() >= MOST_RANKS as usize {
            return None;
        }
        ranks.extend(first..=last);
    }
    Some(ranks)
}

/// Parses the collective of a range, and returns the name of the range without its number too.
fn collective(text: &str, trace: &mut Trace) -> Option<(NameId, RangeCollective)> {
    let rest = text.strip_prefix(COLLECTIVE)?;
    let (name, fields) = rest.split_once(' ').unwrap_or((rest, ""));
    let fields = Fields(fields);
    let label =
        group_label(fields.text("group").unwrap_or_default(), fields.text("desc").unwrap_or_default());
    let shown = match label.as_str() {
        "" => name.to_owned(),
        label => format!("{name} [{label}]"),
    };
    let mut collective = Collective {
        name: trace.names.intern(name),
        group: trace.names.intern(&label),
        group_size: fields.number("size").unwrap_or(0),
        input_bytes: fields.number("in"),
        output_bytes: fields.number("out"),
        sequence: fields.number("seq"),
        peer: fields.number("peer"),
    };
    trace.losses.add(LossKind::ValueOutOfRange, u64::from(collective.limit_values()));
    let on_host = fields.text("on") == Some("host");
    let waits = fields.text("wait") == Some("1");
    Some((trace.names.intern(&shown), RangeCollective { row: 0, collective, on_host, waits }))
}

/// Takes the collectives and groups out of the names of ranges and marks. The columns are in order.
pub fn settle(trace: &mut Trace) {
    let texts = |prefix: &str| -> Vec<(NameId, String)> {
        let begins = |(_, text): &(NameId, &str)| text.starts_with(prefix);
        let names = trace.names.iter().filter(begins);
        names.map(|(id, text)| (id, text.to_owned())).collect()
    };
    let (groups, collectives) = (texts(GROUP), texts(COLLECTIVE));
    if !groups.is_empty() {
        let marks: FxHashMap<NameId, GroupMark> =
            groups.iter().filter_map(|(id, text)| Some((*id, GroupMark::parse(text)?))).collect();
        let mut by_process: BTreeMap<ProcessId, Vec<&GroupMark>> = BTreeMap::new();
        for mark in &trace.ranges.marks {
            let thread = trace.threads.get(mark.thread.index());
            if let Some((group, thread)) = marks.get(&mark.name).zip(thread) {
                by_process.entry(thread.process).or_default().push(group);
            }
        }
        let seen: Vec<&GroupMark> = by_process.values().flatten().copied().collect();
        if !add_groups(&seen, &mut trace.distributed) {
            let job_of = |(process, marks): (&ProcessId, &Vec<&GroupMark>)| {
                let mut job_of = None;
                add_groups(marks, &mut job_of);
                Some((*process, job_of?))
            };
            trace.process_ranks = by_process.iter().filter_map(job_of).collect();
        }
        trace.ranges.marks.retain(|mark| !marks.contains_key(&mark.name));
    }
    if collectives.is_empty() {
        return;
    }
    let parsed: FxHashMap<NameId, (NameId, RangeCollective)> =
        collectives.iter().filter_map(|(id, text)| Some((*id, collective(text, trace)?))).collect();
    let ranges = &mut trace.ranges;
    for (row, range) in ranges.rows.iter_mut().enumerate() {
        if let Some((shown, collective)) = parsed.get(&range.name) {
            range.name = *shown;
            ranges.collectives.push(RangeCollective { row: row as u32, ..*collective });
        }
    }
}

/// Adds the groups of one rank. Marks of several ranks tell only the size of the job; returns false for those.
fn add_groups(marks: &[&GroupMark], distributed: &mut Option<Distributed>) -> bool {
    let largest = marks.iter().max_by_key(|mark| mark.world_size);
    let Some(largest) = largest.filter(|mark| mark.world_size > 1) else {
        return true;
    };
    let job = distributed.get_or_insert_default();
    job.world_size = Some(largest.world_size);
    let of_job = marks.iter().filter(|mark| mark.world_size == largest.world_size);
    if of_job.clone().any(|mark| mark.rank != largest.rank) {
        job.rank = None;
        return false;
    }
    job.rank = Some(largest.rank);
    for mark in of_job {
        if !job.groups.contains(&mark.group) {
            job.groups.push(mark.group.clone());
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mark, Range, RangeStyle};

    fn trace(ranges: &[&str], marks: &[&str]) -> Trace {
        let mut trace = Trace::default();
        let process = trace.add_process(7, "");
        let thread = trace.add_thread(process, 7, "");
        let domain = trace.names.intern("");
        for (at, text) in ranges.iter().enumerate() {
            let name = trace.names.intern(text);
            trace.ranges.rows.push(Range {
                start: at as i64,
                end: at as i64 + 1,
                domain,
                name,
                process,
                thread,
                end_thread: thread,
                style: RangeStyle::PushPop,
                open: false,
            });
        }
        for text in marks {
            let name = trace.names.intern(text);
            trace.ranges.marks.push(Mark { at: 0, domain, name, thread });
        }
        settle(&mut trace);
        trace
    }

    #[test]
    fn a_range_is_a_collective_with_its_size_and_number() {
        let trace = trace(
            &[
                "prefill",
                "roofgap.collective all_reduce group=0 desc=default_pg size=2 in=4096 out=4096 on=host wait=1 seq=17",
                "roofgap.collective send peer=1",
            ],
            &[],
        );
        let names: Vec<&str> = trace.ranges.rows.iter().map(|row| trace.names.get(row.name)).collect();
        assert_eq!(names, ["prefill", "all_reduce [0 (default_pg)]", "send"]);
        let [reduce, send] = &trace.ranges.collectives[..] else {
            panic!("{:?}", trace.ranges.collectives);
        };
        let collective = reduce.collective;
        assert_eq!((reduce.row, reduce.on_host, reduce.waits), (1, true, true));
        assert_eq!(trace.names.get(collective.group), "0 (default_pg)");
        assert_eq!(
            (collective.group_size, collective.input_bytes, collective.sequence),
            (2, Some(4096), Some(17))
        );
        assert_eq!((send.row, send.on_host, send.waits), (2, false, false));
        assert_eq!((send.collective.peer, send.collective.input_bytes), (Some(1), None));
    }

    #[test]
    fn a_trace_of_several_ranks_can_be_divided() {
        let group = |rank: u32| format!("{GROUP}rank={rank} world=2 name=0 size=2 ranks=0-1 desc=default_pg");
        let call = |number: u32| format!("{COLLECTIVE}all_reduce group=0 seq={number}");
        let mut trace = Trace::default();
        let domain = trace.names.intern("");
        for (at, rank) in [Some(1), None, Some(0)].into_iter().enumerate() {
            let process = trace.add_process(100 + at as u32, "");
            let thread = trace.add_thread(process, 7, "");
            if let Some(rank) = rank {
                let name = trace.names.intern(&group(rank));
                let at = 0;
                trace.ranges.marks.push(Mark { at, domain, name, thread });
            }
            for number in 0..2 {
                let name = trace.names.intern(&call(number));
                trace.ranges.rows.push(Range {
                    start: 10 * i64::from(number) + at as i64,
                    end: 10 * i64::from(number) + 9,
                    domain,
                    name,
                    process,
                    thread,
                    end_thread: thread,
                    style: RangeStyle::PushPop,
                    open: false,
                });
            }
        }
        trace.sort();
        settle(&mut trace);
        assert_eq!(trace.distributed.as_ref().unwrap().rank, None);
        assert_eq!(trace.ranks(), [0, 1]);
        let part = trace.of_rank(0);
        assert_eq!(part.distributed.as_ref().unwrap().rank, Some(0));
        let starts: Vec<i64> = part.ranges.rows.iter().map(|range| range.start).collect();
        assert_eq!(starts, [2, 12]);
        let rows: Vec<u32> = part.ranges.collectives.iter().map(|collective| collective.row).collect();
        assert_eq!(rows, [0, 1]);
        assert_eq!(trace.without_ranks().ranges.rows.len(), 2);
        assert!(part.ranks().is_empty());
    }

    #[test]
    fn marks_tell_the_rank_and_its_groups() {
        let default = "roofgap.group rank=5 world=16 name=0 size=16 ranks=0-15 desc=default_pg";
        let tensor = "roofgap.group rank=5 world=16 name=3 size=4 ranks=4-6,8 desc=mesh_tp";
        let marked = trace(&[], &[default, tensor, tensor, "other"]);
        assert_eq!(marked.ranges.marks.len(), 1, "the other mark stays");
        let job = marked.distributed.unwrap();
        assert_eq!((job.rank, job.world_size), (Some(5), Some(16)));
        assert_eq!(job.groups.len(), 2);
        assert_eq!(job.groups[1].ranks, [4, 5, 6, 8]);
        let other = default.replace("rank=5", "rank=6");
        let job = trace(&[], &[default, &other]).distributed.unwrap();
        assert_eq!((job.rank, job.world_size), (None, Some(16)));
        for broken in ["rank=2 world=2", "rank=x world=2", "rank=0 world=1", ""] {
            let text = format!("{GROUP}{broken}");
            assert_eq!(trace(&[], &[&text]).distributed, None, "{broken}");
        }
        assert_eq!(ranks("0-4294967295"), None);
        assert_eq!(ranks("3-1"), None);
    }
}
