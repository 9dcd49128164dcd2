//! Children that misbehave.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use roofgap_collect::child::{
    Cancel, ChildError, ChildSpec, DiskBudget, EndReason, Outcome, OutputTarget, StopPlan, Watch, run,
};
use roofgap_collect::command::CommandLine;

/// Grace long enough for a loaded machine and still a bounded test.
fn quick() -> StopPlan {
    StopPlan {
        interrupt: Duration::from_millis(300),
        report: Duration::ZERO,
        terminate: Duration::from_millis(300),
        settle: Duration::from_millis(200),
    }
}

struct Stand {
    folder: tempfile::TempDir,
}

impl Stand {
    fn new() -> Self {
        Stand { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn bash(&self, script: &str) -> CommandLine {
        // A shell that started the tests in the background ignores signals, and so would what they start.
        CommandLine::new("env").args(["--default-signal=HUP,INT,QUIT", "bash", "-c", script]).cwd(self.path())
    }

    fn child<'a>(&self, command: &'a CommandLine) -> ChildSpec<'a> {
        let mut child =
            ChildSpec::new(command, OutputTarget::file(self.out()), OutputTarget::file(self.err()));
        child.stop = quick();
        child
    }

    fn out(&self) -> PathBuf {
        self.path().join("stdout.log")
    }

    fn err(&self) -> PathBuf {
        self.path().join("stderr.log")
    }

    fn run(&self, script: &str) -> Outcome {
        run(self.child(&self.bash(script)), &mut |_| {}).unwrap()
    }

    /// Runs a script until its first output, then cancels it.
    fn cancel_once_ready(&self, script: &str) -> Outcome {
        let command = self.bash(script);
        let mut child = self.child(&command);
        let cancel = Cancel::new();
        child.cancel = cancel.clone();
        run(child, &mut |_| {
            if self.has_output() && !cancel.is_requested() {
                cancel.request();
            }
        })
        .unwrap()
    }

    fn has_output(&self) -> bool {
        std::fs::metadata(self.out()).is_ok_and(|facts| facts.len() > 0)
    }

    /// Lists the processes whose working folder is this one, as it is for every script.
    fn living(&self) -> Vec<i32> {
        let here = self.path().canonicalize().unwrap();
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == here))
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    }

    /// Reads a process id that the script wrote into a file.
    fn pid(&self, name: &str) -> i32 {
        std::fs::read_to_string(self.path().join(name)).unwrap().trim().parse().unwrap()
    }
}

/// Returns true when a process exists and is not a zombie.
fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with('Z'))
}

#[test]
fn an_orderly_child_has_an_outcome() {
    let stand = Stand::new();
    let outcome = stand.run("echo out; echo err >&2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
    assert!(outcome.is_success());
    assert_eq!(outcome.ended, EndReason::Exited);
    assert_eq!(std::fs::read_to_string(stand.out()).unwrap(), "out\n");
    assert_eq!(std::fs::read_to_string(stand.err()).unwrap(), "err\n");
    assert!(outcome.usage.max_rss_bytes > 100_000, "{:?}", outcome.usage);
    assert!(outcome.usage.user_ns + outcome.usage.system_ns > 0);
    assert!(outcome.started < outcome.finished);
    assert!(outcome.leftovers.is_empty());
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["ended"]["why"], "itself");
    assert!(json["wall_ns"].as_u64().unwrap() > 0);
}

#[test]
fn a_crash_is_reported_with_the_output_tail() {
    let stand = Stand::new();
    let outcome = stand.run("echo 'out of luck' >&2; kill -SEGV $$");
    assert!(!outcome.is_success());
    assert_eq!((outcome.code, outcome.signal), (None, Some(11)));
    assert_eq!(outcome.describe(), "was killed by signal 11 (SIGSEGV)");
    assert_eq!(outcome.output_tail(), "out of luck");
    assert_eq!(stand.run("exit 3").describe(), "ended with status 3");
}

#[test]
fn a_tool_that_exits_0_without_output() {
    let stand = Stand::new();
    let outcome = stand.run("exit 0");
    assert!(outcome.is_success());
    assert_eq!((outcome.stdout.bytes, outcome.stderr.bytes, outcome.output_tail()), (0, 0, ""));
}

