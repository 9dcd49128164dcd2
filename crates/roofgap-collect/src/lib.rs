//! Finding the profilers, building their command lines, and running children.
//!
//! This crate produces files and knows nothing of their contents. It builds [`command::CommandLine`] values and runs
//! them as [`child::ChildSpec`]s.

pub mod child;
pub mod command;
pub mod doctor;
pub mod ncu;
pub mod nsys;
pub mod process;
pub mod program;
pub mod provenance;
pub mod tool;
pub mod watch;

/// Lists the files and folders in a folder by path; none where it cannot be read.
pub fn entries(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Support for tests that need a program of this machine.
#[cfg(test)]
mod test_support {
    use std::time::Duration;

    use crate::child::probe;
    use crate::command::CommandLine;

    /// Returns true when `python3` works; see [`require`].
    pub fn has_python() -> bool {
        let answer = probe(&CommandLine::new("python3").arg("--version"), Duration::from_secs(60));
        require("python3", answer.is_ok_and(|output| output.success))
    }

    /// Returns `found`. Prints the reason of a skip; panics instead when `ROOFGAP_TEST_NO_SKIP` is 1.
    #[allow(clippy::print_stderr, clippy::panic)]
    pub fn require(program: &str, found: bool) -> bool {
        if !found {
            let no_skip = std::env::var("ROOFGAP_TEST_NO_SKIP").is_ok_and(|value| value == "1");
            assert!(!no_skip, "{program} is missing, and ROOFGAP_TEST_NO_SKIP forbids skips");
            eprintln!("skipped: {program} is missing");
        }
        found
    }
}
