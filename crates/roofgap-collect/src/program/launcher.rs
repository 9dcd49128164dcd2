//! Launchers of distributed programs, recognised from a command.

use std::ffi::OsString;
use std::path::Path;

/// Commands that start a process for each rank.
const COMMANDS: &[&str] = &["torchrun", "mpirun", "mpiexec", "orterun", "srun", "accelerate", "deepspeed"];

/// Python modules that do, and their names.
const MODULES: &[(&str, &str)] = &[
    ("torch.distributed.run", "torchrun"),
    ("torch.distributed.launch", "torch.distributed.launch"),
    ("accelerate.commands.launch", "accelerate"),
];

/// Returns the launcher that a command starts, such as `torchrun --nproc-per-node=8 ...` or `python3 -m torch.distributed.run ...`.
pub fn launcher(words: &[OsString]) -> Option<&'static str> {
    let program = words.first().and_then(|word| Path::new(word).file_name());
    let command = COMMANDS.iter().find(|known| program.is_some_and(|name| name == **known));
    let module = words.iter().skip_while(|word| *word != "-m").nth(1);
    let by_module = || {
        let known = MODULES.iter().find(|(known, _)| module.is_some_and(|name| name == *known));
        known.map(|(_, name)| *name)
    };
    command.copied().or_else(by_module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_command_and_module() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            launcher(&words)
        };
        assert_eq!(of("/opt/venv/bin/torchrun --nproc-per-node=2 train.py"), Some("torchrun"));
        assert_eq!(of("python3 -m torch.distributed.run train.py"), Some("torchrun"));
        assert_eq!(of("mpirun -n 2 python3 train.py"), Some("mpirun"));
        assert_eq!(of("srun --ntasks=8 python3 train.py"), Some("srun"));
        assert_eq!(of("python3 torchrun.py"), None);
        assert_eq!(of("echo torchrun"), None);
        assert_eq!(launcher(&[]), None);
    }
}
