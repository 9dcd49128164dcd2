//! What a child may use: time, and room on the disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limits of a child; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    /// The longest it may run.
    pub time: Option<Duration>,
    /// The room it may use.
    pub disk: Option<DiskBudget>,
}

/// The room a child may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskBudget {
    /// The folder it writes to.
    pub folder: PathBuf,
    /// The most that folder may hold.
    pub max_bytes: Option<u64>,
    /// What must stay free on its file system.
    pub min_free_bytes: Option<u64>,
}

impl DiskBudget {
    /// What is wrong now, in words; `None` while all is well or cannot be known.
    pub(crate) fn exceeded(&self) -> Option<String> {
        if let Some(limit) = self.max_bytes {
            let used = folder_bytes(&self.folder);
            if used > limit {
                return Some(format!(
                    "{} holds {used} bytes, the budget is {limit}",
                    self.folder.display()
                ));
            }
        }
        if let Some(limit) = self.min_free_bytes {
            let free = free_bytes(&self.folder)?;
            if free < limit {
                return Some(format!(
                    "{free} bytes are free at {}, {limit} must stay free",
                    self.folder.display()
                ));
            }
        }
        None
    }
}

/// The bytes an ordinary user may still write on the file system of `path`; `None` where it cannot be told.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let facts = rustix::fs::statvfs(path).ok()?;
    facts.f_bavail.checked_mul(facts.f_frsize)
}

/// The bytes of all files below `folder`; links are not followed, and what vanishes meanwhile counts as nothing.
pub fn folder_bytes(folder: &Path) -> u64 {
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

        let mut budget = DiskBudget {
            folder: folder.path().into(),
            max_bytes: Some(111),
            min_free_bytes: None,
        };
        assert_eq!(budget.exceeded(), None);
        budget.max_bytes = Some(110);
        assert!(budget.exceeded().unwrap().contains("holds 111 bytes"));
        budget.max_bytes = None;
        budget.min_free_bytes = Some(u64::MAX);
        assert!(budget.exceeded().unwrap().contains("must stay free"));
    }
}
