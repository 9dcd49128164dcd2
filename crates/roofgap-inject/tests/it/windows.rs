//! Recordings that are turned on and off: by the program, the duty cycle, a limit and the control socket.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, built, files, has_work, kernel_names, read, run, run_until};
use roofgap_wire::{Ending, WindowCause, older_segment};

#[test]
fn only_the_armed_windows_are_recorded() {
    for dormant in ["1", "lazy"] {
        let built = built();
        for cupti in [&built.cupti, &built.old_cupti] {
            let cupti = cupti.to_str().unwrap();
            let run = run("windows", &[("ROOFGAP_NATIVE_DORMANT", dormant), ("CUPTI_LIBRARY", cupti)]);
            assert!(run.status.success(), "{dormant}: {:?} {}", run.status, run.stderr);
            let capture = run.capture();
            assert_eq!(kernel_names(&capture), ["kernel_seen"]);
            assert_eq!((capture.kernels.len(), capture.without_call), (6, 0));
            assert_eq!(capture.copies.len(), 4);
            assert_eq!(capture.ranges, ["LLM@decode_all"], "ranges are recorded all the time");
            let (on, off) = ((true, WindowCause::Request), (false, WindowCause::Request));
            assert_eq!(capture.edges, [(false, WindowCause::Begin), on, off, on, off], "{dormant}");
            assert_eq!(capture.version, 2);
            assert_eq!(capture.devices, ["Stand-in H200"]);
            assert!(capture.losses.is_empty(), "{:?}", capture.losses);
        }
    }
}

#[test]
fn a_window_may_end_inside_a_call() {
    let run = run("inside", &[("ROOFGAP_NATIVE_DORMANT", "1")]);
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    let capture = run.capture();
    assert_eq!(kernel_names(&capture), ["kernel_seen"]);
    assert_eq!((capture.kernels.len(), capture.without_call), (3, 0), "each window has its calls");
}

#[test]
fn a_recording_that_is_turned_off_says_when_it_began() {
    let run = run_until("serve", &[("ROOFGAP_NATIVE_MAX_S", "1")], |capture| !capture.edges.is_empty());
    assert!(run.status.success(), "{:?}", run.status);
    let capture = run.capture();
    assert_eq!(capture.edges, [(true, WindowCause::Begin), (false, WindowCause::Limit)]);
    assert!(has_work(&capture));
    assert_eq!(capture.version, 2);
}

#[test]
fn cupti_is_loaded_on_the_first_request() {
    let run = run("lazy", &[("ROOFGAP_NATIVE_DORMANT", "lazy")]);
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    assert_eq!(kernel_names(&run.capture()), ["kernel_seen"]);
}

#[test]
fn one_of_n_steps_is_recorded() {
    let run = run(
        "steps",
        &[
            ("ROOFGAP_NATIVE_DUTY", "4"),
            ("ROOFGAP_NATIVE_DUTY_MS", "600000"),
            ("ROOFGAP_NATIVE_DUTY_FIRST", "0"),
            ("ROOFGAP_NATIVE_DUTY_STEPS", "1"),
        ],
    );
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    let capture = run.capture();
    let mut by_grid: BTreeMap<u32, usize> = BTreeMap::new();
    for kernel in capture.kernels.iter().filter(|kernel| kernel.0 == "kernel_step") {
        *by_grid.entry(kernel.1).or_default() += 1;
    }
    // Steps 0, 4 and 8; a grid is the number of its step plus 1.
    assert_eq!(by_grid, BTreeMap::from([(1, 4), (5, 4), (9, 4)]));
    assert_eq!(kernel_names(&capture), ["kernel_prefill", "kernel_step"]);
    let steps = capture.ranges.iter().filter(|range| *range == "LLM@decode_step");
    assert_eq!(steps.count(), 10, "every step is marked");
    let by_steps = capture.edges.iter().filter(|edge| edge.1 == WindowCause::Steps);
    // Off before step 1, on before 4, off before 5, on before 8, off before 9; on before the prefill unless time had armed it.
    assert!((5..=6).contains(&by_steps.count()), "{:?}", capture.edges);
    assert_eq!(capture.without_call, 0);
}

