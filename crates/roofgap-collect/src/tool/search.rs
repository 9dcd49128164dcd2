//! Where a tool may be: named by the user, on the `PATH`, in the usual install folders, inside Nsight Compute.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::version::Version;
use crate::command::is_executable;

/// Where a tool was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The user named it.
    Named,
    /// On the `PATH`.
    Path,
    /// In a usual install folder.
    Installed,
    /// Inside an installation of Nsight Compute, which carries an nsys of its own.
    InsideNsightCompute,
}

/// A file that may be the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The file.
    pub path: PathBuf,
    /// How it was come by.
    pub place: Place,
}

/// A file that looked like the tool and is not usable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<T> {
    /// The tool, if there is one that works.
    pub tool: Option<T>,
    /// What was passed over.
    pub rejected: Vec<Rejected>,
}

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// A file named by the user: then nothing else is looked at.
    pub named: Option<PathBuf>,
    /// The folders of the `PATH`.
    pub path: Vec<PathBuf>,
    /// What stands before the usual install folders: `/`, or another tree in a test. `None` leaves them out.
    pub root: Option<PathBuf>,
}

impl Search {
    /// The `PATH` of this process and the usual folders, unless the user named a file.
    pub fn here(named: Option<PathBuf>) -> Self {
        let path = std::env::var_os("PATH")
            .map(|value| std::env::split_paths(&value).collect())
            .unwrap_or_default();
        Search {
            named,
            path,
            root: Some(PathBuf::from("/")),
        }
    }

    /// Files that may be nsys, the likeliest first.
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

    /// Files that may be ncu, the likeliest first.
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
            return vec![Candidate {
                path: path.clone(),
                place: Place::Named,
            }];
        }
        let mut found: Vec<Candidate> = Vec::new();
        let mut add = |path: PathBuf, place| {
            // The same file by two ways (a link on the PATH) is one candidate.
            let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
            if is_executable(&path) && !found.iter().any(|known| real(&known.path) == real(&path)) {
                found.push(Candidate { path, place });
            }
        };
        for folder in &self.path {
            add(folder.join(name), Place::Path);
        }
        if let Some(root) = &self.root {
            for (patterns, place) in [
                (installed, Place::Installed),
                (inside, Place::InsideNsightCompute),
            ] {
                for pattern in patterns {
                    newest_first(expand(root, pattern))
                        .into_iter()
                        .for_each(|path| add(path, place));
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

/// The paths below `root` that fit a pattern with `*` inside single names.
pub(crate) fn expand(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![root.to_path_buf()];
    for part in pattern.split('/') {
        paths = paths.iter().flat_map(|path| step(path, part)).collect();
    }
    paths
}

fn step(folder: &Path, part: &str) -> Vec<PathBuf> {
    let Some((before, after)) = part.split_once('*') else {
        let next = folder.join(part);
        return if next.exists() { vec![next] } else { Vec::new() };
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut fitting: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
        })
        .map(|entry| entry.path())
        .collect();
    fitting.sort();
    fitting
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
        let inside = put(
            root.path(),
            "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys",
        );
        let search = Search {
            named: None,
            path: vec![root.path().join("home/bin")],
            root: Some(root.path().to_path_buf()),
        };
        let found: Vec<_> = search
            .nsys()
            .into_iter()
            .map(|found| (found.path, found.place))
            .collect();
        assert_eq!(
            found,
            [
                (on_path, Place::Path),
                (new, Place::Installed),
                (old, Place::Installed),
                (inside, Place::InsideNsightCompute)
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
        let search = Search {
            named: None,
            path: vec![root.path().join("bin")],
            root: Some(root.path().into()),
        };
        assert_eq!(
            search.ncu(),
            [Candidate {
                path: root.path().join("bin/ncu"),
                place: Place::Path
            }]
        );
    }

    #[test]
    fn a_named_file_is_the_only_one() {
        let search = Search {
            named: Some("/x/nsys".into()),
            path: vec!["/usr/bin".into()],
            root: Some("/".into()),
        };
        assert_eq!(
            search.nsys(),
            [Candidate {
                path: "/x/nsys".into(),
                place: Place::Named
            }]
        );
    }
}
