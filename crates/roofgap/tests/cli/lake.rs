//! `roofgap lake` finds its program, or says how to install it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `roofgap lake` from a folder of its own: the real roofgap-lake may have been built beside the real roofgap.
fn lake(args: &[&str], path: &Path) -> Output {
    let built = Path::new(env!("CARGO_BIN_EXE_roofgap"));
    let alone = tempfile::tempdir_in(built.parent().unwrap()).unwrap();
    let program = alone.path().join("roofgap");
    std::fs::hard_link(built, &program).unwrap();
    Command::new(program).arg("lake").args(args).env("PATH", path).output().unwrap()
}

#[test]
fn lake_without_its_program_says_how_to_install_it() {
    let empty = tempfile::tempdir().unwrap();
    for args in [&[] as &[&str], &["--help"], &["-h"]] {
        let run = lake(args, empty.path());
        assert_eq!(run.status.code(), Some(0), "{args:?}");
        let text = String::from_utf8(run.stdout).unwrap();
        assert!(text.contains("query") && text.contains("cargo install --path lake"), "{text}");
    }
    let run = lake(&["query", "coverage", "--lake", "x"], empty.path());
    assert_eq!(run.status.code(), Some(2));
    assert!(run.stdout.is_empty());
    let text = String::from_utf8(run.stderr).unwrap();
    assert!(text.contains("roofgap-lake") && text.contains("cargo install --path lake"), "{text}");
}

#[test]
fn lake_hands_arguments_streams_and_status_over() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("roofgap-lake");
    std::fs::write(&program, "#!/bin/sh\nprintf '%s|' \"$@\"\necho below >&2\nexit 5\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = lake(&["regress", "--lake", "a b", "-x", "--help"], folder.path());
    assert_eq!(run.status.code(), Some(5));
    assert_eq!(run.stdout, b"regress|--lake|a b|-x|--help|");
    assert_eq!(run.stderr, b"below\n");
}