#[test]
fn a_hang_ends_with_its_time_budget() {
    let stand = Stand::new();
    // However slow the machine is to start it, it will not have ended by then.
    let command = stand.bash("sleep 1000");
    let mut child = stand.child(&command);
    child.budget.time = Some(Duration::from_millis(400));
    let mut ticks = 0;
    let outcome = run(child, &mut |_| ticks += 1).unwrap();
    assert_eq!(outcome.ended, EndReason::TimeBudget { limit_ns: 400_000_000 });
    assert!(outcome.describe().contains("time budget"), "{}", outcome.describe());
    assert!(ticks > 0);
    assert_eq!(stand.living(), [0; 0]);
}

#[test]
fn a_child_that_ignores_signals_is_killed_with_its_children() {
    let stand = Stand::new();
    let outcome = stand.cancel_once_ready(
        "trap '' INT TERM; (trap '' INT TERM; while :; do sleep 0.05; done) & echo $! > child; echo $$ > pid; \
         echo ready; while :; do sleep 0.05; done",
    );
    assert_eq!(outcome.signal, Some(9));
    assert!(!lives(stand.pid("pid")) && !lives(stand.pid("child")));
}

#[test]
fn children_left_behind_in_the_group_are_ended_and_named() {
    let stand = Stand::new();
    let outcome = stand.run("sleep 1000 & echo $! > child");
    assert!(outcome.is_success());
    let left: Vec<i32> = outcome.leftovers.iter().map(|left| left.pid).collect();
    assert_eq!(left, [stand.pid("child")]);
    assert!(outcome.leftovers.iter().all(|left| !left.name.is_empty()));
    assert!(!lives(stand.pid("child")));
}

#[test]
fn a_process_that_left_the_session_is_found() {
    let stand = Stand::new();
    // A double fork into a session of its own, holding the output open, deaf to SIGTERM.
    let outcome = stand.run(
        "setsid bash -c 'trap \"\" TERM INT HUP; echo $$ > daemon; while :; do sleep 0.05; done' & \
         while [ ! -s daemon ]; do sleep 0.02; done",
    );
    assert!(outcome.is_success());
    assert!(outcome.leftovers.iter().any(|left| left.pid == stand.pid("daemon")), "{:?}", outcome.leftovers);
    assert!(!lives(stand.pid("daemon")));
}

#[test]
fn children_that_end_soon_by_themselves_are_no_leftovers() {
    let stand = Stand::new();
    let command = stand.bash("sleep 0.2 & true");
    let mut child = stand.child(&command);
    child.stop.settle = Duration::from_secs(20);
    assert_eq!(run(child, &mut |_| {}).unwrap().leftovers, []);
}

#[test]
fn gigabytes_of_output_stay_within_the_limit() {
    let stand = Stand::new();
    let command = stand.bash("echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo last");
    let mut child = stand.child(&command);
    child.stdout = OutputTarget::File { path: stand.out(), max_bytes: 1_000_000 };
    let outcome = run(child, &mut |_| {}).unwrap();
    assert!(outcome.is_success());
    assert_eq!(outcome.stdout.bytes, 200_000_000 + "first\n\nlast\n".len() as u64);
    assert!(outcome.stdout.left_out > 198_000_000);
    let kept = std::fs::read_to_string(stand.out()).unwrap();
    assert!(kept.len() < 1_000_200, "{}", kept.len());
    assert!(kept.starts_with("first\n") && kept.ends_with("\nlast\n"));
    assert!(kept.contains("bytes of output left out here"));
    assert!(outcome.stdout.tail.ends_with("last\n"));
}

#[test]
fn a_full_disk_is_reported_and_does_not_block_the_child() {
    let stand = Stand::new();
    let command = stand.bash("head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last");
    let mut child = stand.child(&command);
    // Every write to it fails as on a full disk.
    child.stdout = OutputTarget::File { path: "/dev/full".into(), max_bytes: 1_000_000 };
    let outcome = run(child, &mut |_| {}).unwrap();
    assert!(outcome.is_success());
    assert!(outcome.stdout.write_error.unwrap().contains("No space left"));
    assert!(outcome.stdout.tail.ends_with("last\n"));
}