#[test]
fn steps_are_recorded_in_a_row() {
    let run = run(
        "steps",
        &[
            ("ROOFGAP_NATIVE_DUTY", "3"),
            ("ROOFGAP_NATIVE_DUTY_MS", "600000"),
            ("ROOFGAP_NATIVE_DUTY_FIRST", "1"),
            ("ROOFGAP_NATIVE_DUTY_STEPS", "2"),
        ],
    );
    let capture = run.capture();
    let steps: Vec<u32> = capture
        .kernels
        .iter()
        .filter(|kernel| kernel.0 == "kernel_step")
        .map(|kernel| kernel.1)
        .step_by(4)
        .collect();
    // The first, then two of six.
    assert_eq!(steps, [1, 2, 3, 8, 9]);
    assert_eq!(capture.without_call, 0, "calls are recorded in every window");
}

#[test]
fn a_program_with_few_steps_is_recorded_whole() {
    let settings = [("ROOFGAP_NATIVE_DUTY", "4"), ("ROOFGAP_NATIVE_DUTY_MS", "600000")];
    let run = run("steps", &settings);
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    let capture = run.capture();
    assert_eq!((capture.kernels.len(), capture.without_call), (41, 0));
    let off = capture.edges.iter().filter(|edge| !edge.0);
    assert_eq!(off.count(), 1, "the state at the begin: {:?}", capture.edges);
}

/// A program with a control socket.
struct Controlled {
    folder: tempfile::TempDir,
    child: Child,
}

