//! Search for a tool: at the path the user set, on the `PATH`, in common install folders, inside Nsight Compute.

use std::path::{Path, PathBuf};

use super::query::ToolError;
use super::version::Version;
use crate::command::{folders_in_variable, is_executable};

/// Location of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolLocation {
    /// Path set by the user.
    Named,
    /// On the `PATH`.
    Path,
    /// In a common install folder.
    Installed,
    /// Inside Nsight Compute, which includes an nsys.
    InsideNsightCompute,
}

/// A file that may be the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Path of the file.
    pub path: PathBuf,
    /// Location of the file.
    pub location: ToolLocation,
}

/// A candidate that cannot be used.
#[derive(Debug)]
pub struct RejectedCandidate {
    /// Path of the file.
    pub path: PathBuf,
    /// Reason.
    pub why: ToolError,
}

/// Result of a search for a tool.
#[derive(Debug)]
pub struct SearchResult<T> {
    /// First usable tool, if there is one.
    pub tool: Option<T>,
    /// Candidates that cannot be used.
    pub rejected: Vec<RejectedCandidate>,
}

/// Places to search for a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Path set by the user; if set, nothing else is searched.
    pub named: Option<PathBuf>,
    /// Folders of the `PATH`.
    pub path: Vec<PathBuf>,
    /// Root of the common install folders: `/`, or another folder in tests. `None` skips them.
    pub root: Option<PathBuf>,
}

impl Search {
    /// Creates a search of the `PATH` and the common install folders, unless the user set a path.
    pub fn from_env(named: Option<PathBuf>) -> Self {
        Search { named, path: folders_in_variable("PATH"), root: Some(PathBuf::from("/")) }
    }

    /// Lists candidates for nsys, best first.
    pub fn nsys(&self) -> Vec<Candidate> {
        self.candidates(
            "nsys",
            &[
                "opt/nvidia/nsight-systems/*/bin/nsys",
                "opt/nvidia/nsight-systems/*/target-linux-*/nsys",
                "opt/nvidia/nsight-systems-*/bin/nsys",
                "opt/nvidia/nsight-systems-cli/*/bin/nsys",
                "usr/local/cuda*/nsight-systems-*/bin/nsys",
                "usr/local/cuda*/bin/nsys",
                "usr/lib/nsight-systems/bin/nsys",
                "usr/lib/*/nsight-systems/target-linux-*/nsys",
            ],
            &[
                "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
                "usr/local/cuda*/nsight-compute-*/host/target-linux-*/nsys",
                "usr/local/NVIDIA-Nsight-Compute*/host/target-linux-*/nsys",
            ],
        )
    }

    /// Lists candidates for ncu, best first.
    pub fn ncu(&self) -> Vec<Candidate> {
        self.candidates(
            "ncu",
            &[
                "opt/nvidia/nsight-compute/*/ncu",
                "usr/local/cuda*/nsight-compute-*/ncu",
                "usr/local/cuda*/bin/ncu",
                "usr/local/NVIDIA-Nsight-Compute*/ncu",
                "usr/lib/nsight-compute/ncu",
            ],
            &[],
        )
    }

    fn candidates(&self, name: &str, installed: &[&str], inside: &[&str]) -> Vec<Candidate> {
        if let Some(path) = &self.named {
            return vec![Candidate { path: path.clone(), location: ToolLocation::Named }];
        }
        let mut found: Vec<Candidate> = Vec::new();
        let mut add = |path: PathBuf, location| {
            // A file and a link to it are one candidate.
            let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
            if is_executable(&path) && !found.iter().any(|known| real(&known.path) == real(&path)) {
                found.push(Candidate { path, location });
            }
        };
        for folder in &self.path {
            add(folder.join(name), ToolLocation::Path);
        }
        if let Some(root) = &self.root {
            for (patterns, location) in
                [(installed, ToolLocation::Installed), (inside, ToolLocation::InsideNsightCompute)]
            {
                for pattern in patterns {
                    newest_first(expand(root, pattern)).into_iter().for_each(|path| add(path, location));
                }
            }
        }
        found
    }
}

fn newest_first(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort_by_key(|path| std::cmp::Reverse(Version::find(&path.to_string_lossy())));
    paths
}

/// Expands a pattern below `root`. Each path component may contain one `*`.
pub fn expand(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![root.to_path_buf()];
    for part in pattern.split('/') {
        paths = paths.iter().flat_map(|path| expand_component(path, part)).collect();
    }
    paths
}

fn expand_component(folder: &Path, part: &str) -> Vec<PathBuf> {
    let Some((before, after)) = part.split_once('*') else {
        let next = folder.join(part);
        return if next.exists() { vec![next] } else { Vec::new() };
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut matching: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
        })
        .map(|entry| entry.path())
        .collect();
    matching.sort();
    matching
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn put(root: &Path, file: &str) -> PathBuf {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_path_first_then_the_newest_then_the_one_inside_nsight_compute() {
        let root = tempfile::tempdir().unwrap();
        let on_path = put(root.path(), "home/bin/nsys");
        let old = put(root.path(), "opt/nvidia/nsight-systems/2022.4.2/bin/nsys");
        let new = put(root.path(), "opt/nvidia/nsight-systems/2025.3.1/bin/nsys");
        let inside = put(root.path(), "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys");
        let search = Search {
            named: None,
            path: vec![root.path().join("home/bin")],
            root: Some(root.path().to_path_buf()),
        };
        let found: Vec<_> = search.nsys().into_iter().map(|found| (found.path, found.location)).collect();
        assert_eq!(
            found,
            [
                (on_path, ToolLocation::Path),
                (new, ToolLocation::Installed),
                (old, ToolLocation::Installed),
                (inside, ToolLocation::InsideNsightCompute)
            ]
        );
        assert_eq!(search.ncu(), []);
    }

    #[test]
    fn a_link_to_the_same_file_counts_once_and_a_file_that_cannot_run_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let real = put(root.path(), "opt/nvidia/nsight-compute/2024.1.1/ncu");
        std::fs::create_dir_all(root.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(&real, root.path().join("bin/ncu")).unwrap();
        let plain = put(root.path(), "usr/local/cuda-12.4/bin/ncu");
        std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
        let search =
            Search { named: None, path: vec![root.path().join("bin")], root: Some(root.path().into()) };
        assert_eq!(
            search.ncu(),
            [Candidate { path: root.path().join("bin/ncu"), location: ToolLocation::Path }]
        );
    }

    #[test]
    fn a_named_file_is_the_only_one() {
        let search =
            Search { named: Some("/x/nsys".into()), path: vec!["/usr/bin".into()], root: Some("/".into()) };
        assert_eq!(search.nsys(), [Candidate { path: "/x/nsys".into(), location: ToolLocation::Named }]);
    }
}