#[test]
fn filling_the_disk_is_stopped() {
    let stand = Stand::new();
    let command = stand.bash("while :; do head -c 1000000 /dev/zero >> big; sleep 0.01; done");
    let mut child = stand.child(&command);
    child.budget.disk =
        Some(DiskBudget { folder: stand.path().into(), max_bytes: 3_000_000, min_free_bytes: 0 });
    let outcome = run(child, &mut |_| {}).unwrap();
    assert!(matches!(outcome.ended, EndReason::DiskBudget { .. }), "{:?}", outcome.ended);
    assert!(outcome.describe().contains("over its limit of 3000000"));
}

#[test]
fn the_cancel_flag_interrupts_first() {
    let stand = Stand::new();
    let command =
        stand.bash("trap 'echo report written; exit 7' INT; echo ready; while :; do sleep 0.02; done");
    let mut child = stand.child(&command);
    child.stop.interrupt = Duration::from_secs(30);
    let cancel = Cancel::new();
    child.cancel = cancel.clone();
    let outcome = run(child, &mut |tick| {
        if stand.has_output() && !tick.stopping {
            cancel.request();
        }
    })
    .unwrap();
    assert_eq!((outcome.ended, outcome.code), (EndReason::Cancelled, Some(7)));
    assert_eq!(outcome.stdout.tail, "ready\nreport written\n");
}

#[test]
fn a_second_request_does_not_wait() {
    let stand = Stand::new();
    let command = stand.bash("trap '' INT TERM; echo ready; while :; do sleep 0.02; done");
    let mut child = stand.child(&command);
    child.stop = StopPlan {
        interrupt: Duration::from_secs(1000),
        report: Duration::ZERO,
        terminate: Duration::from_secs(1000),
        settle: Duration::ZERO,
    };
    let cancel = Cancel::new();
    child.cancel = cancel.clone();
    let outcome = run(child, &mut |_| {
        if stand.has_output() {
            cancel.request();
        }
    })
    .unwrap();
    assert_eq!((outcome.ended, outcome.signal), (EndReason::Cancelled, Some(9)));
}

#[test]
fn a_watcher_that_has_seen_enough_ends_the_program_but_not_its_profiler() {
    let stand = Stand::new();
    // The outer shell stands for a profiler: it writes its report when the program behind it is gone.
    let command = stand
        .bash("bash -c 'for i in 1 2 3 4 5; do echo kernel $i; done; sleep 1000; true'; echo report; exit 0");
    let mut child = stand.child(&command);
    child.stop.interrupt = Duration::from_secs(30);
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    child.watch = Some(Box::new(move |line| {
        let enough = line.starts_with("kernel") && count.fetch_add(1, Ordering::SeqCst) == 2;
        if enough { Watch::Stop } else { Watch::Continue }
    }));
    let outcome = run(child, &mut |_| {}).unwrap();
    assert_eq!((outcome.ended.clone(), outcome.code), (EndReason::StoppedByWatcher, Some(0)), "{outcome:?}");
    assert!(outcome.stdout.tail.ends_with("report\n"));
}

#[test]
fn a_program_that_ignores_signals_is_killed_and_its_profiler_writes_the_report() {
    let stand = Stand::new();
    let command = stand.bash(
        "trap 'true' INT; bash -c 'trap \"\" INT TERM; echo ready; while :; do sleep 0.05; done' & program=$!; \
         while kill -0 $program 2>/dev/null; do wait $program; done; echo report",
    );
    let mut child = stand.child(&command);
    // Longer than any test may take, so that only a kill of the program alone ends it.
    child.stop.report = Duration::from_secs(100_000);
    let cancel = Cancel::new();
    child.cancel = cancel.clone();
    let outcome = run(child, &mut |_| {
        if stand.has_output() && !cancel.is_requested() {
            cancel.request();
        }
    })
    .unwrap();
    assert_eq!((outcome.ended.clone(), outcome.code), (EndReason::Cancelled, Some(0)), "{outcome:?}");
    assert!(outcome.stdout.tail.ends_with("report\n"), "{outcome:?}");
}

