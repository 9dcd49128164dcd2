//! Ranks of a distributed job: the rank of a capture, and its share of the model.

use crate::result::{Analysis, CommunicationRow, Idle, RankInfo};
use roofgap_trace::account::Account;
use roofgap_trace::{Distributed, Trace};
use std::collections::BTreeMap;

/// Lowercase descriptions of groups whose ranks split every layer (PyTorch device meshes, Megatron).
const TENSOR: [&str; 2] = ["mesh_tp", "tensor_model_parallel_group"];

/// Lowercase descriptions of groups whose ranks hold the same weights and read different tokens.
const DATA: [&str; 3] = ["mesh_dp", "mesh_ddp", "data_parallel_group"];

/// The part of the model that the devices of a capture work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelShare {
    /// All of it.
    Whole,
    /// An even share of every layer.
    TensorParallel {
        /// Number of ranks that share it.
        ranks: u32,
    },
    /// Not known, and why.
    Unknown(String),
}

/// Describes the rank of a capture: that of the trace; without one, `named`, which the file name tells. `None` without either.
pub fn of_capture(trace: &Trace, analysis: &Analysis, named: Option<u32>) -> Option<RankInfo> {
    let job = trace.distributed.as_ref();
    let stated = job.and_then(|job| job.rank);
    let sum = |of: fn(&CommunicationRow) -> i64| analysis.communication.iter().map(of).sum();
    let idle = analysis.stages.iter().filter_map(|stage| stage.idle);
    Some(RankInfo {
        rank: stated.or(named)?,
        world_size: job.and_then(|job| job.world_size),
        host: trace.host.clone(),
        devices: trace.used_devices().iter().map(|device| device.number).collect(),
        told_by: if stated.is_some() { "trace" } else { "file_name" }.to_owned(),
        sources: trace.sources.iter().map(|source| source.path.clone()).collect(),
        kernel_count: analysis.totals.kernel_count,
        kernel_ns: analysis.totals.kernel_ns,
        busy_ns: analysis.totals.busy_ns,
        communication_ns: sum(|row| row.total_ns),
        untimed_calls: analysis.communication.iter().map(|row| row.untimed_calls).sum(),
        exposed_ns: sum(|row| row.exposed_ns),
        idle: idle.reduce(|a, b| Idle {
            launch_ns: a.launch_ns + b.launch_ns,
            sync_ns: a.sync_ns + b.sync_ns,
            copy_ns: a.copy_ns + b.copy_ns,
            other_ns: a.other_ns + b.other_ns,
        }),
        ..RankInfo::default()
    })
}

/// Tells the share of the model: as the user states it, else by the account of the engine, else by the process groups of the capture.
pub fn model_share(trace: &Trace, program: Option<&Account>, stated: Option<u32>) -> ModelShare {
    if let Some(ranks) = stated {
        return ModelShare::TensorParallel { ranks };
    }
    let several =
        trace.distributed.as_ref().and_then(|job| Some((job, job.world_size.filter(|ranks| *ranks > 1)?)));
    let Some((job, ranks)) = several else {
        return ModelShare::Whole;
    };
    let engine = program.and_then(|account| account.engine.as_ref()?.parallelism.as_ref());
    if let Some(share) = engine.and_then(|parts| share_of_engine(parts, ranks)) {
        return share;
    }
    let (tensor, data) = (size_of(job, &TENSOR).unwrap_or(1), size_of(job, &DATA).unwrap_or(1));
    if tensor.checked_mul(data) == Some(ranks) {
        return match tensor {
            1 => ModelShare::Whole,
            ranks => ModelShare::TensorParallel { ranks },
        };
    }
    let rank = job.rank.map_or_else(|| "one rank".to_owned(), |rank| format!("rank {rank}"));
    ModelShare::Unknown(format!(
        "the capture holds {rank} of a job with {ranks} ranks, and its process groups do not tell which share of the model a rank has; \
         --set model.tp=N says how many ranks share each layer"
    ))
}

