//! Sessions in a process of their own, which can be limited and killed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::Bench;
use roofgap_record::run::write_reports;
use roofgap_runs::run_dir::{PhaseName, PhaseStatus, SessionRecord, SessionState};

/// The test that a child process runs when the environment asks for it: a session in a process of its own, which can be
/// limited and killed.
#[test]
fn in_a_process_of_its_own() {
    let Some(folder) = std::env::var_os("ROOFGAP_TEST_SESSION_IN") else {
        return;
    };
    let bench = Bench { folder: tempfile::Builder::new().disable_cleanup(true).tempdir_in(folder).unwrap() };
    let outcome = match std::env::var("ROOFGAP_TEST_SESSION_PROGRAM") {
        Ok(program) => bench.run(&[&program], &[]),
        Err(_) => bench.watched(&[]),
    };
    assert_eq!(outcome.record.exit_status, Some(outcome.exit.code()));
}

/// This test binary again, at the test above, behind `sh -c prelude`.
fn child(folder: &Path, prelude: &str) -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        &format!("{prelude}\nexec \"$0\" --exact process::in_a_process_of_its_own --test-threads 1"),
    ]);
    command.arg(std::env::current_exe().unwrap());
    command.env("ROOFGAP_TEST_SESSION_IN", folder);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command
}

/// The one run below a folder.
fn run_below(folder: &Path) -> Option<PathBuf> {
    let bench =
        std::fs::read_dir(folder).unwrap().flatten().find(|entry| entry.path().join("runs").is_dir())?;
    Some(std::fs::read_dir(bench.path().join("runs")).unwrap().flatten().next()?.path())
}

#[test]
fn a_disk_that_takes_no_more_costs_what_does_not_fit_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    // Files beyond 80 blocks of 512 bytes cannot be written, as on a full disk; the session's own record fits.
    child(folder.path(), "trap '' XFSZ; ulimit -f 80").status().unwrap();
    let run = run_below(folder.path()).unwrap();
    let record = SessionRecord::read(&run).unwrap();
    assert_eq!(record.state, SessionState::Partial);
    assert_eq!(record.exit_status, Some(3));
    assert!(!record.missing.is_empty());
    assert!(run.join("stakeholder_summary.md").exists());
    let half = std::fs::read_dir(&run)
        .unwrap()
        .flatten()
        .find(|e| e.file_name().to_string_lossy().ends_with(".tmp"));
    assert!(half.is_none(), "{half:?}");
}

#[test]
fn a_kill_leaves_a_bundle_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let program = folder.path().join("slow");
    std::fs::write(
        &program,
        format!("#!/bin/sh\necho $$ > '{0}.tmp'\nmv '{0}.tmp' '{0}'\nexec sleep 300\n", pid_file.display()),
    )
    .unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut session = child(folder.path(), "").env("ROOFGAP_TEST_SESSION_PROGRAM", &program).spawn().unwrap();
    while !pid_file.exists() {
        assert!(session.try_wait().unwrap().is_none(), "the session ended before its program began");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    session.kill().unwrap();
    session.wait().unwrap();
    let pid = std::fs::read_to_string(&pid_file).unwrap();
    // Nobody is left to end it.
    std::process::Command::new("kill").args(["-KILL", pid.trim()]).status().unwrap();
    let run = run_below(folder.path()).unwrap();
    let record = SessionRecord::read(&run).unwrap();
    assert_eq!(record.state, SessionState::Running);
    assert_eq!(record.phase(PhaseName::Baseline).unwrap().status, PhaseStatus::Running);
    let rendered = write_reports(&run).unwrap();
    assert!(
        rendered.analysis.reasons.iter().any(|reason| reason.why.contains("ended during its baseline phase"))
    );
    assert!(run.join("report.md").exists());
}
