//! CUPTI, the library the native collector needs: with a CUDA toolkit, with the system, or with a Python package.

use std::path::{Path, PathBuf};

use crate::tool::search::expand;

/// The CUPTI libraries in the usual places below `root` and in the folders of a library path.
pub fn find(root: &Path, library_path: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in library_path {
        found.extend(expand(folder, "libcupti.so*"));
    }
    for pattern in [
        "usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*",
        "usr/local/cuda*/lib64/libcupti.so*",
        "usr/local/cuda*/targets/*/lib/libcupti.so*",
        "usr/lib/*-linux-gnu/libcupti.so*",
        "usr/lib64/libcupti.so*",
        "opt/cuda/extras/CUPTI/lib64/libcupti.so*",
    ] {
        found.extend(expand(root, pattern));
    }
    // The same library by several links counts once.
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| seen.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_library_by_two_names() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/local/cuda-13.0/extras/CUPTI/lib64");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libcupti.so.2025.3.1"), "").unwrap();
        std::os::unix::fs::symlink("libcupti.so.2025.3.1", folder.join("libcupti.so.13")).unwrap();
        assert_eq!(find(root.path(), std::slice::from_ref(&folder)).len(), 1);
        assert_eq!(find(&root.path().join("usr"), &[]), Vec::<PathBuf>::new());
    }
}