impl Controlled {
    /// Starts a scenario that ends with its standard input.
    fn start(scenario: &str, settings: &[(&str, &str)]) -> Self {
        let built = built();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("captures")).unwrap();
        let child = Command::new(&built.program)
            .arg(scenario)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .env("CUDA_INJECTION64_PATH", &built.library)
            .env("NVTX_INJECTION64_PATH", &built.library)
            .env("CUPTI_LIBRARY", &built.cupti)
            .env("ROOFGAP_NATIVE_DIR", folder.path().join("captures"))
            .env("ROOFGAP_NATIVE_CONTROL", folder.path().join("control"))
            .env("ROOFGAP_NATIVE_DORMANT", "lazy")
            .envs(settings.iter().copied())
            .spawn()
            .unwrap();
        Self { folder, child }
    }

    fn captures(&self) -> PathBuf {
        self.folder.path().join("captures")
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join(format!("control/{}.sock", self.child.id()))
    }

    fn connect(&self) -> UnixStream {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match UnixStream::connect(self.socket()) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a command on a connection of its own.
    fn ask(&self, command: &str) -> String {
        send(&self.connect(), command)
    }

    /// Asks until the answer begins with a text; a program may not have started CUDA yet.
    fn ask_until(&self, command: &str, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.ask(command).starts_with(wanted) {
            assert!(Instant::now() < deadline, "{command} is never {wanted}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the program.
    fn end(&mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().unwrap()
    }
}

/// Sends a command and reads its answer.
fn send(mut stream: &UnixStream, command: &str) -> String {
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn the_socket_controls_a_running_program() {
    let mut program = Controlled::start("serve", &[]);
    program.ask_until("arm", "ok armed");
    let stream = program.connect();
    let ask = |command: &str| send(&stream, command);
    // The steps of the program count if it was armed before they began.
    let status = ask("status");
    assert!(status.starts_with("ok armed windows=1 steps="), "{status}");
    assert!(status.contains(" cupti=loaded file="), "{status}");
    assert_eq!(ask("disarm"), "ok dormant");
    assert!(ask("status").starts_with("ok dormant windows=1 "));
    assert_eq!(ask("flush"), "ok flushed");
    for line in ["dance", "ARM", "arm now", "armed"] {
        assert!(ask(line).starts_with("error unknown command"), "{line}");
    }
    assert!(program.end().success());
    assert!(!program.socket().exists(), "the socket is removed");
    let files = files(&program.captures());
    let capture = read(&files[0]);
    let on = capture.edges.iter().filter(|edge| edge.0).count();
    assert_eq!((files.len(), on), (1, 1), "{:?}", capture.edges);
}

#[test]
fn a_window_is_cut_out_of_a_running_program() {
    cut_windows(1);
}

#[test]
fn a_window_can_have_a_part_of_its_steps() {
    cut_windows(4);
}

/// Cuts windows out of a running program that is recorded one of `duty` steps.
fn cut_windows(duty: u64) {
    let every = duty.to_string();
    let settings = [
        ("ROOFGAP_NATIVE_DUTY", every.as_str()),
        ("ROOFGAP_NATIVE_DUTY_FIRST", "0"),
        ("ROOFGAP_NATIVE_DUTY_STEPS", "1"),
    ];
    let mut program = Controlled::start("loop", &settings);
    let ask = |command: &str| program.ask(command);
    let deadline = Instant::now() + PATIENCE;
    let steps = || {
        let status = ask("status");
        let word = status.split_whitespace().find_map(|word| word.strip_prefix("steps="));
        word.unwrap().parse::<u64>().unwrap()
    };
    for _ in 0..2 {
        program.ask_until("arm", "ok");
        // Records that CUPTI still holds would come after the cut.
        for command in ["disarm", "flush", "cut"] {
            assert!(ask(command).starts_with("ok"), "{command}");
        }
        let before = steps();
        assert_eq!(ask("arm"), "ok armed");
        while steps() < before + 4 * duty + 1 {
            assert!(Instant::now() < deadline);
        }
        assert!(ask("status").starts_with("ok armed "));
        assert_eq!((ask("disarm"), ask("flush")), ("ok dormant".into(), "ok flushed".into()));
        let counted = steps() - before;
        assert_eq!(ask("cut"), "ok cut");
        let newest = files(&program.captures()).into_iter().next().unwrap();
        let capture = read(&older_segment(&newest));
        assert_eq!(capture.ending, Some(Ending::Complete { how: 2 }));
        let on = capture.edges.iter().filter(|edge| edge.0).count() as u64;
        // One window, or one for each recorded step.
        let expected = if duty == 1 { 1 } else { counted.div_ceil(duty) };
        assert_eq!(on, expected, "{counted} steps: {:?}", capture.edges);
        let kernels = capture.kernels.len() as u64;
        // Two kernels a step, and a step may be open at both ends.
        assert!(kernels.abs_diff(2 * counted.div_ceil(duty)) <= 2, "{kernels} kernels in {counted} steps");
    }
    assert_eq!(program.end().code(), Some(7));
}

#[test]
fn the_recording_ends_with_the_client_that_holds_it() {
    let mut program = Controlled::start("loop", &[]);
    program.ask_until("arm", "ok armed");
    assert_eq!(program.ask("disarm"), "ok dormant");
    for _ in 0..2 {
        let holder = program.connect();
        assert_eq!(send(&holder, "hold"), "ok held");
        assert_eq!(program.ask("arm"), "ok armed");
        assert!(program.ask("hold").starts_with("error it is being captured already"));
        assert!(program.ask("status").starts_with("ok armed "));
        // As the system does for a client that is killed.
        drop(holder);
        program.ask_until("status", "ok dormant ");
    }
    // The next client has the right at once, and what the last one left on is off.
    let last = program.connect();
    assert_eq!((send(&last, "hold"), program.ask("arm")), ("ok held".into(), "ok armed".into()));
    drop(last);
    let next = program.connect();
    assert_eq!(send(&next, "hold"), "ok held");
    assert!(program.ask("status").starts_with("ok dormant "));
    assert_eq!(program.end().code(), Some(7));
}

#[test]
fn a_shared_folder_gets_no_socket() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = run("exit", &[("ROOFGAP_NATIVE_CONTROL", folder.path().to_str().unwrap())]);
    assert!(run.status.success());
    assert!(files(folder.path()).is_empty());
    let capture = run.capture();
    assert!(capture.losses["control.refused"].1.contains("0700"), "{:?}", capture.losses);
    assert_eq!(capture.kernels.len(), 10);
}
