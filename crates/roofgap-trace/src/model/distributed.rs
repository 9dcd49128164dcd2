//! Distributed jobs: the rank of a capture, and the collectives that its kernels perform.

use super::NameId;

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
