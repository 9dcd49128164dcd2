//! Processes and bundles after a kill, and output that nobody reads.

use crate::support::{ROOFGAP, Run, can_run, roofgap, root};
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A generous time limit.
const LIMIT: Duration = Duration::from_secs(300);

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LIMIT, "{what} did not happen within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder with runs, stand-ins for the tools, and programs.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Bench(tempfile::tempdir().unwrap());
        bench.script(
            "bin/nvidia-smi",
            "echo '0, GPU-0, NVIDIA H200, 580.159.04, 9.0, 143771, 4, 700.00, 700.00, 345, 1980, 3201, 3201, 31, 0, Disabled, \
             Enabled, Enabled, Default'",
        );
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/usr/bin/env bash\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Builds a command in the folder, with the stand-in of nvidia-smi.
    fn command(&self, program: &str) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = vec![self.path("bin")];
        folders.extend(std::env::split_paths(&path));
        let mut command = Command::new(program);
        command
            .current_dir(self.path(""))
            .env("PATH", std::env::join_paths(folders).unwrap())
            .env("ROOFGAP_TEST_BENCH", self.path(""));
        command
    }

    /// Builds the arguments of a session.
    fn profile(&self, args: &[&str]) -> Vec<String> {
        let mut all =
            vec!["profile".to_owned(), format!("artifacts.stage2_dir='{}'", self.path("runs").display())];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        all
    }

    fn begin(&self, args: &[&str]) -> Child {
        // A shell that started the tests in the background ignores signals, and so would what it starts.
        self.command("env")
            .args(["--default-signal=HUP,INT,QUIT", ROOFGAP])
            .args(self.profile(args))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Lists the processes of the sessions: by their environment, or by their folder where they removed it.
    fn living(&self) -> Vec<String> {
        let here = self.path("");
        let mark = format!("ROOFGAP_TEST_BENCH={}", here.display());
        let belongs = |process: &Path| {
            let environment = std::fs::read(process.join("environ")).unwrap_or_default();
            let marked = environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes());
            marked
                || std::fs::read_link(process.join("cwd"))
                    .is_ok_and(|cwd| here.starts_with(&cwd) && cwd != Path::new("/"))
        };
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .filter(|process| belongs(process))
            .map(|process| {
                let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
                format!("{} {}", process.display(), String::from_utf8_lossy(&command).replace('\0', " "))
            })
            .collect()
    }

    /// Waits until no process of the sessions is left.
    fn is_quiet(&self) {
        let mut left = Vec::new();
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            left = self.living();
            if left.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("left behind: {left:#?}");
    }

    fn show(&self) -> (Run, Value) {
        let dir = format!("--dir={}", self.path("runs").display());
        let run: Run = roofgap(["runs", "show", "latest", "--format=json", &dir]).output().unwrap().into();
        let details = serde_json::from_str(&run.stdout).unwrap_or_default();
        (run, details)
    }

    /// Returns the only run.
    fn one(&self) -> PathBuf {
        let all: Vec<PathBuf> =
            std::fs::read_dir(self.path("runs")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }

    fn session(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.one().join("session.json")).unwrap()).unwrap()
    }
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// A process that ignores every signal it can ignore.
const DEAF: &str = "trap \"\" INT TERM HUP QUIT; while :; do sleep 0.1; done";

/// A program with a child without environment, a daemon, and a daemon without environment in a session of its own.
fn stubborn(bench: &Bench) -> String {
    let text = format!(
        "trap '' INT TERM HUP QUIT
         (setsid env -i bash -c '{DEAF}' >/dev/null 2>&1 &)
         (setsid bash -c '{DEAF}' >/dev/null 2>&1 &)
         env -i bash -c '{DEAF}' &
         sleep 2
         touch started
         while :; do sleep 0.1; done"
    );
    bench.script("stubborn", &text).display().to_string()
}

