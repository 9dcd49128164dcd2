//! The rank of a process in the variables that its launcher set.

/// Variables of launchers (torchrun, Open MPI, MPICH, Slurm) for the rank and the number of ranks. `SLURM_NTASKS` also exists in a
/// batch script that starts no ranks; `SLURM_STEP_NUM_TASKS` only where `srun` started the process.
const VARIABLES: [(&str, &str); 4] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// Returns the rank and the number of ranks: those of the first launcher that tells a job of several.
pub fn rank(value: impl Fn(&str) -> Option<u32>) -> Option<(u32, u32)> {
    let both = |(rank, size): &(&str, &str)| value(rank).zip(value(size));
    let told = || VARIABLES.iter().filter_map(both).filter(|(rank, size)| rank < size);
    told().find(|(_, size)| *size > 1).or_else(|| told().next())
}

#[cfg(test)]
mod tests {
    use super::rank;

    #[test]
    fn the_innermost_launcher_of_several_ranks_counts() {
        let of = |variables: &[(&str, u32)]| {
            rank(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| *value)
            })
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
