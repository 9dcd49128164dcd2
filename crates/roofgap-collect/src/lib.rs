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
#[cfg(test)]
mod test_support;
pub mod tool;
pub mod watch;

/// Lists the files and folders in a folder by path; none where it cannot be read.
pub fn entries(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
