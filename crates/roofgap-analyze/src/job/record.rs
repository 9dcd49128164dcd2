//! A rank, reduced to what the other ranks are compared with.

use crate::analyze::Analyzed;
use crate::communication::{RankCollective, collectives};
use crate::names::is_communication;
use crate::ranks;
use crate::result::{RankInfo, Stage};
use roofgap_trace::{NameId, Trace};
use rustc_hash::FxHashMap;

/// One rank of a job without its trace.
#[derive(Debug)]
pub struct RankRecord {
    pub(super) info: RankInfo,
    pub(super) collectives: Vec<RankCollective>,
    /// Labels of the process groups of the collectives.
    pub(super) groups: FxHashMap<NameId, String>,
    /// Ranks of the process groups by label, where known.
    pub(super) members: FxHashMap<String, Vec<u32>>,
    pub(super) stages: Vec<StageCost>,
}

/// Times of a stage on one rank.
#[derive(Debug)]
pub(super) struct StageCost {
    pub(super) name: String,
    pub(super) elapsed_ns: i64,
    pub(super) idle_ns: Option<i64>,
    /// Total time of each kernel but communication, ns.
    pub(super) kernels: FxHashMap<String, i64>,
}

impl RankRecord {
    /// Reduces an analysed trace. The rank is that of the trace; without one, `named`, which the file name tells. `None` without either.
    pub fn of(trace: &Trace, analyzed: &Analyzed, named: Option<u32>) -> Option<Self> {
        let analysis = &analyzed.analysis;
        let mut info = match analysis.ranks.first() {
            Some(known) => known.clone(),
            None => RankInfo {
                rank: named?,
                world_size: trace.distributed.as_ref().and_then(|job| job.world_size),
                devices: ranks::devices(trace),
                told_by: "file_name".to_owned(),
                sources: trace.sources.iter().map(|source| source.path.clone()).collect(),
                ..RankInfo::default()
            },
        };
        ranks::add_times(&mut info, analysis);
        let collectives = collectives(trace, &analyzed.stages);
        let label = |group: NameId| (group, trace.names.get(group).to_owned());
        let groups = trace.distributed.iter().flat_map(|job| &job.groups);
        Some(Self {
            info,
            groups: collectives
                .iter()
                .filter_map(|row| row.group)
                .map(label)
                .collect(),
            members: groups
                .filter(|group| !group.ranks.is_empty())
                .map(|group| (group.label(), group.ranks.clone()))
                .collect(),
            stages: analysis.stages.iter().map(StageCost::of).collect(),
            collectives,
        })
    }

    /// Returns the rank.
    pub fn rank(&self) -> u32 {
        self.info.rank
    }

    /// Returns the files of the rank.
    pub fn sources(&self) -> &[String] {
        &self.info.sources
    }

    /// Returns the number of ranks of the job, where the capture tells it.
    pub fn world_size(&self) -> Option<u32> {
        self.info.world_size
    }
}

impl StageCost {
    fn of(stage: &Stage) -> Self {
        let mut kernels = FxHashMap::default();
        for kernel in stage
            .kernels
            .iter()
            .filter(|kernel| !is_communication(&kernel.name))
        {
            // A kernel has a row for each device.
            *kernels.entry(kernel.name.clone()).or_default() += kernel.total_ns;
        }
        Self {
            name: stage.name.clone(),
            elapsed_ns: stage.elapsed_ns(),
            idle_ns: stage.idle.map(|idle| idle.total_ns()),
            kernels,
        }
    }
}
