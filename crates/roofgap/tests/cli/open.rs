//! `roofgap demo` and `roofgap open`: pages, and a browser that shows them.

use crate::support::{Run, ok, roofgap, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const CAPTURE: &str = "fixtures/h200/llama4.sqlite.gz";

/// Removes what makes a browser start.
fn without_display(command: &mut Command) -> &mut Command {
    for name in ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER"] {
        command.env_remove(name);
    }
    command
}

/// Puts an `xdg-open` on the PATH that writes its argument into a file and ends with `status`.
fn stand_in_browser(folder: &Path, status: i32, command: &mut Command) {
    let script = format!("#!/bin/sh\necho \"$1\" > '{}/opened'\nexit {status}\n", folder.display());
    for name in ["xdg-open", "open"] {
        let path = folder.join(name);
        std::fs::write(&path, &script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", folder.display()));
    command.env("DISPLAY", ":0");
}

#[test]
fn the_demo_shows_every_part_of_an_analysis() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("demo");
    let run = ok(["demo", "--no-browser", "--out", out.to_str().unwrap()]);
    let page = out.join("report.html");
    assert!(run.stdout.ends_with(&format!("\npage: {}\n", page.display())), "{}", run.stdout);
    for part in ["NVIDIA H200", "launch-bound", "What to do first"] {
        assert!(run.stdout.contains(part), "no {part} in {}", run.stdout);
    }
    let html = std::fs::read_to_string(page).unwrap();
    for part in ["Counters", "MFU"] {
        assert!(html.contains(part), "no {part} on the page");
    }
    assert!(html.contains("a Llama with 4 layers on an NVIDIA H200"));
    assert!(!html.contains("No roofline"), "the page has no roofline");
    // The captures lie beside the reports, for a look with other commands.
    ok(["analyze", out.join("timeline.sqlite.gz").to_str().unwrap()]);
}

#[test]
fn a_session_without_a_display_gets_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("demo");
    let mut command = roofgap(["demo", "--out", out.to_str().unwrap()]);
    let demo: Run = without_display(&mut command).output().unwrap().into();
    assert_eq!(demo.status, Some(0), "{}", demo.stderr);
    assert!(demo.stderr.contains("no display"), "{}", demo.stderr);

    let mut command = roofgap(["open", out.to_str().unwrap()]);
    let open: Run = without_display(&mut command).output().unwrap().into();
    assert_eq!(open.status, Some(0), "{}", open.stderr);
    assert_eq!(open.stdout, format!("{}/report.html\n", out.display()));
    assert!(open.stderr.contains("no display"), "{}", open.stderr);
}

#[test]
fn a_page_is_opened_in_the_browser() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().canonicalize().unwrap();
    std::fs::write(here.join("report.html"), "<p>page</p>").unwrap();
    let mut command = roofgap(["open", here.to_str().unwrap()]);
    stand_in_browser(&here, 0, &mut command);
    let open: Run = command.output().unwrap().into();
    assert_eq!((open.status, open.stderr.as_str()), (Some(0), ""));
    let opened = || std::fs::read_to_string(here.join("opened")).unwrap_or_default();
    // On a busy machine the browser may start after roofgap has ended.
    let began = std::time::Instant::now();
    while opened().is_empty() && began.elapsed().as_secs() < 300 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(opened().trim(), here.join("report.html").to_str().unwrap());
}

#[test]
fn a_browser_that_fails_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().canonicalize().unwrap();
    std::fs::write(here.join("report.html"), "<p>page</p>").unwrap();
    let mut command = roofgap(["open", here.to_str().unwrap()]);
    command.env("DISPLAY", ":0").env("PATH", here.join("nothing"));
    let open: Run = command.output().unwrap().into();
    assert_eq!(open.status, Some(0));
    assert!(open.stderr.contains("cannot be started"), "{}", open.stderr);
    assert!(open.stdout.ends_with("report.html\n"), "{}", open.stdout);
}

#[test]
fn the_page_of_a_capture_is_written_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = roofgap(["open", "--no-browser", CAPTURE]);
    let open: Run = command.env("TMPDIR", folder.path()).output().unwrap().into();
    assert_eq!(open.status, Some(0), "{}", open.stderr);
    let page = Path::new(open.stdout.trim_end());
    assert!(page.starts_with(folder.path()) && page.is_file(), "{page:?}");

    let out = folder.path().join("reports");
    let analyze = ok(["analyze", CAPTURE, "--out", out.to_str().unwrap()]);
    let last = format!("page: {}/report.html", out.display());
    assert_eq!(analyze.stdout.lines().last(), Some(last.as_str()));
}

#[test]
fn the_latest_run_is_opened_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().to_str().unwrap();
    let nothing = run(["open", "--no-browser", "--dir", base]);
    assert_eq!(nothing.status, Some(2));
    assert!(nothing.stderr.contains("no runs in"), "{}", nothing.stderr);
    for id in ["20260101-000000", "20260102-000000"] {
        let run = folder.path().join(id);
        std::fs::create_dir(&run).unwrap();
        std::fs::write(run.join("session.json"), "{}").unwrap();
        std::fs::write(run.join("report.html"), "<p>page</p>").unwrap();
    }
    let latest = ok(["open", "--no-browser", "--dir", base]);
    assert_eq!(latest.stdout, format!("{base}/20260102-000000/report.html\n"));
    let first = ok(["open", "--no-browser", "--dir", base, "20260101"]);
    assert_eq!(first.stdout, format!("{base}/20260101-000000/report.html\n"));

    let absent = run(["open", "--no-browser", "--dir", base, "absent.sqlite"]);
    assert_eq!(absent.status, Some(2));
    assert!(absent.stderr.contains("absent.sqlite"), "{}", absent.stderr);
    let absent = run(["absent.sqlite"]);
    assert_eq!(absent.status, Some(2));
    assert!(!absent.stderr.contains("subcommand"), "{}", absent.stderr);
}
