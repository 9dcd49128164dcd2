//! The reports in `docs/examples` are those that this version writes.

use crate::support::{ROOFGAP, listing, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lists the files of the examples, relative to their folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let inside = |path: PathBuf| path.strip_prefix(folder).unwrap().to_path_buf();
    let files = listing(folder).into_iter().map(|(path, ..)| path);
    files.filter(|path| path.is_file()).map(inside).collect()
}

#[test]
fn the_examples_are_current() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("bash")
        .arg("scripts/examples.sh")
        .arg(folder.path())
        .env("ROOFGAP", ROOFGAP)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let kept = root().join("docs/examples");
    let mut expected = files(&kept);
    // A session on a GPU machine is made by `scripts/example-session.sh`, and kept as it was.
    expected.retain(|path| path != Path::new("README.md") && !path.starts_with("deepseek_ocr_session"));
    assert_eq!(files(folder.path()), expected, "run scripts/examples.sh");
    for path in &expected {
        let same =
            std::fs::read(folder.path().join(path)).unwrap() == std::fs::read(kept.join(path)).unwrap();
        assert!(same, "{} is not current; run scripts/examples.sh", path.display());
    }
}
