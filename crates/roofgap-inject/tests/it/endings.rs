//! Programs that end, fork, change or close what they have, in every way.

use std::path::Path;
use std::process::Command;

use crate::support::{Capture, RANGES, built, files, has_work, read, run, run_until};
use roofgap_wire::{CutReason, Ending, note_path};

#[test]
fn a_program_that_ends_abruptly_leaves_a_capture_without_an_end() {
    for how in ["_exit", "kill", "term", "crash"] {
        let run = run_until(how, &[], |capture| has_work(capture) && !capture.open.is_empty());
        assert!(!run.status.success());
        let capture = run.capture();
        assert_eq!(capture.kernels.len(), 10, "{how}");
        assert_eq!(capture.ranges, RANGES, "{how}");
        assert_eq!(capture.open, ["@never closed"], "{how}");
        assert_without_end(&capture, how);
    }
}

fn assert_without_end(capture: &Capture, how: &str) {
    let without_end = matches!(capture.ending, Some(Ending::Cut { why: CutReason::NoEnd, .. }));
    assert!(without_end, "{how}: {:?}", capture.ending);
}

#[test]
fn a_program_that_closes_the_descriptor_gets_no_byte_in_its_own_file() {
    for how in ["close", "reuse"] {
        let elsewhere = tempfile::tempdir().unwrap();
        let victim = elsewhere.path().join("victim");
        let run = run_until(how, &[("VICTIM", victim.to_str().unwrap())], has_work);
        assert!(run.status.success(), "{how}: {:?}", run.status);
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("done\n", ""));
        if how == "reuse" {
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious data");
        }
        let files = run.files();
        assert_eq!(files.len(), 2, "{files:?}");
        let capture = read(&files[0]);
        assert!(has_work(&capture), "{how}: {capture:?}");
        assert_without_end(&capture, how);
        assert_eq!(files[1], note_path(&files[0]));
        let note = std::fs::read_to_string(&files[1]).unwrap();
        assert!(note.starts_with("The program closed the descriptor of "), "{note}");
    }
}

#[test]
fn a_daemon_has_a_file_of_its_own_and_keeps_its_files() {
    let elsewhere = tempfile::tempdir().unwrap();
    let victim = elsewhere.path().join("victim");
    let run =
        run_until("daemon", &[("VICTIM", victim.to_str().unwrap())], |capture| !capture.ranges.is_empty());
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious data");
    let captures: Vec<Capture> = run.files().iter().map(|path| read(path)).collect();
    assert_eq!(captures.len(), 2);
    let (daemon, parent): (Vec<_>, Vec<_>) = captures.iter().partition(|capture| has_work(capture));
    assert_eq!(daemon[0].ending, Some(Ending::Complete { how: 1 }));
    assert_eq!(parent[0].ranges, ["@before"]);
    assert_without_end(parent[0], "the parent calls _exit");
}

#[test]
fn another_program_does_not_inherit_the_file() {
    let run = run("exec-check", &[]);
    assert!(run.status.success(), "{:?}", run.status);
    assert_eq!(run.stdout, "none\n");
}

#[test]
fn threads_that_end_during_a_launch_leave_the_others_whole() {
    let built = built();
    for cupti in [&built.cupti, &built.old_cupti] {
        let run = run("end-in-launch", &[("CUPTI_LIBRARY", cupti.to_str().unwrap())]);
        assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
        let capture = run.capture();
        assert_eq!(capture.kernels.len(), 10 + 10 * 8 * 3);
        assert_eq!(capture.open, ["@ending"; 80]);
        assert!(capture.losses.is_empty(), "{:?}", capture.losses);
        assert_eq!(capture.ending, Some(Ending::Complete { how: 1 }));
    }
}

