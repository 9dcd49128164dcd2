//! MFU and MBU of all ranks together.

use super::record::{RankRecord, Spent, StageCost};
use crate::result::StageUtilisation;
use std::fmt;

/// Why MFU and MBU of a job are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Not every rank of the job was given.
    RankMissing,
    /// Those of a rank are not known.
    OfRank(u32),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RankMissing => f.write_str("MFU and MBU of the job need every rank of it"),
            Self::OfRank(rank) => {
                write!(f, "MFU and MBU of the job are not known, because those of rank {rank} are not")
            }
        }
    }
}

/// Computes MFU and MBU of each stage: the work of all ranks, divided by what their devices can do in the time of the slowest.
///
/// # Errors
/// Fails with the reason where the share of a rank is known and that of another is not given.
pub fn of_job(records: &[RankRecord], world_size: Option<u32>) -> Result<Vec<StageUtilisation>, Unknown> {
    let Some(first) = records.first() else {
        return Ok(Vec::new());
    };
    let known = |record: &RankRecord| !record.info.utilisation.is_empty();
    if !records.iter().any(known) {
        return Ok(Vec::new());
    }
    if world_size.is_none_or(|size| size as usize != records.len()) {
        return Err(Unknown::RankMissing);
    }
    if let Some(without) = records.iter().find(|record| !known(record)) {
        return Err(Unknown::OfRank(without.rank()));
    }
    let rows = first.stages.iter().filter_map(|stage| {
        let row = StageUtilisation {
            stage: stage.name.clone(),
            mfu_pct: together(records, &stage.name, |stage| stage.flops),
            mbu_pct: together(records, &stage.name, |stage| stage.bytes),
        };
        (row.mfu_pct.is_some() || row.mbu_pct.is_some()).then_some(row)
    });
    Ok(rows.collect())
}

/// Returns the utilisation of a stage, %; `None` unless it is known on every rank.
fn together(records: &[RankRecord], name: &str, spent: fn(&StageCost) -> Option<Spent>) -> Option<f64> {
    let (mut work, mut peak_per_s, mut seconds) = (0.0, 0.0, 0.0_f64);
    for record in records {
        let stage = record.stages.iter().find(|stage| stage.name == name)?;
        let own = spent(stage)?;
        work += own.work;
        peak_per_s += own.peak_per_s;
        seconds = seconds.max(own.seconds);
    }
    Some(100.0 * work / (peak_per_s * seconds))
}
