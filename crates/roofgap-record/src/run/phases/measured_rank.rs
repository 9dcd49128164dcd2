//! The rank whose kernels ncu measures.
//!
//! ncu reaches every process of a launcher, and replays the kernels of each apart from the others. One rank is enough: the others
//! run the same kernels, and wait for it in their collectives. The annotation of a Python program opens a range in every other rank
//! (`adapters/counters_rank.py`), by which ncu leaves it out.

use std::collections::BTreeSet;

use roofgap_collect::command::NvtxRange;
use roofgap_trace::ncu::{LaunchCounters, NvtxKind};
use roofgap_trace::{Trace, native};

use super::timeline::{Recorder, Timeline};
use roofgap_runs::config::Config;
use roofgap_runs::run_dir::Layout;

/// Variable that tells the annotation which rank is measured.
pub const VARIABLE: &str = "ROOFGAP_COUNTERS_RANK";

/// Ranges that the annotation opens in the other ranks, and in the measured one.
const OTHER: &str = "roofgap.other_rank";
const MEASURED: &str = "roofgap.counters rank=";

/// The rank to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeasuredRank {
    /// The program has no ranks, or the kernels of every rank are measured.
    Every,
    /// One rank of this session.
    One(u32),
    /// A rank that another session records.
    Elsewhere {
        /// Rank to measure.
        rank: u32,
        /// Ranks of this session.
        here: BTreeSet<u32>,
    },
}

impl MeasuredRank {
    /// Decides by the ranks in the timeline.
    pub fn of(config: &Config, layout: &Layout, timeline: &Timeline) -> Self {
        let here: BTreeSet<u32> = match timeline.tool {
            Recorder::Native => {
                let captures = layout.native_captures().into_iter();
                captures.filter_map(|path| Some(native::rank(&path).ok()??.rank)).collect()
            }
            Recorder::Nsys => ranks_of(&timeline.input.trace),
        };
        Self::among(config.profiling.ncu.rank, here)
    }

    fn among(wanted: Option<u32>, here: BTreeSet<u32>) -> Self {
        match wanted {
            Some(rank) if here.contains(&rank) => MeasuredRank::One(rank),
            Some(rank) if !here.is_empty() => MeasuredRank::Elsewhere { rank, here },
            _ => MeasuredRank::Every,
        }
    }

    /// Returns the rank that this session measures, if it is one of several.
    pub fn one(&self) -> Option<u32> {
        match self {
            MeasuredRank::One(rank) => Some(*rank),
            MeasuredRank::Every | MeasuredRank::Elsewhere { .. } => None,
        }
    }

    /// Returns the range that is open in the ranks to leave out.
    pub fn excluded(&self) -> Option<NvtxRange> {
        self.one().and_then(|_| NvtxRange::parse(OTHER))
    }
}

/// Returns the ranks in a trace: of its processes, or the one rank of a job that all of it belongs to.
fn ranks_of(trace: &Trace) -> BTreeSet<u32> {
    let job = trace.distributed.as_ref();
    // A launcher also tells the only process of a program that it is rank 0.
    let own = job.filter(|job| job.world_size.is_some_and(|size| size > 1));
    trace.ranks().into_iter().chain(own.and_then(|job| job.rank)).collect()
}

/// Says which rank the counters belong to.
pub fn told(wanted: u32, launches: &[LaunchCounters]) -> String {
    let ranks: BTreeSet<Option<&str>> = launches.iter().map(rank_of).collect();
    if let [Some(rank)] = ranks.iter().copied().collect::<Vec<_>>()[..] {
        return format!("the counters are those of rank {rank}; ncu left out the other ranks");
    }
    let processes: BTreeSet<Option<u32>> = launches.iter().map(|launch| launch.process).collect();
    let processes = match processes.len() {
        1 => "one process".to_owned(),
        count => format!("{count} processes"),
    };
    format!(
        "the counters come from {processes} of the job, and ncu cannot tell rank {wanted} from the others: it leaves out \
         ranks of Python programs that import torch, with workload.annotate=true"
    )
}

/// Returns the rank that a launch was measured in.
fn rank_of(launch: &LaunchCounters) -> Option<&str> {
    let ranges = launch.nvtx.iter().filter(|range| range.kind == NvtxKind::StartEnd);
    let mut told = ranges.filter_map(|range| range.name.strip_prefix(MEASURED));
    told.find_map(|rest| rest.split(' ').next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_trace::Distributed;
    use roofgap_trace::ncu::NvtxRange as LaunchRange;

    #[test]
    fn one_rank_of_a_job_is_measured() {
        let among = |wanted, here: &[u32]| MeasuredRank::among(wanted, here.iter().copied().collect());
        assert_eq!(among(Some(0), &[0, 1]), MeasuredRank::One(0));
        assert_eq!(among(Some(3), &[3]), MeasuredRank::One(3));
        assert_eq!(among(Some(0), &[]), MeasuredRank::Every, "a program of one process");
        assert_eq!(among(None, &[0, 1]), MeasuredRank::Every);
        let elsewhere = among(Some(0), &[8, 9]);
        assert_eq!((elsewhere.one(), elsewhere.excluded()), (None, None));
        assert!(matches!(elsewhere, MeasuredRank::Elsewhere { rank: 0, .. }));
        assert_eq!(among(Some(1), &[0, 1]).excluded().unwrap().to_string(), OTHER);
    }

    #[test]
    fn a_trace_of_one_rank_of_several_has_it() {
        let trace = |rank, world_size| Trace {
            distributed: Some(Distributed {
                rank: Some(rank),
                world_size: Some(world_size),
                ..Distributed::default()
            }),
            ..Trace::default()
        };
        let ranks = ranks_of(&trace(1, 2));
        assert_eq!(ranks, BTreeSet::from([1]));
        assert!(matches!(MeasuredRank::among(Some(0), ranks), MeasuredRank::Elsewhere { rank: 0, .. }));
        assert!(ranks_of(&trace(0, 1)).is_empty(), "a program of one process");
        assert!(ranks_of(&Trace::default()).is_empty());
    }

    #[test]
    fn the_rank_comes_from_the_ranges_of_the_launches() {
        let launch = |process, name: &str| LaunchCounters {
            process: Some(process),
            nvtx: vec![LaunchRange { domain: None, name: name.to_owned(), kind: NvtxKind::StartEnd }],
            ..LaunchCounters::default()
        };
        let measured = "roofgap.counters rank=1 world=8";
        let one = told(1, &[launch(5, measured), launch(5, measured)]);
        assert!(one.contains("those of rank 1"), "{one}");
        let several = told(1, &[launch(5, "x"), launch(6, "x")]);
        assert!(several.contains("from 2 processes"), "{several}");
        let mixed = told(1, &[launch(5, measured), launch(6, "x")]);
        assert!(mixed.contains("from 2 processes"), "{mixed}");
    }
}