/// Tells the share of the model by the parts that the engine names; `None` where they are not the ranks of the job.
fn share_of_engine(parts: &BTreeMap<String, u64>, ranks: u32) -> Option<ModelShare> {
    let part = |kind: &str| parts.get(kind).copied().unwrap_or(1).max(1);
    let (tensor, pipeline, data, expert) = (part("tensor"), part("pipeline"), part("data"), part("expert"));
    let all = tensor.checked_mul(pipeline)?.checked_mul(data)?;
    // A job of one replica has no data-parallel ranks.
    if u64::from(ranks) != all && u64::from(ranks) != tensor * pipeline {
        return None;
    }
    Some(if pipeline > 1 {
        ModelShare::Unknown(format!(
            "the engine divides the layers into {pipeline} pipeline stages, and nothing tells which layers this rank has"
        ))
    } else if expert > 1 {
        ModelShare::Unknown(format!(
            "the engine divides the experts among {expert} ranks, and nothing tells how many tokens go to those of this rank; \
             --set model.tp=N --set model.ep={expert} takes the tokens to be even"
        ))
    } else if tensor > 1 {
        ModelShare::TensorParallel { ranks: u32::try_from(tensor).ok()? }
    } else {
        ModelShare::Whole
    })
}

/// Returns the size of the largest group with one of the descriptions.
fn size_of(job: &Distributed, descriptions: &[&str]) -> Option<u32> {
    let is = |text: &str| descriptions.contains(&text.to_lowercase().as_str());
    let groups = job.groups.iter().filter(|group| is(&group.description));
    groups.map(|group| group.size).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_trace::ProcessGroup;

    fn share(world_size: Option<u32>, groups: &[(&str, u32)]) -> ModelShare {
        let group = |(description, size): &(&str, u32)| ProcessGroup {
            name: "1".into(),
            description: (*description).to_owned(),
            size: *size,
            ranks: Vec::new(),
        };
        let trace = Trace {
            distributed: Some(Distributed {
                rank: Some(3),
                world_size,
                groups: groups.iter().map(group).collect(),
            }),
            ..Trace::default()
        };
        model_share(&trace, None, None)
    }

    #[test]
    fn what_the_user_states_goes_first() {
        assert_eq!(model_share(&Trace::default(), None, Some(4)), ModelShare::TensorParallel { ranks: 4 });
        let whole = ModelShare::TensorParallel { ranks: 1 };
        let job = Distributed { rank: Some(0), world_size: Some(8), ..Distributed::default() };
        let trace = Trace { distributed: Some(job), ..Trace::default() };
        assert_eq!(model_share(&trace, None, Some(1)), whole);
        assert!(
            matches!(model_share(&trace, None, None), ModelShare::Unknown(why) if why.contains("model.tp=N"))
        );
    }

    #[test]
    fn groups_tell_the_share() {
        assert_eq!(model_share(&Trace::default(), None, None), ModelShare::Whole);
        assert_eq!(share(Some(1), &[("default_pg", 1)]), ModelShare::Whole);
        assert_eq!(share(None, &[]), ModelShare::Whole);
        let eight = ModelShare::TensorParallel { ranks: 8 };
        assert_eq!(share(Some(8), &[("default_pg", 8), ("mesh_tp", 8)]), eight);
        assert_eq!(share(Some(16), &[("TENSOR_MODEL_PARALLEL_GROUP", 8), ("DATA_PARALLEL_GROUP", 2)]), eight);
        assert_eq!(share(Some(4), &[("mesh_dp", 4)]), ModelShare::Whole);
    }

    #[test]
    fn a_share_that_nothing_tells_is_unknown() {
        for groups in [
            &[("default_pg", 8), ("undefined", 8)][..],
            &[("mesh_tp", 4)],
            &[("PIPELINE_MODEL_PARALLEL_GROUP", 8)],
        ] {
            let ModelShare::Unknown(why) = share(Some(8), groups) else {
                panic!("{groups:?}");
            };
            assert!(why.contains("rank 3 of a job with 8 ranks"), "{why}");
        }
    }

    #[test]
    fn the_engine_tells_the_share() {
        let share = |parts: &[(&str, u64)], ranks| {
            let parts = parts.iter().map(|(kind, size)| ((*kind).to_owned(), *size));
            share_of_engine(&parts.collect(), ranks)
        };
        let four = Some(ModelShare::TensorParallel { ranks: 4 });
        assert_eq!(share(&[("tensor", 4), ("pipeline", 1), ("data", 1)], 4), four);
        assert_eq!(share(&[("tensor", 4), ("data", 2)], 8), four);
        assert_eq!(share(&[("tensor", 4), ("data", 2)], 4), four, "one replica");
        assert_eq!(share(&[("data", 2)], 2), Some(ModelShare::Whole));
        assert_eq!(share(&[("tensor", 4)], 6), None, "another job");
        for kind in ["pipeline", "expert"] {
            let Some(ModelShare::Unknown(why)) =
                share(&[("tensor", 2), (kind, 2)], if kind == "expert" { 2 } else { 4 })
            else {
                panic!("{kind}");
            };
            assert!(why.contains(kind), "{why}");
        }
    }
}
