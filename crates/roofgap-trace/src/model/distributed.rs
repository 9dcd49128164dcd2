//! Distributed jobs: the rank of a capture, and the collectives that its kernels perform.

use super::NameId;
use super::limits::MOST_BYTES;

/// The collective of a communication kernel, as the framework describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collective {
    /// Name that the framework gives it, such as `allreduce`.
    pub name: NameId,
    /// Process group; the empty string where unknown.
    pub group: NameId,
    /// Number of ranks in the group; 0 where unknown.
    pub group_size: u32,
    /// Size of this rank's input, bytes.
    pub input_bytes: Option<u64>,
    /// Size of this rank's output, bytes.
    pub output_bytes: Option<u64>,
    /// Number of the collective within its group, the same on every rank; `None` where unknown.
    pub sequence: Option<u64>,
    /// The other rank of a transfer between two; `None` where there is none or it is unknown.
    pub peer: Option<u32>,
}

impl Collective {
    /// Returns the message size as nccl-tests counts it, the larger of input and output of the rank, bytes.
    pub fn message_bytes(&self) -> Option<u64> {
        self.input_bytes.max(self.output_bytes)
    }

    /// Takes away sizes that cannot be; returns true if there was one.
    pub(crate) fn limit_values(&mut self) -> bool {
        let before = (self.input_bytes, self.output_bytes);
        for bytes in [&mut self.input_bytes, &mut self.output_bytes] {
            *bytes = bytes.filter(|bytes| *bytes <= MOST_BYTES);
        }
        before != (self.input_bytes, self.output_bytes)
    }
}

/// The rank of a distributed job that a capture holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distributed {
    /// Rank; `None` where the capture does not have it.
    pub rank: Option<u32>,
    /// Number of ranks of the job; `None` where the capture does not have it.
    pub world_size: Option<u32>,
    /// Process groups of this rank.
    pub groups: Vec<ProcessGroup>,
}

/// A process group of a distributed job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessGroup {
    /// Name.
    pub name: String,
    /// Purpose in the program's words, such as `mesh_tp`; empty where unknown.
    pub description: String,
    /// Number of ranks.
    pub size: u32,
    /// Ranks; empty where unknown.
    pub ranks: Vec<u32>,
}

impl ProcessGroup {
    /// Returns the text by which collectives name the group.
    pub fn label(&self) -> String {
        group_label(&self.name, &self.description)
    }
}

/// Formats a process group as its name with its purpose.
pub fn group_label(name: &str, description: &str) -> String {
    match (name, description) {
        (name, "" | "undefined") => name.to_owned(),
        ("", description) => description.to_owned(),
        (name, description) => format!("{name} ({description})"),
    }
}

/// Variables of launchers (torchrun, Open MPI, MPICH, Slurm) for the rank and the number of ranks. `SLURM_NTASKS` also exists in a
/// batch script that starts no ranks; `SLURM_STEP_NUM_TASKS` only where `srun` started the process.
const VARIABLES: [(&str, &str); 4] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// Returns the job of a process by the variables of its launcher: the first that names a job of several ranks, else the first.
pub fn launched_job(value: impl Fn(&str) -> Option<u32>) -> Option<Distributed> {
    let both = |(rank, size): &(&str, &str)| value(rank).zip(value(size));
    let named = || VARIABLES.iter().filter_map(both).filter(|(rank, size)| rank < size);
    let (rank, world_size) = named().find(|(_, size)| *size > 1).or_else(|| named().next())?;
    Some(Distributed { rank: Some(rank), world_size: Some(world_size), groups: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::launched_job;

    #[test]
    fn the_innermost_launcher_of_several_ranks_counts() {
        let of = |variables: &[(&str, u32)]| {
            let job = launched_job(|name| {
                let variable = variables.iter().find(|(known, _)| *known == name);
                variable.map(|(_, value)| *value)
            })?;
            job.rank.zip(job.world_size)
        };
        let slurm = [("SLURM_PROCID", 1), ("SLURM_NTASKS", 2), ("SLURM_STEP_NUM_TASKS", 2)];
        assert_eq!(of(&slurm), Some((1, 2)));
        assert_eq!(of(&slurm[..2]), None, "a batch script");
        let torchrun = [("RANK", 9), ("WORLD_SIZE", 16)];
        assert_eq!(of(&[&slurm[..], &torchrun].concat()), Some((9, 16)));
        let alone = [("RANK", 0), ("WORLD_SIZE", 1)];
        assert_eq!(of(&alone), Some((0, 1)));
        assert_eq!(of(&[&alone[..], &slurm].concat()), Some((1, 2)));
        assert_eq!(of(&[("PMI_RANK", 4), ("PMI_SIZE", 4)]), None);
    }
}
