//! Limits on the time and disk space of a child.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limits of a child; unlimited by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    /// Maximum run time.
    pub time: Option<Duration>,
    /// Disk space limits.
    pub disk: Option<DiskBudget>,
}

/// Disk space limits of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskBudget {
    /// Folder the child writes to.
    pub folder: PathBuf,
    /// Maximum size of that folder, bytes.
    pub max_bytes: Option<u64>,
    /// Minimum free space on its file system, bytes.
    pub min_free_bytes: Option<u64>,
}

impl DiskBudget {
    /// Describes the exceeded limit; `None` within the limits, or when usage is unknown.
    pub(super) fn exceeded(&self) -> Option<String> {
        if let Some(limit) = self.max_bytes {
            let used = folder_bytes(&self.folder);
            if used > limit {
                return Some(format!(
                    "{} holds {used} bytes, over its limit of {limit}",
                    self.folder.display()
                ));
            }
        }
        if let Some(limit) = self.min_free_bytes {
            let free = free_bytes(&self.folder)?;
            if free < limit {
                return Some(format!(
                    "only {free} bytes are free at {}, and {limit} must stay free",
                    self.folder.display()
                ));
            }
        }
        None
    }
}

/// Returns the bytes an unprivileged user may still write on the file system of `path`; `None` if unknown.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let facts = rustix::fs::statvfs(path).ok()?;
    facts.f_bavail.checked_mul(facts.f_frsize)
}

/// Sums the sizes of all files below `folder`. Links are not followed; files that vanish meanwhile count as 0.
fn folder_bytes(folder: &Path) -> u64 {
    let mut total = 0_u64;
    let mut pending = vec![folder.to_path_buf()];
    while let Some(current) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&current) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(facts) = entry.metadata() else { continue };
            if facts.is_dir() {
                pending.push(entry.path());
            } else if facts.is_file() {
                total = total.saturating_add(facts.len());
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_counted_with_what_is_below_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/x"), [0; 100]).unwrap();
        std::fs::write(folder.path().join("y"), [0; 11]).unwrap();
        assert_eq!(folder_bytes(folder.path()), 111);

        let mut budget =
            DiskBudget { folder: folder.path().into(), max_bytes: Some(111), min_free_bytes: None };
        assert_eq!(budget.exceeded(), None);
        budget.max_bytes = Some(110);
        assert!(budget.exceeded().unwrap().contains("holds 111 bytes"));
        budget.max_bytes = None;
        budget.min_free_bytes = Some(u64::MAX);
        assert!(budget.exceeded().unwrap().contains("must stay free"));
    }
}