/// Ends a session by signals and checks that nothing is left.
fn dies(signals: &[&str], watched: bool) {
    let bench = Bench::new();
    let program = stubborn(&bench);
    let nsys = format!("profiling.nsys.path='{}'", root().join("tests/stand-in/nsys").display());
    let mut args = vec!["run.grace=1h"];
    if watched {
        args.extend([&*nsys, "profiling.timeline=nsys", "runner.baseline=false"]);
    }
    args.extend(["--", &program]);
    let mut session = bench.begin(&args);
    wait_until("the start", || {
        assert_eq!(session.try_wait().unwrap(), None, "it ended before its program started");
        bench.path("started").exists()
    });
    wait_until("the start of its children", || bench.living().len() > 5);
    for name in signals {
        if session.try_wait().unwrap().is_none() {
            signal(&session, name);
        }
    }
    // Signals of one kind that arrive at once count as one.
    wait_until("its end", || {
        let is_over = session.try_wait().unwrap().is_some();
        if !is_over && let Some(name) = signals.last() {
            signal(&session, name);
        }
        is_over
    });
    bench.is_quiet();
    let (run, details) = bench.show();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let status = details["status"].as_str().unwrap();
    assert!(matches!(status, "abandoned" | "interrupted"), "{details:#}");
    let phases = details["phases"].as_array().unwrap();
    assert!(phases.iter().all(|phase| phase["status"] != "running"), "{phases:#?}");
}

#[test]
fn sigkill_leaves_no_process() {
    dies(&["-KILL"], false);
}

#[test]
fn sigkill_leaves_no_process_of_a_profiler() {
    dies(&["-KILL"], true);
}

#[test]
fn sigquit_leaves_no_process() {
    dies(&["-QUIT"], false);
}

#[test]
fn three_interrupts_leave_no_process() {
    dies(&["-INT", "-INT", "-INT"], false);
}

