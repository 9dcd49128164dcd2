//! A rank, reduced to what the other ranks are compared with.

use crate::analyze::Analyzed;
use crate::communication::{RankCollective, RankTransfer, collectives, expert_names, recorded, transfers};
use crate::names::{Family, family, kernel_names};
use crate::ranks;
use crate::result::{NotKnown, RankActivity, RankInfo, Stage, StageUtilisation};
use crate::timeline::IntervalSet;
use roofgap_trace::{NameId, Ns, OpKind, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

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
    fn new(work: f64, by_wall_pct: f64, elapsed_ns: i64) -> Option<Self> {
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
        let mut info = ranks::of_capture(trace, analysis, named)?;
        let recorded = recorded(trace, &analyzed.stages);
        let (collectives, transfers) = (collectives(trace, &recorded), transfers(&recorded));
        let utilisation = |stage: &Stage| {
            let mbu_pct = stage.mbu.as_ref().map(|mbu| mbu.by_wall_pct);
            known_utilisation(&stage.name, stage.mfu.as_ref().map(|mfu| mfu.by_wall_pct), mbu_pct)
        };
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
            stages: analysis.stages.iter().map(StageCost::new).collect(),
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

/// Describes MFU and MBU of a stage; `None` where neither is known.
fn known_utilisation(stage: &str, mfu_pct: Option<f64>, mbu_pct: Option<f64>) -> Option<StageUtilisation> {
    mfu_pct.or(mbu_pct)?;
    Some(StageUtilisation { stage: stage.to_owned(), mfu_pct, mbu_pct })
}

impl StageCost {
    fn new(stage: &Stage) -> Self {
        let mut kernels = FxHashMap::default();
        for kernel in stage.kernels.iter().filter(|kernel| kernel.family != Family::Communication) {
            // A kernel has a row for each device.
            *kernels.entry(kernel.name.clone()).or_default() += kernel.total_ns;
        }
        let spent = |work, by_wall_pct| Spent::new(work, by_wall_pct, stage.elapsed_ns());
        Self {
            name: stage.name.clone(),
            elapsed_ns: stage.elapsed_ns(),
            idle_ns: stage.idle.map(|idle| idle.total_ns()),
            kernels,
            flops: stage.mfu.as_ref().and_then(|mfu| spent(mfu.flops, mfu.by_wall_pct)),
            bytes: stage.mbu.as_ref().and_then(|mbu| spent(mbu.bytes, mbu.by_wall_pct)),
        }
    }
}

/// Number of parts.
const PARTS: i64 = 240;

/// Divides the time of a trace into parts and tells how busy its devices are in each; `None` without GPU operations.
pub fn activity(trace: &Trace) -> Option<RankActivity> {
    let ops = &trace.ops;
    let begin_ns = ops.start.iter().copied().min()?;
    let end = ops.end.iter().copied().max()?;
    let part_ns = ((end - begin_ns) / PARTS + 1).max(1);
    let parts = (end - begin_ns) / part_ns + 1;
    let is = |name: &NameId| family(trace.names.get(*name)) == Family::Communication;
    let communicating: FxHashSet<NameId> = kernel_names(trace).into_iter().filter(is).collect();
    let talks = |op: usize| ops.kind[op] == OpKind::Kernel && communicating.contains(&ops.name[op]);
    let compute = IntervalSet::by_device(trace, |op| !talks(op));
    let all = IntervalSet::by_device(trace, |_| true);
    let devices = all.iter().filter(|set| !set.intervals().is_empty()).count().max(1) as i64;
    let spread = |sets: &[IntervalSet]| -> Vec<Ns> {
        let starts = (0..parts).map(|part| begin_ns + part * part_ns);
        starts.map(|from| sets.iter().map(|set| set.overlap(from, from + part_ns)).sum()).collect()
    };
    let (compute, all) = (spread(&compute), spread(&all));
    let percent = |ns: Ns| (100 * ns / (part_ns * devices)).clamp(0, 100) as u8;
    let exposed = all.iter().zip(&compute).map(|(all, compute)| all - compute);
    Some(RankActivity {
        begin_ns,
        part_ns,
        exposed_pct: exposed.map(percent).collect(),
        compute_pct: compute.iter().copied().map(percent).collect(),
    })
}

/// Computes MFU and MBU of each stage: the work of all ranks, divided by what their devices can do in the time of the slowest.
///
/// # Errors
/// Fails with the reason where the share of a rank is known and that of another is not given.
pub fn utilisation_of_job(
    records: &[RankRecord],
    world_size: Option<u32>,
) -> Result<Vec<StageUtilisation>, NotKnown> {
    let Some(first) = records.first() else {
        return Ok(Vec::new());
    };
    let known = |record: &RankRecord| !record.info.utilisation.is_empty();
    if !records.iter().any(known) {
        return Ok(Vec::new());
    }
    if world_size.is_none_or(|size| size as usize != records.len()) {
        return Err("MFU and MBU of the job need every rank of it".into());
    }
    if let Some(without) = records.iter().find(|record| !known(record)) {
        let rank = without.rank();
        return Err(
            format!("MFU and MBU of the job are not known, because those of rank {rank} are not").into()
        );
    }
    let rows = first.stages.iter().filter_map(|stage| {
        let mfu_pct = together(records, &stage.name, |stage| stage.flops);
        known_utilisation(&stage.name, mfu_pct, together(records, &stage.name, |stage| stage.bytes))
    });
    Ok(rows.collect())
}

/// Returns the utilisation of a stage, %; `None` unless it is known on every rank.
fn together(records: &[RankRecord], name: &str, spent: fn(&StageCost) -> Option<Spent>) -> Option<f64> {
    let (mut work, mut peak_per_s, mut seconds) = (0.0, 0.0, 0.0_f64);
    for record in records {
        let stage = record.stages.iter().find(|stage| stage.name == name)?;
        let stage_spent = spent(stage)?;
        work += stage_spent.work;
        peak_per_s += stage_spent.peak_per_s;
        seconds = seconds.max(stage_spent.seconds);
    }
    Some(100.0 * work / (peak_per_s * seconds))
}
