//! A rank, reduced to what the other ranks are compared with.

use super::activity::activity;
use crate::analyze::Analyzed;
use crate::communication::{RankCollective, RankTransfer, collectives, expert_names, transfers};
use crate::names::Family;
use crate::ranks;
use crate::result::{RankInfo, Stage, StageUtilisation};
use roofgap_trace::{NameId, Trace};
use rustc_hash::FxHashMap;

/// One rank of a job without its trace.
#[derive(Debug)]
pub struct RankRecord {
    pub(crate) info: RankInfo,
    pub(crate) collectives: Vec<RankCollective>,
    pub(crate) transfers: Vec<RankTransfer>,
    /// Labels of the process groups of collectives and transfers.
    pub groups: FxHashMap<NameId, String>,
    /// Ranks of the process groups by label, where known.
    pub members: FxHashMap<String, Vec<u32>>,
    pub(crate) stages: Vec<StageCost>,
    /// Kernels of experts were recorded.
    pub has_experts: bool,
}

/// Times of a stage on one rank.
#[derive(Debug)]
pub struct StageCost {
    pub name: String,
    pub elapsed_ns: i64,
    pub idle_ns: Option<i64>,
    /// Total time of each kernel but communication, ns.
    pub kernels: FxHashMap<String, i64>,
    pub flops: Option<Spent>,
    pub bytes: Option<Spent>,
}

/// Work of a stage, and what the devices of the rank can do.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    /// FLOPs or bytes.
    pub work: f64,
    /// Peak of the devices of the rank, per second.
    pub peak_per_s: f64,
    /// Time, s.
    pub seconds: f64,
}

impl Spent {
    /// Takes the peak of all devices from the utilisation over the time.
    fn of(work: f64, by_wall_pct: f64, elapsed_ns: i64) -> Option<Self> {
        let seconds = elapsed_ns as f64 / 1e9;
        (work > 0.0 && by_wall_pct > 0.0 && seconds > 0.0).then(|| Self {
            work,
            peak_per_s: 100.0 * work / (by_wall_pct * seconds),
            seconds,
        })
    }
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
                host: trace.host.clone(),
                devices: ranks::devices(trace),
                told_by: "file_name".to_owned(),
                sources: trace.sources.iter().map(|source| source.path.clone()).collect(),
                ..RankInfo::default()
            },
        };
        ranks::add_times(&mut info, analysis);
        let collectives = collectives(trace, &analyzed.stages);
        let transfers = transfers(trace, &analyzed.stages);
        info.utilisation = analysis.stages.iter().filter_map(utilisation).collect();
        info.activity = activity(trace);
        let label = |group: NameId| (group, trace.names.get(group).to_owned());
        let groups = trace.distributed.iter().flat_map(|job| &job.groups);
        Some(Self {
            info,
            groups: collectives
                .iter()
                .filter_map(|row| row.group)
                .chain(transfers.iter().map(|row| row.group))
                .map(label)
                .collect(),
            members: groups
                .filter(|group| !group.ranks.is_empty())
                .map(|group| (group.label(), group.ranks.clone()))
                .collect(),
            stages: analysis.stages.iter().map(StageCost::of).collect(),
            has_experts: expert_names(trace).is_some(),
            collectives,
            transfers,
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

/// Returns MFU and MBU of a stage; `None` where neither is known.
fn utilisation(stage: &Stage) -> Option<StageUtilisation> {
    let row = StageUtilisation {
        stage: stage.name.clone(),
        mfu_pct: stage.mfu.as_ref().map(|mfu| mfu.by_wall_pct),
        mbu_pct: stage.mbu.as_ref().map(|mbu| mbu.by_wall_pct),
    };
    (row.mfu_pct.is_some() || row.mbu_pct.is_some()).then_some(row)
}

impl StageCost {
    fn of(stage: &Stage) -> Self {
        let mut kernels = FxHashMap::default();
        for kernel in stage.kernels.iter().filter(|kernel| kernel.family != Family::Communication) {
            // A kernel has a row for each device.
            *kernels.entry(kernel.name.clone()).or_default() += kernel.total_ns;
        }
        Self {
            name: stage.name.clone(),
            elapsed_ns: stage.elapsed_ns(),
            idle_ns: stage.idle.map(|idle| idle.total_ns()),
            kernels,
            flops: stage
                .mfu
                .as_ref()
                .and_then(|mfu| Spent::of(mfu.flops, mfu.by_wall_pct, stage.elapsed_ns())),
            bytes: stage
                .mbu
                .as_ref()
                .and_then(|mbu| Spent::of(mbu.bytes, mbu.by_wall_pct, stage.elapsed_ns())),
        }
    }
}