#[test]
fn a_program_that_becomes_another_leaves_two_files() {
    let run = run_until("exec", &[], has_work);
    assert!(run.status.success(), "{}", run.stderr);
    let captures: Vec<Capture> = run.files().iter().map(|path| read(path)).collect();
    assert_eq!(captures.len(), 2);
    assert_eq!(captures.iter().filter(|c| matches!(c.ending, Some(Ending::Complete { .. }))).count(), 1);
    assert_eq!(captures.iter().filter(|c| c.kernels.len() == 10).count(), 1);
}

#[test]
fn a_forked_child_does_not_write_into_its_parents_file() {
    let run = run("fork", &[]);
    assert!(run.status.success());
    let capture = run.capture();
    assert_eq!(capture.ranges.last().unwrap(), "@after the fork");
    assert_eq!(capture.ranges.len(), RANGES.len() + 1);
    assert_eq!(capture.losses["process.forked"].0, 1);
    assert_eq!(capture.ending, Some(Ending::Complete { how: 1 }));
}

#[test]
fn a_child_that_starts_cuda_itself_has_a_file_of_its_own() {
    let run = run("fork-first", &[]);
    assert!(run.status.success());
    let captures: Vec<Capture> = run.files().iter().map(|path| read(path)).collect();
    assert_eq!(captures.len(), 2);
    let child = captures.iter().find(|capture| !capture.kernels.is_empty()).unwrap();
    // The domain was created before the fork; its name is known in the child's file too.
    assert_eq!(child.ranges, ["LLM@child"]);
    assert!(captures.iter().any(|capture| capture.ranges == ["LLM@parent"]));
    assert!(captures.iter().all(|capture| capture.ending == Some(Ending::Complete { how: 1 })));
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    let run = run_until("full", &[], has_work);
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    assert_eq!(run.stdout, "done\n");
    let capture = run.capture();
    assert!(
        matches!(capture.ending, Some(Ending::Cut { why: CutReason::WriteFailed(_), .. })),
        "{:?}",
        capture.ending
    );
    assert!(capture.status.unwrap().lost > 0);
    assert_eq!(capture.kernels.len(), 10);
}

/// Returns true if the tests run as root, who may change users and roots.
fn is_root() -> bool {
    // SAFETY: only answers.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn a_program_that_changes_its_user_or_its_root_is_recorded_to_the_end() {
    if !is_root() {
        return;
    }
    for how in ["setuid", "chroot"] {
        let jail = tempfile::tempdir().unwrap();
        let run = run_until(how, &[("JAIL", jail.path().to_str().unwrap())], has_work);
        assert!(run.status.success(), "{how}: {:?}", run.status);
        let capture = run.capture();
        assert_eq!(capture.ranges.last().map(String::as_str), Some("@after"), "{how}");
        assert_eq!(capture.kernels.len(), 11, "{how}");
        assert_eq!(capture.ending, Some(Ending::Complete { how: 1 }), "{how}");
        assert!(files(jail.path()).is_empty(), "{how}");
    }
}

#[test]
fn a_program_with_more_rights_than_its_user_is_not_recorded() {
    use std::os::unix::fs::PermissionsExt;

    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("program");
    std::fs::copy(&built().program, &program).unwrap();
    std::os::unix::fs::chown(&program, Some(65534), Some(65534)).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let captures = folder.path().join("captures");
    std::fs::create_dir(&captures).unwrap();
    std::fs::set_permissions(&captures, std::fs::Permissions::from_mode(0o777)).unwrap();
    let run = |program: &Path| {
        let done = Command::new(program)
            .arg("secure")
            .env("CUDA_INJECTION64_PATH", &built().library)
            .env("CUPTI_LIBRARY", &built().cupti)
            .env("ROOFGAP_NATIVE_DIR", &captures)
            .output()
            .unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    // A file system that ignores the bit gives no rights, and then there is nothing to test. 99: the other user cannot read
    // the library.
    match run(&program).as_str() {
        "1 1\n" | "1 99\n" => assert!(files(&captures).is_empty()),
        other => assert!(other.starts_with("0 "), "{other}"),
    }
    assert_eq!(run(&built().program), "0 0\n");
    assert_eq!(files(&captures).len(), 1);
}
