//! Place of the process in a distributed job: variables of its launcher, and its host.

use std::ffi::OsString;

use roofgap_wire::{FrameBuilder, Host, LauncherVariable, Record, Text};

/// Variables of torchrun, Open MPI, MPICH and Slurm. No other variable is recorded.
const VARIABLES: [&str; 11] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
];

/// Rank variables and host name, as they were when the recording began.
pub struct Launcher {
    variables: Vec<(&'static str, u32)>,
    host: Vec<u8>,
}

impl Launcher {
    /// Reads the variables that hold a number, and the host name.
    pub fn read(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let number = |name: &'static str| Some((name, get(name)?.to_str()?.parse().ok()?));
        let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            variables: VARIABLES.into_iter().filter_map(number).collect(),
            host: host.trim_ascii_end().to_vec(),
        }
    }

    /// Adds the records to a frame.
    pub fn put(&self, frame: &mut FrameBuilder) {
        for (name, value) in &self.variables {
            frame.put(&Record::LauncherVariable(LauncherVariable {
                value: *value,
                name: Text(name.as_bytes()),
            }));
        }
        if !self.host.is_empty() {
            frame.put(&Record::Host(Host { name: Text(&self.host) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_known_variables_are_kept() {
        let get = |name: &str| {
            let value = match name {
                "RANK" => "3",
                "WORLD_SIZE" => "8",
                "SLURM_PROCID" => "three",
                "PMI_RANK" => "-1",
                "OMPI_COMM_WORLD_RANK" => return None,
                _ => "",
            };
            Some(OsString::from(value))
        };
        let launcher = Launcher::read(get);
        assert_eq!(launcher.variables, [("RANK", 3), ("WORLD_SIZE", 8)]);
    }
}