/// A session of all phases under the stand-ins.
fn all_phases(bench: &Bench) -> Vec<String> {
    let program = bench.script(
        "program",
        "sleep 0.1
         cat > \"$ROOFGAP_WORKLOAD_JSON.tmp\" <<'JSON'
         {\"schema\": \"roofgap.workload/1\", \"repeats\": [{\"warmup\": false, \"stages\": [
           {\"name\": \"prefill\", \"wall_ns\": 5000000}, {\"name\": \"decode\", \"wall_ns\": 8000000}]}]}
JSON
         mv \"$ROOFGAP_WORKLOAD_JSON.tmp\" \"$ROOFGAP_WORKLOAD_JSON\"",
    );
    let tool = |name: &str| {
        let path = root().join("tests/stand-in").join(name);
        format!("profiling.{name}.path='{}'", path.display())
    };
    vec![
        tool("nsys"),
        tool("ncu"),
        "profiling.timeline=nsys".to_owned(),
        "--".to_owned(),
        program.display().to_string(),
    ]
}

/// Kills sessions at moments spread over their whole time: 15, or `ROOFGAP_TEST_KILLS` (`scripts/kill-test.py` kills every other command).
#[test]
fn a_kill_at_any_moment_leaves_a_readable_bundle_and_no_process() {
    let kills: u32 = std::env::var("ROOFGAP_TEST_KILLS").map_or(15, |count| count.parse().unwrap());
    let whole = {
        let bench = Bench::new();
        let args = all_phases(&bench);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let began = Instant::now();
        let status = bench.begin(&args).wait().unwrap();
        let time = began.elapsed();
        assert_eq!(status.code(), Some(0), "{:#}", bench.session());
        assert_eq!(bench.living(), [""; 0]);
        time
    };
    let mut seen = std::collections::BTreeMap::new();
    for index in 0..kills {
        let bench = Bench::new();
        let args = all_phases(&bench);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut session = bench.begin(&args);
        // Multiples of the golden ratio are spread evenly, whatever their number.
        let share = (f64::from(index) * 0.618_034).fract();
        std::thread::sleep(whole.mul_f64(share));
        session.kill().unwrap();
        session.wait().unwrap();
        bench.is_quiet();
        let (run, details) = bench.show();
        if run.status == Some(2) {
            assert!(run.stderr.contains("no runs"), "{}", run.stderr);
            *seen.entry("no run yet".to_owned()).or_insert(0) += 1;
            continue;
        }
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        let status = details["status"].as_str().unwrap();
        assert!(matches!(status, "abandoned" | "done"), "{details:#}");
        let phases = details["phases"].as_array().unwrap();
        assert!(phases.iter().all(|phase| phase["status"] != "running"), "{phases:#?}");
        let during = phases.iter().find(|phase| phase["status"] == "killed");
        let during = during.map_or("between phases", |phase| phase["name"].as_str().unwrap());
        *seen.entry(format!("{status}, {during}")).or_insert(0) += 1;
        if bench.one().join("session.json").exists() {
            let report: Run = roofgap(["report".as_ref(), bench.one().as_os_str()]).output().unwrap().into();
            assert!(matches!(report.status, Some(0 | 3)), "{}", report.stderr);
        }
    }
    eprintln!("{kills} kills in {:.1} s each: {seen:#?}", whole.as_secs_f64());
}

#[test]
fn closed_and_full_streams_do_not_end_a_session() {
    for redirect in ["2>&1 | head -n 1", "2>/dev/full", "2>&-", "2>&1 | true"] {
        let bench = Bench::new();
        let program = bench.script("program", "sleep 0.5; echo ran >> ran");
        let args = bench.profile(&["runner=unwatched", "--", program.to_str().unwrap()]);
        let output = bench
            .command("bash")
            .args(["-c", &format!("\"$0\" \"$@\" {redirect}; exit ${{PIPESTATUS[0]}}"), ROOFGAP])
            .args(&args)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{redirect}: {output:?}");
        assert_eq!(bench.session()["state"], "done", "{redirect}");
        assert_eq!(std::fs::read_to_string(bench.path("ran")).unwrap(), "ran\n", "{redirect}");
        assert_eq!(bench.living(), [""; 0], "{redirect}");
    }
}

#[test]
fn a_full_stdout_is_named_and_the_run_is_whole() {
    let bench = Bench::new();
    let args = bench.profile(&["runner=unwatched", "--", "true"]);
    let output =
        bench.command("bash").args(["-c", "\"$0\" \"$@\" >/dev/full", ROOFGAP]).args(&args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("cannot write to standard output"), "{stderr}");
    assert!(!stderr.contains("bug"), "{stderr}");
    assert_eq!(bench.session()["state"], "done");
}

#[test]
fn arguments_that_are_not_utf_8_are_passed_on_recorded_and_repeated() {
    let bench = Bench::new();
    let odd = b"caf\xe9 \xff%41.txt";
    let output = bench
        .command(ROOFGAP)
        .args(bench.profile(&["runner=unwatched", "+workload.env.WORD=kept", "--"]))
        .args(["bash", "-c", "printf '%s|%s\\n' \"$1\" \"$WORD\" >> said", "bash"])
        .arg(std::ffi::OsStr::from_bytes(odd))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let line = [&odd[..], b"|kept\n"].concat();
    assert_eq!(std::fs::read(bench.path("said")).unwrap(), line);
    let session = bench.session();
    let marked = "bytes:caf%E9%20%FF%2541.txt";
    let baseline = session["phases"].as_array().unwrap();
    let baseline = baseline.iter().find(|phase| phase["name"] == "baseline").unwrap();
    assert_eq!(baseline["commands"][0]["argv"][4], marked, "{baseline:#}");
    assert!(session["command_line"].to_string().contains(marked));
    let config = std::fs::read_to_string(bench.one().join("config.yaml")).unwrap();
    assert!(config.contains(marked), "{config}");
    // Its own command repeats it.
    let again =
        bench.command("sh").args(["-c", session["repeat_command"].as_str().unwrap()]).output().unwrap();
    assert!(again.status.success(), "{again:?}");
    assert_eq!(std::fs::read(bench.path("said")).unwrap(), line.repeat(2));
}

#[test]
fn a_parent_that_ignores_the_end_of_children_changes_nothing() {
    let bench = Bench::new();
    let args = bench.profile(&["runner=unwatched", "--", "true"]);
    let output = bench.command("env").arg("--ignore-signal=CHLD").arg(ROOFGAP).args(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(bench.session()["state"], "done");
}

#[test]
fn a_limit_of_the_file_size_costs_what_does_not_fit() {
    let bench = Bench::new();
    let args = bench.profile(&["runner=unwatched", "--", "bash", "-c", "yes | head -c 200000"]);
    let script = "ulimit -f 40; exec \"$0\" \"$@\"";
    let output = bench.command("bash").args(["-c", script, ROOFGAP]).args(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let session = bench.session();
    assert_eq!((&session["state"], &session["exit_status"]), (&"partial".into(), &3.into()), "{session:#}");
    // The program has the limit as it would alone.
    let bench = Bench::new();
    let args =
        bench.profile(&["runner=unwatched", "--", "bash", "-c", "head -c 200000 /dev/zero > large; exit $?"]);
    let output = bench.command("bash").args(["-c", script, ROOFGAP]).args(&args).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(message.contains("status 153"), "{message}");
}

#[test]
fn a_program_that_asks_at_the_terminal_ends_at_once_with_the_reason() {
    if !can_run(Command::new("python3").arg("--version").output().is_ok(), "python3 is not installed") {
        return;
    }
    let bench = Bench::new();
    for ask in ["read line < /dev/tty", "stty -echo < /dev/tty"] {
        let args = bench.profile(&["runner=unwatched", "run.timeout=1h", "--", "bash", "-c", ask]);
        let output = bench
            .command("python3")
            .arg(root().join("crates/roofgap/tests/cli/on_terminal.py"))
            .arg(ROOFGAP)
            .args(&args)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(4), "{text}");
        // Lines are as wide as the terminal.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("asks at the terminal (/dev/tty)"), "{text}");
    }
    assert_eq!(bench.living(), [""; 0]);
}

#[test]
fn what_comes_from_a_private_run_is_private() {
    let bench = Bench::new();
    let public = root().join("fixtures/native/stand-in.rgcap");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let run = bench.path("runs/20260101-000000");
    std::fs::create_dir_all(run.join("native")).unwrap();
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(run.join("session.json"), "{}").unwrap();
    let private = run.join("native/1.rgcap");
    std::fs::copy(&public, &private).unwrap();
    for (input, file_mode, folder_mode) in [(&public, 0o644, 0o755), (&private, 0o600, 0o700)] {
        let name = |end: &str| bench.path(&format!("{file_mode:o}{end}"));
        let run = |args: &[&str]| {
            let mut command = bench.command("bash");
            command.args(["-c", "umask 022; exec \"$0\" \"$@\"", ROOFGAP]).args(args).arg(input);
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        };
        run(&["export", "perfetto", "--out", name(".json").to_str().unwrap()]);
        run(&["analyze", "--out", name("").to_str().unwrap()]);
        let modes = [name(".json"), name("/report.html")].map(|path| mode(&path));
        assert_eq!(modes, [file_mode; 2], "{}", input.display());
        assert_eq!(mode(&name("")), folder_mode);
    }
    // The page of a capture is in the folder for temporary files, which everybody can list.
    let page = bench
        .command(ROOFGAP)
        .args(["open", "--no-browser"])
        .arg(&public)
        .env("TMPDIR", bench.path(""))
        .output()
        .unwrap();
    let page = PathBuf::from(String::from_utf8(page.stdout).unwrap().trim());
    assert!(page.is_file(), "{}", page.display());
    assert_eq!(mode(page.parent().unwrap()), 0o700);
}

#[test]
fn runs_are_pruned_where_dir_says() {
    let bench = Bench::new();
    let args = bench.profile(&["runner=unwatched", "--", "true"]);
    assert!(bench.command(ROOFGAP).args(&args).output().unwrap().status.success());
    let dir = format!("--dir={}", bench.path("runs").display());
    let run: Run = roofgap(["runs", "prune", "--dry-run", "--format=json", &dir]).output().unwrap().into();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let plan: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(plan["runs"].as_array().unwrap().len(), 1, "{plan:#}");
}

#[test]
fn a_secret_of_the_recording_shell_is_not_packed_in_another() {
    let bench = Bench::new();
    let secret = "planted swordfish/12";
    let args = bench.profile(&["runner=unwatched", "--", "sh", "-c", "echo \"using $DB_PASSWORD\""]);
    let output = bench.command(ROOFGAP).args(&args).env("DB_PASSWORD", secret).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(bench.one().join(name)).unwrap();
    assert_eq!(read("baseline/program.out.log"), format!("using {secret}\n"));
    assert!(read("session.json").contains(secret), "the end of the output is in the record");
    let dir = format!("--dir={}", bench.path("runs").display());
    let pack = bench.path("share.tar.gz");
    let args = ["runs", "scrub", "latest", &dir, "--pack", pack.to_str().unwrap()];
    let packed: Run = roofgap(args).env_remove("DB_PASSWORD").output().unwrap().into();
    assert_eq!(packed.status, Some(0), "{}", packed.stderr);
    assert!(packed.stdout.contains("baseline/program.out.log: a log holds the output"), "{}", packed.stdout);
    assert!(read("session.json").contains(secret), "the run is not changed");
    let mut archive = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(std::fs::File::open(&pack).unwrap());
    std::io::Read::read_to_end(&mut decoder, &mut archive).unwrap();
    assert!(!archive.windows(secret.len()).any(|window| window == secret.as_bytes()));
}