#[test]
fn a_cancel_ends_a_stop_that_waits() {
    let stand = Stand::new();
    let command =
        stand.bash("bash -c 'trap \"\" INT TERM; echo kernel; while :; do sleep 0.05; done'; echo report");
    let mut child = stand.child(&command);
    child.stop.report = Duration::from_secs(100_000);
    child.watch = Some(Box::new(|_| Watch::Stop));
    let cancel = Cancel::new();
    child.cancel = cancel.clone();
    let outcome = run(child, &mut |tick| {
        if tick.stopping && !cancel.is_requested() {
            cancel.request();
        }
    })
    .unwrap();
    assert_eq!(outcome.ended, EndReason::Cancelled, "{outcome:?}");
}

#[test]
fn a_missing_program_is_reported() {
    let stand = Stand::new();
    let missing = CommandLine::new("/no/such/program");
    let error = run(stand.child(&missing), &mut |_| {}).unwrap_err();
    assert!(matches!(error, ChildError::Start { .. }));
    assert!(error.to_string().contains("/no/such/program") && error.to_string().contains("install it"));

    let plain = stand.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let error = run(stand.child(&CommandLine::new(&plain)), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("chmod +x"), "{error}");

    let nowhere = CommandLine::new("true").cwd("/no/such/folder");
    let error = run(stand.child(&nowhere), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("working folder"), "{error}");
}

#[test]
fn a_program_that_is_still_being_written_is_waited_for() {
    let stand = Stand::new();
    let path = stand.path().join("script");
    std::fs::write(&path, "#!/bin/sh\nexit 5\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let closes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(writer);
    });
    let outcome = run(stand.child(&CommandLine::new(&path)), &mut |_| {}).unwrap();
    assert_eq!(outcome.code, Some(5));
    closes.join().unwrap();
}

#[test]
fn an_unwritable_log_is_reported_before_the_run() {
    let stand = Stand::new();
    let command = stand.bash("touch ran");
    let mut child = stand.child(&command);
    // A folder of that name stands in the way: true for root as well, whom a read-only mode would not stop.
    std::fs::create_dir(stand.out()).unwrap();
    child.stdout = OutputTarget::file(stand.out());
    let error = run(child, &mut |_| {}).unwrap_err();
    assert!(matches!(error, ChildError::Log { .. }), "{error}");
    assert!(!stand.path().join("ran").exists());
}

#[test]
fn many_at_once_do_not_end_one_another() {
    let threads: Vec<_> = (0..8)
        .map(|index| {
            std::thread::spawn(move || {
                let stand = Stand::new();
                stand.run(&format!("sleep 1000 & sleep 0.1; exit {index}"))
            })
        })
        .collect();
    for (index, thread) in threads.into_iter().enumerate() {
        let outcome = thread.join().unwrap();
        assert_eq!(outcome.code, i32::try_from(index).ok());
        assert_eq!(outcome.leftovers.len(), 1);
    }
}

#[test]
fn processes_with_the_cuda_driver_are_seen() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let stand = Stand::new();
    std::fs::write(stand.path().join("libcuda.so.1"), vec![0u8; 4096]).unwrap();
    std::fs::write(stand.path().join("libcudart.so.12"), vec![0u8; 4096]).unwrap();
    let map = |library: &str| {
        format!(
            "python3 -c \"import mmap, time; f = open('{library}'); m = mmap.mmap(f.fileno(), 0, prot=1); time.sleep(8)\""
        )
    };
    // Long enough for a look, of which there is one every 2 s. In a child of the child; the runtime alone uses no GPU.
    let outcome = stand.run(&format!(
        "({} & echo $! > user; wait) & {} & wait",
        map("libcuda.so.1"),
        map("libcudart.so.12")
    ));
    let found: Vec<i32> = outcome.gpu_processes.iter().map(|process| process.pid).collect();
    assert_eq!(found, [stand.pid("user")], "{}", outcome.stderr.tail);
}
