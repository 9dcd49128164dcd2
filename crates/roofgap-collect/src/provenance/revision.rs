//! Git revision of a folder.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::child::probe;
use crate::command::CommandLine;

/// Git revision of a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Revision {
    /// Commit hash.
    pub commit: String,
    /// Branch, if one is checked out.
    pub branch: Option<String>,
    /// Tracked files differ from the commit.
    pub modified: bool,
}

impl Revision {
    /// Reads the revision of a folder; `None` outside git, or without git.
    pub fn of(folder: &Path) -> Option<Revision> {
        let git = |args: &[&str]| {
            let line = CommandLine::new("git")
                .arg("-C")
                .arg(folder)
                // A query must not write or wait for a lock.
                .arg("--no-optional-locks")
                .args(args.iter().copied())
                .env("GIT_TERMINAL_PROMPT", "0");
            let output = probe(&line, Duration::from_secs(10)).ok()?;
            output.success.then(|| output.stdout.trim().to_owned())
        };
        let commit = git(&["rev-parse", "HEAD"])?;
        let branch = git(&["rev-parse", "--abbrev-ref", "HEAD"]).filter(|name| name != "HEAD");
        let status = git(&["status", "--porcelain", "--untracked-files=no"]);
        Some(Revision { commit, branch, modified: status.is_some_and(|text| !text.is_empty()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn clean_modified_and_not_under_git() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Revision::of(folder.path()), None);
        let git = |args: &[&str]| {
            let done = Command::new("git")
                .arg("-C")
                .arg(folder.path())
                .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"])
                .args(args)
                .output();
            done.is_ok_and(|output| output.status.success())
        };
        if !crate::test_support::require("git", git(&["init", "-q", "-b", "main"])) {
            return;
        }
        std::fs::write(folder.path().join("a"), "1").unwrap();
        assert!(git(&["add", "a"]) && git(&["commit", "-q", "-m", "a", "--no-verify"]));
        let clean = Revision::of(folder.path()).unwrap();
        assert_eq!((clean.commit.len(), clean.branch.as_deref(), clean.modified), (40, Some("main"), false));
        std::fs::write(folder.path().join("a"), "2").unwrap();
        assert!(Revision::of(folder.path()).unwrap().modified);
    }
}
